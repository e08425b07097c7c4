"""The errors tokenmill raises on purpose.

    TokenmillError               a user can mend it; the command line prints the message alone and exits with 2
    ├── ParamsError              params.yaml, an argument of the command line, or dvc.yaml
    ├── CorpusError              an input file, a row of it, or its text
    │   ├── DamagedError         a file that is not whole: truncated, or with bytes that are not of its kind
    │   └── SpecialTokenError    a special token's text inside a document, where that is to be refused
    ├── PatternError             a split pattern that does not compile, or gives up on a text
    ├── TokenizerError           a tokenizer file, a vocabulary, an id
    ├── CountsError              a table of counts, or the memory that counting may hold
    ├── VersionsError            DVC or git: no repository, a busy one, inputs that changed while a stage ran
    ├── BusyError                another process builds the project
    ├── ValidationError          a dataset that is not what it says
    ├── UnitTimeoutError         a unit took longer than run.unit_timeout_s allows
    └── UnitsError               several units of a stage failed, each with an error of the kinds above
    InternalError                a panic of the core: a defect of tokenmill, with a request to report it
    Terminated                   no error: the command is to end, by a termination signal or as cancelled in Prefect

A message says what, where (file, row), what was expected, what was found, and what to do.
"""


class TokenmillError(Exception):
    """Base of every error that a user can mend."""


class ParamsError(TokenmillError):
    """A parameter, an argument, or a stage definition is wrong."""


class CorpusError(TokenmillError):
    """An input file cannot be read as documents."""


class DamagedError(CorpusError):
    """An input file is not whole."""


class SpecialTokenError(CorpusError):
    """A text holds the text of a special token. `index`: which text; `byte_offset`: where in it, in UTF-8, or None where
    it is only there once the text is normalized; `token`: which token."""

    def __init__(self, index: int, byte_offset: int | None, token: str, place: str | None = None) -> None:
        self.index, self.byte_offset, self.token = index, byte_offset, token
        at = "once it is normalized" if byte_offset is None else f"at byte {byte_offset}"
        super().__init__(
            f"{place or f'text {index}'}: the special token {token!r} stands {at}. Remove it, or let it be text (as_text) "
            "or its id (allow)."
        )


class PatternError(TokenmillError):
    """A split pattern does not compile, or gives up on a text."""


class TokenizerError(TokenmillError):
    """A tokenizer file, a vocabulary or an id is wrong."""


class CountsError(TokenmillError):
    """A table of counts is wrong, or counting would exceed its memory."""


class VersionsError(TokenmillError):
    """DVC or git cannot do what the build needs."""


class BusyError(TokenmillError):
    """Another process builds the project. `holder`: the sentence that says which; `advice`: what to do."""

    def __init__(self, holder: str, advice: str) -> None:
        self.holder = holder
        super().__init__(f"{holder} {advice}")


class ValidationError(TokenmillError):
    """A dataset does not hold what its manifest or its input says."""


class UnitTimeoutError(TokenmillError):
    """A unit takes too long."""


class UnitsError(TokenmillError):
    """Several units of a stage failed; the message has a line for each."""


class Terminated(BaseException):
    """The command is to end now."""


class InternalError(Exception):
    """The core panicked: a defect of tokenmill, not of its input."""
