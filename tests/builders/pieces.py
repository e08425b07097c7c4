"""The pieces of a small SentencePiece vocabulary: bytes, and "ab", " ab", "abb" and "bb" of a, b and the space."""

from tokenmill.features.convert.formats.pieces import Kind, Normalization, Piece

PIECES = [
    Piece("<unk>", 0, Kind.UNKNOWN),
    Piece("<s>", 0, Kind.CONTROL),
    *(Piece(f"<0x{byte:02X}>", 0, Kind.BYTE) for byte in range(256)),
    Piece("ab", -0.0, Kind.NORMAL),
    Piece("▁ab", -1.0, Kind.NORMAL),
    Piece("abb", -2.0, Kind.NORMAL),
    Piece("bb", -3.0, Kind.NORMAL),
    Piece("▁", -4.0, Kind.NORMAL),
    Piece("a", -5.0, Kind.NORMAL),
    Piece("b", -6.0, Kind.NORMAL),
]
PLAIN = Normalization(adds_mark=True, joins_spaces=False)
