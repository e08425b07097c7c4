"""Files that are whole and yet no documents, and pages that are damaged: each is told for what it is."""

import ast
import base64
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
import zstandard

from tests.builders.teams import findings
from tests.builders.trained import trained
from tests.conftest import REPOSITORY, Project
from tokenmill.config.sources import Reading
from tokenmill.corpus.decompression import decompressed
from tokenmill.corpus.limits import UNBOUNDED, Limits
from tokenmill.corpus.reader import find_shards, read_batches
from tokenmill.corpus.units import cut
from tokenmill.corpus.zstd_frames import HEADER_BYTES_MAX, window_bytes
from tokenmill.errors import CorpusError, DamagedError, EncryptedError, PointerError, TokenizerError
from tokenmill.features.drop.filter.drop_list import DropList
from tokenmill.storage.file_facts import Digests
from tokenmill.tokenizer.tokenizer import Tokenizer
from tokenmill_reader.checked_parquet import read_table

LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a1' * 32}\nsize 12345\n"
ANNEX = f"/annex/objects/SHA256E-s12345--{'a1' * 32}.txt\n"
TABLE = pa.table({"id": ["a", "b"], "text": ["abcdefgh" * 9, "the cat"], "other": ["x", "y"]})


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    """Keeps keys in memory, unwrapped: the files are for tests."""

    def __init__(self, _: object) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: str, _: str) -> bytes:
        return base64.b64decode(key)


def write_encrypted(path: Path, columns: list[str], has_plain_footer: bool, table: pa.Table = TABLE) -> None:
    kept = encryption.EncryptionConfiguration(
        footer_key="footer",
        column_keys={"column": columns},
        plaintext_footer=has_plain_footer,
        data_key_length_bits=128,
    )
    factory = encryption.CryptoFactory(_Keys)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), kept)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def error_of(path: Path) -> CorpusError:
    (shard,) = find_shards(path.parent, path.name)
    with pytest.raises(CorpusError) as raised:
        list(read_batches(shard, Reading("text", "id", None)))
    assert path.name in str(raised.value)
    return raised.value


def write_damaged_page(path: Path) -> None:
    pq.write_table(
        TABLE, path, compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    content = path.read_bytes()
    path.write_bytes(content.replace(b"abcdefghabcdefgh", b"abcdefghXbcdefgh", 1))
    assert pq.read_table(path)["text"][0].as_py() != TABLE["text"][0].as_py()
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


def test_a_page_with_a_wrong_checksum_is_damage_in_documents_and_in_tables(tmp_path: Path) -> None:
    write_damaged_page(tmp_path / "a.parquet")
    error = error_of(tmp_path / "a.parquet")
    assert isinstance(error, DamagedError) and error.code == "TM202"
    with pytest.raises(OSError, match="CRC"):
        read_table(tmp_path / "a.parquet")


def write_other_name(path: Path, n_left: int) -> None:
    """A file whose footer names a column in bytes that are not UTF-8. The first `n_left` places with the name keep it."""
    pq.write_table(TABLE.rename_columns(["id", "text", "spare"]), path, store_schema=False)
    parts = path.read_bytes().split(b"spare")
    assert len(parts) == 3
    path.write_bytes((b"spare" if n_left else b"sp\xffre").join(parts[:2]) + b"sp\xffre" + parts[2])


def test_the_name_of_a_column_that_is_no_utf_8_is_damage_in_documents_and_in_tables(tmp_path: Path) -> None:
    write_other_name(tmp_path / "a.parquet", 0)
    assert isinstance(error_of(tmp_path / "a.parquet"), DamagedError)
    with pytest.raises(pa.ArrowInvalid, match="UTF-8"):
        read_table(tmp_path / "a.parquet")


def test_the_name_of_a_column_counts_that_is_in_the_schema_and_not_that_in_a_row_group(tmp_path: Path) -> None:
    write_other_name(tmp_path / "a.parquet", 1)
    (shard,) = find_shards(tmp_path, "a.parquet")
    (batch,) = read_batches(shard, Reading("text", "id", None), limits=Limits(1000, 1000))
    assert batch.texts.to_pylist() == TABLE["text"].to_pylist()


def test_a_page_whose_number_of_values_is_no_integer_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="none", use_dictionary=False, write_statistics=False)
    start = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    at = content.index(
        b"\x2c\x15\x04", start
    )  # the header of a data page, and in it the number of values as an int32: 2
    content[at + 1] = 0x11  # a truth value
    path.write_bytes(content)
    (shard,) = find_shards(tmp_path, "a.parquet")
    with pytest.raises(DamagedError):
        list(read_batches(shard, Reading("text", "id", None), limits=Limits(1000, 1000)))


def test_every_module_opens_parquet_files_where_checksums_are_checked() -> None:
    found = []
    reader = REPOSITORY / "reader/tokenmill_reader"
    for path in [*(REPOSITORY / "tokenmill").rglob("*.py"), *reader.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if isinstance(of, ast.Name) and of.id == "pq" and node.func.attr in ("ParquetFile", "read_table"):
                    found.append(path.relative_to(REPOSITORY).as_posix())
    assert sorted(found) == ["reader/tokenmill_reader/checked_parquet.py"] * 2


@pytest.mark.parametrize("has_plain_footer", [False, True])
@pytest.mark.parametrize("columns", [["text"], ["other", "id"]])
def test_an_encrypted_file_is_named_as_one_and_no_damage(
    tmp_path: Path, columns: list[str], has_plain_footer: bool
) -> None:
    path = tmp_path / "a.parquet"
    write_encrypted(path, columns, has_plain_footer)
    error = error_of(path)
    assert isinstance(error, EncryptedError) and error.code == "TM213"
    assert "is encrypted" in str(error) or "are encrypted" in str(error)
    assert all((name in str(error)) == has_plain_footer for name in columns)
    with pytest.raises(EncryptedError):  # the file is cut into units before it is read
        cut(find_shards(tmp_path, "a.parquet"), Digests(tmp_path), 0, 1, 1)


def test_an_encrypted_list_of_documents_to_leave_out_is_named_as_one(tmp_path: Path) -> None:
    write_encrypted(tmp_path / "drop.parquet", ["reason"], True, pa.table({"id": ["a"], "reason": ["asked for"]}))
    with pytest.raises(EncryptedError, match=r"drop\.parquet: the column reason is encrypted"):
        DropList.read(tmp_path, "drop.parquet", has_ids=True)


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow"])
@pytest.mark.parametrize(("content", "command"), [(LFS, "git lfs pull"), (ANNEX, "git annex get")])
def test_a_pointer_to_a_file_is_no_document_whatever_its_suffix(
    tmp_path: Path, suffix: str, content: str, command: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text(content)
    error = error_of(path)
    assert isinstance(error, PointerError) and f"`{command}`" in str(error)
    with pytest.raises(PointerError):
        cut(find_shards(tmp_path, path.name), Digests(tmp_path), 0, 1000, 1)


@pytest.mark.parametrize("text", [LFS + "and more", "See " + LFS, "/annex/objects/a\nand more"])
def test_a_text_about_pointers_is_a_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    (shard,) = find_shards(tmp_path, "a.txt")
    assert [one.texts.to_pylist() for one in read_batches(shard, Reading("text", None, None))] == [[text]]


def test_a_build_and_doctor_name_a_pointer_though_damaged_files_are_left_out(project: Project) -> None:
    project.set(source__on_bad_shard="quarantine")
    (project.root / "data/raw/c.txt").write_text(LFS)
    done = project.cli("build")
    assert done.returncode == 2 and "error[TM214]" in done.stderr and "git lfs pull" in done.stderr
    assert "git lfs pull" in findings(project, 1)["text"]["found"]


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.tiktoken", "tokenizer_config.json"])
def test_a_pointer_in_the_place_of_a_tokenizer_file_is_named(tmp_path: Path, name: str) -> None:
    if name == "tokenizer_config.json":
        trained(["the cat"], vocab_size=257).save(tmp_path)
    (tmp_path / name).write_text(LFS)
    with pytest.raises(TokenizerError, match="is a pointer of Git LFS") as raised:
        Tokenizer.load(
            tmp_path if name.endswith("json") else tmp_path / name, pattern="gpt2" if "tik" in name else None
        )
    assert raised.value.code == "TM214"


def test_a_dvc_file_without_its_data_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "a.jsonl.dvc").write_text("outs: []\n")
    for glob in ("*", "a.*", "**/*.jsonl.gz"):
        (tmp_path / "c.jsonl.gz.dvc").write_text("outs: []\n")
        with pytest.raises(PointerError, match=r"\.dvc: .* run `dvc pull`"):
            find_shards(tmp_path, glob)
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "c.jsonl.gz").touch()
    assert len(find_shards(tmp_path, "*")) == 3


def test_a_broken_link_of_git_annex_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to(".git/annex/objects/xx/yy/SHA256E-s1--00.jsonl/SHA256E-s1--00.jsonl")
    with pytest.raises(CorpusError, match="git annex get"):
        find_shards(tmp_path, "*")


@pytest.mark.parametrize("log", [28, 31])
def test_a_large_zstd_window_is_read_within_the_memory_or_named_and_no_damage(tmp_path: Path, log: int) -> None:
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
    ).compressobj()
    lines = b'{"id": "a", "text": "the cat"}\n' * 1000
    whole = compressor.compress(lines) + compressor.flush()
    path = tmp_path / "a.jsonl.zst"

    def texts(limits: Limits = UNBOUNDED) -> list[str]:
        (shard,) = find_shards(tmp_path, path.name)
        found = read_batches(shard, Reading("text", "id", None), limits=limits)
        return [text for batch in found for text in batch.texts.to_pylist()]

    path.write_bytes(whole)
    assert texts() == ["the cat"] * 1000
    path.write_bytes(whole + zstandard.compress(lines))
    assert texts() == ["the cat"] * 2000
    with pytest.raises(CorpusError) as raised:
        texts(Limits(document_bytes_max=None, block_bytes_max=(1 << log) // 4))
    assert not isinstance(raised.value, DamagedError) and raised.value.code == "TM206"
    assert f"{(1 << log) / 1e6:,.0f} MB" in str(raised.value) and f"zstd -dc --long={log}" in str(raised.value)
    path.write_bytes(zstandard.compress(lines) + whole)
    with pytest.raises(CorpusError, match="has a larger window than the first"):
        texts()
    path.write_bytes(whole[:-9])
    with pytest.raises(DamagedError, match="truncated"):
        texts()
    path.write_bytes(whole + b"more")
    with pytest.raises(DamagedError):
        texts()


def test_a_later_zstd_frame_is_held_to_the_memory_as_well(tmp_path: Path) -> None:
    def frame(log: int) -> bytes:
        asked = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
        compressor = zstandard.ZstdCompressor(compression_params=asked).compressobj()
        return bytes(compressor.compress(b'{"id": "a", "text": "the cat"}\n') + compressor.flush())

    path = tmp_path / "a.jsonl.zst"
    limits = Limits(document_bytes_max=None, block_bytes_max=1 << 28)
    path.write_bytes(frame(28) + frame(28))
    (shard,) = find_shards(tmp_path, path.name)
    assert sum(len(batch.texts) for batch in read_batches(shard, Reading("text", "id", None), limits=limits)) == 2
    path.write_bytes(frame(28) + frame(30))
    with pytest.raises(CorpusError, match="has a larger window than the first") as raised:
        list(read_batches(find_shards(tmp_path, path.name)[0], Reading("text", "id", None), limits=limits))
    assert raised.value.code == "TM206"


def test_a_zstd_bomb_with_a_large_window_is_decompressed_in_small_pieces() -> None:
    n_bytes = 1 << 28
    asked = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=asked).compressobj()
    bomb = compressor.compress(bytes(n_bytes)) + compressor.flush()
    stream = decompressed(pa.BufferReader(bomb), ".zst", None, "bomb.zst")
    tracemalloc.start()
    try:
        assert sum(map(len, iter(lambda: stream.read(1 << 16), b""))) == n_bytes
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_the_window_of_a_frame_is_what_zstandard_says() -> None:
    for log in (10, 17, 27, 31):
        for n_bytes in (0, 1, 255, 256, 700, 70_000):
            for is_known in (True, False):
                asked = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=is_known)
                frame = zstandard.ZstdCompressor(compression_params=asked).compress(bytes(n_bytes))
                expected = zstandard.get_frame_parameters(frame).window_size
                assert window_bytes(frame[:HEADER_BYTES_MAX]) == expected
