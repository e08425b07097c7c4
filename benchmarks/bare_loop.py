"""A bare loop over gigatoken: python -m benchmarks.bare_loop FILES TOKENIZER.

It reads and parses the .jsonl.zst files of a folder, and encodes the texts of each on all cores. The ids stay in memory: no dataset
is written, and nothing is checked. Prints its seconds, without its start, as JSON.
"""

import json
import sys
from pathlib import Path

import gigatoken
import msgspec
import pyarrow as pa

from benchmarks.process import timed


def main() -> None:
    files, tokenizer = Path(sys.argv[1]), gigatoken.Tokenizer(sys.argv[2])
    decode = msgspec.json.Decoder(msgspec.defstruct("Document", [("text", str)], gc=False)).decode

    def loop() -> None:
        for file in sorted(files.iterdir()):
            with pa.input_stream(str(file)) as lines:
                texts = [decode(line).text for line in lines.read().splitlines()]
            tokenizer.encode_batch(texts, parallel=True)

    print(json.dumps({"bare loop over gigatoken": timed(loop).seconds}))


if __name__ == "__main__":
    main()
