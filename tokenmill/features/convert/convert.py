"""Converts a tokenizer from one file format to another, in which it gives the same ids."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tokenmill.errors import TokenizerError
from tokenmill.features import PARTS
from tokenmill.features.convert.formats import sentencepiece_model, tekken, vocab_merges
from tokenmill.features.convert.formats.gguf_reading import read_gguf
from tokenmill.storage.followed import followed
from tokenmill.tokenizer.chat_files import CHAT_TEMPLATE_FILE, DEFAULT, chat_templates_of
from tokenmill.tokenizer.formats.folder import lacking, names_in, with_folder
from tokenmill.tokenizer.forms import Form, loaded, write_as, write_files
from tokenmill.tokenizer.reading import read_json
from tokenmill.tokenizer.tokenizer import CACHE_MB_MAX, Tokenizer

TOKENIZER_JSON = "tokenizer.json"
FORMATS = (TOKENIZER_JSON, *PARTS["tokenizer_formats"])
"""What a tokenizer can be converted to."""
_OTHERS = ("*.gguf", "*.model", tekken.NAMES, "vocab.json")
_NAMES = ("eos_token", "bos_token", "pad_token", "unk_token")


def convert(
    source: str | Path, directory: str | Path, format: str = TOKENIZER_JSON, pattern: str | None = None
) -> list[Path]:
    """Writes a tokenizer into a directory in one of FORMATS, and returns the files.

    `source`: a folder or file that `Tokenizer.load` takes, a SentencePiece .model, a .gguf, a tekken.json, or a vocab.json with
    merges.txt beside it; also the folder of such a file. `pattern`: how text is split, for files that do not say it.

    Raises TokenizerError for a file that cannot be read, and for a tokenizer to which the format would give other ids."""
    return write_form(read_form(Path(source), pattern), Path(directory), format)


def write_form(form: Form, directory: Path, format: str) -> list[Path]:
    """Writes a tokenizer that was read, as `convert` does."""
    if format != TOKENIZER_JSON:
        return write_as(form, directory, format)
    special = form.tokenizer.special_tokens
    names = {name: text if (text := form.names.get(name)) in special else None for name in _NAMES}
    form.tokenizer.save(directory, names["eos_token"], names["bos_token"], names["pad_token"], names["unk_token"])
    files = {} if form.chat_template is None else {CHAT_TEMPLATE_FILE: form.chat_template.encode()}
    return [directory / TOKENIZER_JSON, *write_files(files, directory)]


def read_form(source: Path, pattern: str | None = None) -> Form:
    """Reads a tokenizer in any format that `convert` takes. Raises TokenizerError."""
    folder, source = source, _file_of(source)
    names: dict[str, str] = {}
    template = None
    if source.suffix == ".model":
        document, names = sentencepiece_model.read_model_file(source)
    elif source.suffix == ".gguf":
        document, names, template = read_gguf(source)
    elif fnmatchcase(source.name, tekken.NAMES):
        document, names = tekken.read_tekken(source)
    elif source.name == "vocab.json":
        document = given = vocab_merges.document_of(source, pattern)
    else:
        return loaded(source, pattern)
    if folder != source:
        names |= names_in(folder)
        template = chat_templates_of(folder).get(DEFAULT, template)
        document = _with_files_beside(document, source)
    if source.name == "vocab.json":
        vocab_merges.check_split(document, given, source)
    content = json.dumps(document, ensure_ascii=False).encode()
    return Form(Tokenizer.of(read_json(content, str(source)), str(source), CACHE_MB_MAX), str(source), names, template)


def _file_of(source: Path) -> Path:
    """The file of another program in a folder without a tokenizer.json; anything else as it is. Raises TokenizerError for
    several such files, which may be of different tokenizers."""
    if not source.is_dir() or (source / TOKENIZER_JSON).is_file():
        return source
    files = sorted(file for glob in _OTHERS for file in source.glob(glob))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise TokenizerError(
            source,
            f"expected one file of a tokenizer; found {names}.",
            f"Name one, which then counts alone: {files[0]}.",
        )
    return followed(source, files[0].name) if files else source


def _with_files_beside(document: dict[str, Any], source: Path) -> dict[str, Any]:
    """Completes the tokenizer.json that was made of one file of a folder. Files beside a vocab.json add tokens to it and say how
    text is split, as AutoTokenizer has it. Raises TokenizerError if files beside another kind of file add tokens to it."""
    if source.name == "vocab.json":
        return with_folder(document, source.parent, source.name)
    if tokens := lacking(document, source.parent):
        raise TokenizerError(
            source.parent,
            f"the files beside {source.name} name tokens that it lacks, such as {tokens[0]!r:.60}.",
            "Write a tokenizer.json with save_pretrained of transformers, which has them. "
            f"Or name {source} itself: then it counts alone.",
        )
    return document
