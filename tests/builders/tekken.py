"""A small tekken.json."""

import base64
import json
from pathlib import Path
from typing import Any


def tekken_file(tmp_path: Path, special: Any) -> Path:
    """A tekken.json of the 256 bytes, ab and, beyond default_vocab_size, a space with ab."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b" ab"]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {"pattern": r" ?\p{L}+|\s|.", "default_vocab_size": 260, "default_num_special_tokens": 3}
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}), encoding="utf-8")
    return path
