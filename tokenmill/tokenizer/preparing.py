"""What is done to a text before the core splits it: normalizing, a space in front, and cutting at added tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tokenmill.arrow_texts import Texts, one_array
from tokenmill.special_tokens import listed
from tokenmill.tokenizer.added_tokens import Finder, normalized
from tokenmill.tokenizer.model import AddedToken, Model


@dataclass(frozen=True)
class Preparation:
    """What a tokenizer does to a text before it splits it, as plain values: see Model. `added`: all added tokens, if some are found
    in texts, which are then cut there; else none. `Preparation()`: a text is split as it stands."""

    nfc: bool = False
    add_prefix_space: bool = False
    added: tuple[AddedToken, ...] = ()

    @classmethod
    def of(cls, model: Model) -> "Preparation":
        """That of a model."""
        cuts = any(not token.special for token in model.added)
        return cls(model.nfc, model.add_prefix_space, model.added if cuts else ())

    def __str__(self) -> str:
        words = ["normalized to NFC"] if self.nfc else []
        words += ["with a space in front"] if self.add_prefix_space else []
        words += [f"cut at {listed(token.text for token in self.added if not token.special)}"] if self.added else []
        return ", ".join(words) or "as it stands"

    def texts_to_split(self, texts: Texts) -> Texts:
        """The texts that the split pattern gets, in another order. A text that is null or not UTF-8 is left to those who take them.

        >>> Preparation(nfc=True).texts_to_split(["cafe\N{COMBINING ACUTE ACCENT}"]).to_pylist()
        ['café']
        """
        if self == Preparation():
            return texts
        try:
            strings = one_array(texts).cast(pa.large_string())
        except pa.ArrowInvalid:
            return texts
        preparing = _preparing_of(self)
        parts_of = [None if text is None else preparing.parts(text) for text in strings.to_pylist()]
        pieces = [part for parts in parts_of for part in parts or () if isinstance(part, str)]
        is_whole = pa.array([parts is None for parts in parts_of], pa.bool_())
        found: Texts = pa.concat_arrays([strings.filter(is_whole), pa.array(pieces, pa.large_string())])
        return found


@lru_cache(maxsize=4)
def _preparing_of(preparation: Preparation) -> "Preparing":
    early, late = (Phase(preparation.added, normal, allow_special=False) for normal in (False, True))
    return Preparing(
        early=early.finder() if early.shown else None,
        early_in_core=False,
        late=late.finder(preparation.nfc) if late.shown else None,
        nfc=preparation.nfc,
        add_prefix_space=preparation.add_prefix_space,
    )


class Phase:
    """The added tokens of one search: `shown` ones become ids, `hidden` ones stay text."""

    def __init__(self, added: Iterable[AddedToken], normal: bool, allow_special: bool) -> None:
        self.all: list[AddedToken] = [token for token in added if token.normalized is normal]
        self.shown: list[AddedToken] = [one for one in self.all if allow_special or not one.special]
        self.hidden: list[AddedToken] = [] if allow_special else [one for one in self.all if one.special]

    def finder(self, nfc: bool = False) -> Finder:
        return Finder(self.shown, self.hidden, nfc)


@dataclass(frozen=True)
class Preparing:
    """How a text is prepared. `early` and `late` cut it before and after normalizing; None: there is nothing to cut at.
    `early_in_core`: the core finds the early tokens itself, so Python cuts only a text that normalizing changes."""

    early: Finder | None
    early_in_core: bool
    late: Finder | None
    nfc: bool
    add_prefix_space: bool

    def parts(self, text: str) -> list[str | int] | None:
        """The text cut into pieces to encode and ids of added tokens; None if the text needs no preparing."""
        whole = normalized(text) if self.early_in_core else None
        if whole == text:
            return None
        parts: list[str | int] = []
        for part in self.early.cut(text) if self.early else [text]:
            if isinstance(part, int):
                parts.append(part)
                continue
            if self.nfc:
                part = whole if whole is not None and part == text else normalized(part)
            for piece in self.late.cut(part) if self.late else [part]:
                spaced = self.add_prefix_space and isinstance(piece, str) and piece and not piece.startswith(" ")
                parts.append(f" {piece}" if spaced else piece)
        return None if parts == [text] or not text else parts
