"""encode: documents and tokenizer → token dataset."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pyarrow as pa

from tokenmill.console import Advance, StageSummary, progress
from tokenmill.corpus import Shard, find_shards, read_batches
from tokenmill.dataset import id_type, rows, schema, write_tokens
from tokenmill.errors import CorpusError, SpecialTokenError
from tokenmill.files import sha256_file, write_directory
from tokenmill.layout import TOKENIZER_DIRECTORY, TOKENS_DIRECTORY
from tokenmill.manifest import InputShard, Manifest, OutputShard, engine_version, write_manifest
from tokenmill.params import Encode, Source
from tokenmill.special_tokens import SpecialTokensInText
from tokenmill.tokenizer import Tokenizer
from tokenmill.units import RunUnits

_RAW_PREFIX = "data/raw/"  # left out of the dataset's file names


def encode(root: Path, source: Source, params: Encode, run_units: RunUnits) -> StageSummary:
    """Encodes every shard into one Parquet file of data/tokens, and writes the manifest beside them.

    The directory appears whole, when the last shard is done. Raises CorpusError, TokenizerError.
    """
    start_s = time.monotonic()
    shards = find_shards(root, source.glob)
    outputs = _output_names(shards)
    tokenizer = Tokenizer.load(root / TOKENIZER_DIRECTORY)
    end_id = None if params.end_of_document is None else tokenizer.special_tokens[params.end_of_document]
    with write_directory(root / TOKENS_DIRECTORY) as directory:
        with progress("encode", sum(shard.n_bytes for shard in shards) / 1e6, "file MB") as advance:
            do = partial(
                encode_unit,
                source=source,
                tokenizer=tokenizer,
                end_id=end_id,
                special=params.special_tokens_in_text,
                directory=directory,
                outputs=outputs,
                advance=advance,
            )
            done = run_units("encode", do, shards)
        manifest = Manifest(
            engine=engine_version(),
            tokenizer_digest=tokenizer.digest,
            params_digest=_digest(source, params),
            id_type=str(id_type(tokenizer.id_max)),
            id_max=tokenizer.id_max,
            end_of_document_id=end_id,
            special_tokens_in_text=params.special_tokens_in_text,
            n_documents=sum(shard.n_documents for shard in done),
            n_tokens=sum(shard.n_tokens for shard in done),
            text_bytes=sum(shard.text_bytes for shard in done),
            shards=done,
        )
        write_manifest(manifest, directory)
    return StageSummary(
        "encode",
        "run",
        n_units=len(shards),
        n_documents=manifest.n_documents,
        text_mb=manifest.text_bytes / 1e6,
        n_tokens=manifest.n_tokens,
        seconds=time.monotonic() - start_s,
    )


def encode_unit(
    unit: Shard,
    source: Source,
    tokenizer: Tokenizer,
    end_id: int | None,
    special: SpecialTokensInText,
    directory: Path,
    outputs: dict[str, str],
    advance: Advance,
) -> OutputShard:
    """Encodes one shard into its file; what comes back is that file's entry in the manifest."""
    output = directory / outputs[unit.name]
    shape = schema(id_type(tokenizer.id_max), has_names=source.id_column is not None)
    n_documents = n_tokens = text_bytes = 0

    def encoded() -> Iterator[pa.RecordBatch]:
        nonlocal n_documents, n_tokens, text_bytes
        for batch in read_batches(unit, source.text_column, source.id_column, source.text_separator):
            try:
                input_ids = tokenizer.encode_batch(batch.texts, threads=1, end_id=end_id, special=special)
            except SpecialTokenError as error:
                row = batch.first_row + error.index
                raise SpecialTokenError(row, error.byte_offset, error.token, f"{unit.name}, row {row}") from None
            n_documents += len(input_ids)
            n_tokens += len(input_ids.values)
            text_bytes += batch.text_bytes
            yield rows(batch, input_ids, shape)
            advance(batch.file_bytes / 1e6)

    write_tokens(output, shape, encoded())
    return OutputShard(
        name=outputs[unit.name],
        n_bytes=output.stat().st_size,
        sha256=sha256_file(output),
        n_documents=n_documents,
        n_tokens=n_tokens,
        text_bytes=text_bytes,
        source=InputShard(name=unit.name, n_bytes=unit.n_bytes, sha256=sha256_file(unit.path)),
    )


def _output_names(shards: list[Shard]) -> dict[str, str]:
    """Each shard's file in the dataset. It follows from the shard's name alone, so a new shard renames no other."""
    names = {}
    for shard in shards:
        parts = [part for part in PurePosixPath(shard.name.removeprefix(_RAW_PREFIX)).parts if part not in ("..", "/")]
        name = "/".join(parts)
        names[shard.name] = name if name.endswith(".parquet") else f"{name}.parquet"
    twice = [name for name, n in Counter(names.values()).items() if n > 1]
    if twice:
        clash = [shard for shard, name in names.items() if name == twice[0]]
        raise CorpusError(
            f"source.glob: {' and '.join(clash)} would both be encoded into {twice[0]}. Rename one of them."
        )
    return names


def _digest(source: Source, params: Encode) -> str:
    """Over the parameters that decide bytes of the dataset; which shards there are stands in the manifest itself."""
    deciding = source.model_dump_json(exclude={"glob"}) + params.model_dump_json()
    return hashlib.sha256(deciding.encode()).hexdigest()
