"""The pieces of a small SentencePiece vocabulary: bytes, and "ab", " ab", "abb" and "bb" of a, b and the space."""

from tokenmill.features.convert.formats.pieces import Kind, Normalization, TokenPiece

PIECES = [
    TokenPiece("<unk>", 0, Kind.UNKNOWN),
    TokenPiece("<s>", 0, Kind.CONTROL),
    *(TokenPiece(f"<0x{byte:02X}>", 0, Kind.BYTE) for byte in range(256)),
    TokenPiece("ab", -0.0, Kind.NORMAL),
    TokenPiece("▁ab", -1.0, Kind.NORMAL),
    TokenPiece("abb", -2.0, Kind.NORMAL),
    TokenPiece("bb", -3.0, Kind.NORMAL),
    TokenPiece("▁", -4.0, Kind.NORMAL),
    TokenPiece("a", -5.0, Kind.NORMAL),
    TokenPiece("b", -6.0, Kind.NORMAL),
]
PLAIN = Normalization(adds_mark=True, joins_spaces=False)
