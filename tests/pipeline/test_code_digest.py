"""dvc.yaml says what the stages depend on and is safe to run; the code of a room makes its stages stale and no others."""

import ast
import importlib
import inspect
import json
import shutil
import tomllib
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.conftest import REPOSITORY, Project
from tokenmill.layout import DOCUMENT_STAGES
from tokenmill.pipeline.code_digest import AFTER_UNITS, MODULES, READER, ROOMS, code_digest, output_digest, unit_modules
from tokenmill.pipeline.normal_form import normal_form
from tokenmill.project.parameters import keys, sections

PACKAGE = REPOSITORY / "tokenmill"
LOCK = "tokenmill.lock"  # what it pins is data
CORE = {"core/src", "core/Cargo.toml", "core/Cargo.lock"}
STAGES = YAML(typ="safe", pure=True).load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
READER_PACKAGE = REPOSITORY / "tokenmill_reader"
DECIDING = {
    room for rooms in ROOMS.values() for room in rooms if not room.startswith("features/")
}  # no stage imports these
PACKAGES = ("tokenmill", "tokenmill_reader")
FURTHER_CODE = b"\nFURTHER = 1\n"
PROSE = b'\n# a comment\n"""A text that nobody reads."""\n'


@cache
def imported(module: Path) -> set[Path]:
    """The project's modules that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    paths = {REPOSITORY / (name.replace(".", "/") + ".py") for name in names if name.split(".")[0] in PACKAGES}
    return {path for path in paths if path.is_file()}


def rooms_imported(module: Path, package: Path) -> set[str]:
    """The rooms and modules of a package that a module imports, and that those import."""
    found: set[Path] = set()
    waiting = {module}
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= imported(path) - found
    return {path.relative_to(package).parts[0] for path in found if path.is_relative_to(package)}


def module_of(stage: str) -> str:
    return f"stages/{stage.replace('-', '_')}.py"


def modules_of(stage: str) -> set[str]:
    further = {
        "count": {"stages/count_groups.py", "stages/count_sums.py", "stages/count_units.py"},
        "train-vocab": {
            f"stages/train_vocab_{name}.py" for name in ("learn", "parity", "report", "superwords", "trim")
        },
        "encode": {f"stages/encode_{name}.py" for name in ("chat", "dataset", "manifest", "sets", "units")}
        | {"stages/encoder.py"},
    }
    return {module_of(stage), "config/conversation_template.py"} | further.get(stage, set())


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_every_room_that_it_imports_and_that_decides_bytes(stage: str) -> None:
    assert (
        rooms_imported(PACKAGE / module_of(stage), PACKAGE) & DECIDING
        == {*ROOMS[stage], *AFTER_UNITS.get(stage, ())} & DECIDING
    )
    named = {dep for dep in STAGES[stage]["deps"] if not dep.startswith("data/") and dep != LOCK}
    rooms = [*ROOMS[stage], *AFTER_UNITS.get(stage, ()), *modules_of(stage)]
    of_reader = {f"reader/tokenmill_reader/{name}" for name in READER[stage]}
    assert named == {f"tokenmill/{room}" for room in rooms} | of_reader | CORE


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_what_it_imports_of_the_reader_and_decides_bytes(stage: str) -> None:
    deciding = {name for names in READER.values() for name in names}
    assert rooms_imported(PACKAGE / module_of(stage), READER_PACKAGE) & deciding == set(READER[stage])


def test_code_changed_in_the_reader_changes_the_digest_of_the_stages_that_share_it(package: Path) -> None:
    before = {stage: code_digest.__wrapped__(stage, package) for stage in STAGES}
    for name, stages in {
        "formats/olmo.py": {"encode", "validate"},
        "order.py": {"encode", "validate"},
        "thrift.py": set(STAGES),
        "token_dataset.py": set(),
    }.items():
        path = package.parent / "tokenmill_reader" / name
        ours = path.read_bytes()
        path.write_bytes(ours + FURTHER_CODE)
        assert {stage for stage in STAGES if code_digest.__wrapped__(stage, package) != before[stage]} == stages
        path.write_bytes(ours)


def test_the_code_of_config_that_a_room_which_decides_bytes_calls_is_in_the_digest(package: Path) -> None:
    called = set()
    for module in (path for room in DECIDING for path in (PACKAGE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokenmill.config"):
                found = importlib.import_module(str(node.module))
                values = [getattr(found, alias.name) for alias in node.names]
                if any(inspect.isfunction(one) or isinstance(one, tuple | str | int) for one in values):
                    called.add(f"{str(node.module).removeprefix('tokenmill.').replace('.', '/')}.py")
    assert called == {"config/conversation_template.py"}
    before = {stage: code_digest.__wrapped__(stage, package) for stage in STAGES}
    path = package / "config/conversation_template.py"
    ours = path.read_bytes()
    path.write_bytes(ours.replace(b'"system", "developer", "user"', b'"developer", "system", "user"'))
    after = {stage: code_digest.__wrapped__(stage, package) for stage in STAGES}
    path.write_bytes(ours)
    assert all(after[stage] != before[stage] for stage in ("count", "train-vocab", "encode", "validate"))


@pytest.mark.parametrize("library", ["pyarrow", "jinja2", "msgspec"])
def test_another_version_of_a_library_that_decides_bytes_changes_every_digest(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {stage: code_digest.__wrapped__(stage) for stage in STAGES}
    (tmp_path / f"{library}-99.dist-info").mkdir()
    (tmp_path / f"{library}-99.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 99\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert all(code_digest.__wrapped__(stage) != before[stage] for stage in STAGES)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with one of the reader beside it."""
    copy = tmp_path_factory.mktemp("copy") / "tokenmill"
    for one in (PACKAGE, READER_PACKAGE):
        shutil.copytree(one, copy.parent / one.name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def before(package: Path) -> dict[str, str]:
    """The digest of each stage over that copy, which are those of the package itself."""
    digests = {stage: code_digest.__wrapped__(stage, package) for stage in STAGES}
    assert digests == {stage: code_digest(stage) for stage in STAGES}
    return digests


CODE = {
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*")
    if path.suffix == ".py" or path.parent.name == "templates" or path.name == "transformers_classes.json"
}
ONE_OF_EACH_ROOM = {path.split("/")[0]: path for path in sorted(CODE)}


def stages_of(path: str) -> set[str]:
    """The stages that a file of the package decides."""
    rooms = {stage: tuple(f"{room}/" for room in ROOMS[stage]) for stage in STAGES}
    return {stage for stage in STAGES if path.startswith(rooms[stage]) or path in {*ROOMS[stage], *modules_of(stage)}}


def test_the_units_of_a_stage_are_made_by_the_files_of_its_rooms_and_no_others() -> None:
    found = {stage: {path.relative_to(PACKAGE).as_posix() for path in of_package(stage)} for stage in STAGES}
    assert {path: {stage for stage in STAGES if path in found[stage]} for path in CODE} == {
        path: stages_of(path) for path in CODE
    }


def of_package(stage: str) -> list[Path]:
    return [path for path in unit_modules(stage) if path.is_relative_to(PACKAGE)]


@pytest.mark.parametrize(
    "path", [*ONE_OF_EACH_ROOM.values(), *sorted({*MODULES} | {module_of(stage) for stage in STAGES})]
)
def test_code_changed_in_a_file_changes_the_digest_of_its_stages_and_no_others(
    package: Path, before: dict[str, str], path: str
) -> None:
    ours = (package / path).read_bytes()
    (package / path).write_bytes(ours + FURTHER_CODE)
    changed = {stage for stage in STAGES if code_digest.__wrapped__(stage, package) != before[stage]}
    (package / path).write_bytes(ours)
    assert changed == stages_of(path)


def test_code_changed_in_the_report_makes_validate_stale_and_leaves_its_units_as_they_are(package: Path) -> None:
    path = package / "report/measures.py"
    digests = (code_digest.__wrapped__, output_digest.__wrapped__)
    before = [{stage: digest(stage, package) for stage in STAGES} for digest in digests]
    ours = path.read_bytes()
    path.write_bytes(ours + FURTHER_CODE)
    after = [{stage: digest(stage, package) for stage in STAGES} for digest in digests]
    path.write_bytes(ours)
    assert after[0] == before[0]
    assert {stage for stage in STAGES if after[1][stage] != before[1][stage]} == {"validate"}


def test_prose_changed_in_every_file_changes_no_digest(package: Path) -> None:
    before = {stage: output_digest.__wrapped__(stage, package) for stage in STAGES}
    modules = {path: path.read_bytes() for path in package.rglob("*.py")}
    for path, ours in modules.items():
        path.write_bytes(ours + PROSE)
    after = {stage: output_digest.__wrapped__(stage, package) for stage in STAGES}
    for path, ours in modules.items():
        path.write_bytes(ours)
    assert after == before


def test_a_module_that_moves_changes_no_digest(package: Path, before: dict[str, str]) -> None:
    def digests() -> dict[str, str]:
        return {stage: code_digest.__wrapped__(stage, package) for stage in STAGES}

    users = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    for path, text in users.items():
        path.write_text(
            text.replace("tokenmill.counts.table import", "tokenmill.counts.below.table import"), encoding="utf-8"
        )
    (package / "counts/below").mkdir()
    (package / "counts/table.py").rename(package / "counts/below/table.py")
    assert digests() == before
    (package / "counts/below/table.py").rename(package / "counts/table.py")
    (package / "counts/below").rmdir()
    for path, text in users.items():
        path.write_text(text, encoding="utf-8")
    assert digests() == before


@pytest.mark.parametrize("name", ["chat/templates/chatml.jinja", "features/conform/program/consumers/kitoken.py"])
def test_a_file_that_is_found_by_its_name_decides_by_it(package: Path, name: str) -> None:
    before = {stage: output_digest.__wrapped__(stage, package) for stage in STAGES}
    path = package / name
    other = path.with_stem("other")
    path.rename(other)
    assert output_digest.__wrapped__("train-vocab", package) != before["train-vocab"]
    other.rename(path)


def test_the_normal_form_of_code_has_no_prose_and_is_the_same_in_every_python() -> None:
    plain = "class A:\n    n: int = 1\n    def twice(self, by): return f'{self.n * by:>3}'\n"
    mended = (
        '"""What A is."""\n\nclass A:\n    """One."""\n\n    n: int = 1\n    """Its number."""\n\n'
        "    def twice(self, by: int) -> str:\n        'Twice it.'\n        # why\n        return (f\"{self.n * by:>3}\")\n"
    )
    assert normal_form(mended) == normal_form(plain)
    for other in (("int", "float"), ("= 1", "= 2"), ("twice", "double"), (">3", ">4"), ("return ", "")):
        assert normal_form(plain.replace(*other)) != normal_form(plain), other
    same = "from tokenmill_reader.other.a import c\nfrom tokenmill.x.a import b\nb(c)"
    assert normal_form("from tokenmill.a import b, c\nb(c)") == normal_form(same)
    for other_import in (
        "from json import b, c",
        "from tokenmill.a import e as b, c",
        "from tokenmill.d import b, c",
        "",
    ):
        assert normal_form(f"{other_import}\nb(c)") != normal_form(same), other_import
    assert normal_form("def f(n: int): n += 1") == (
        "Module ( body= [ FunctionDef ( name= 'f' args= arguments ( args= [ arg ( arg= 'n' ) ] ) body= [ AugAssign ( "
        "target= Name ( id= 'n' ctx= Store ( ) ) op= Add ( ) value= Constant ( value= 1 ) ) ] ) ] )"
    )


def test_digests_that_were_kept_are_those_that_are_found_anew_and_damaged_ones_are_replaced(package: Path) -> None:
    [kept] = (package / "__pycache__").glob("normal_forms.*")
    ours = kept.read_bytes()
    for damaged in (b"", ours[: len(ours) // 2], b"\xff\x00", ours.replace(b" ", b"  "), ours.replace(b"\n", b"0\n")):
        kept.write_bytes(damaged)
        assert code_digest.__wrapped__("encode", package) == code_digest("encode")
        assert kept.read_bytes() != damaged
    kept.unlink()
    kept.mkdir()  # cannot be written
    assert code_digest.__wrapped__("encode", package) == code_digest("encode")
    kept.rmdir()


@pytest.mark.slow
def test_code_changed_in_a_room_that_decides_bytes_redoes_the_units_of_its_stages_and_no_others(
    project: Project, tmp_path: Path
) -> None:
    package = tmp_path / "changed" / "tokenmill"
    for one in (PACKAGE, READER_PACKAGE):
        shutil.copytree(one, package.parent / one.name, ignore=shutil.ignore_patterns("__pycache__"))

    def done_anew() -> dict[str, bool]:
        """Builds, having every stage run, and says of which some unit was not finished before."""
        project.set(
            source__unit_bytes_min=project_settings.pop()
        )  # which makes all stages stale and cuts the same units
        done = project.build(PYTHONPATH=str(package.parent))
        finished = [line.split(":")[0] for line in done.stderr.splitlines() if "0 of 2 units to do" in line]
        return {stage: stage not in finished for stage in ("count", "encode", "validate")}

    project_settings = list(range(1, 9))
    assert all(done_anew().values())
    assert not any(done_anew().values())
    no_units = ("storage/atomic.py", "report/measures.py", "pipeline/run.py")
    for paths, stages in {
        ("pretokenizers/patterns.py",): {"count", "encode", "validate"},
        ("formats/tokens.py",): {"encode", "validate"},
        ("stages/validate.py",): {"validate"},
        no_units: set(),
    }.items():
        for path in paths:
            with (package / path).open("ab") as file:
                file.write(FURTHER_CODE)
        assert {stage for stage, anew in done_anew().items() if anew} == stages, paths
    for path in (path for room in (*DECIDING, "stages") for path in (package / room).rglob("*.py")):
        with path.open("ab") as file:
            file.write(PROSE)
    assert not any(done_anew().values())


@pytest.mark.parametrize("stage", STAGES)
def test_a_command_is_a_constant(stage: str) -> None:
    assert STAGES[stage]["cmd"] == f"tokenmill build --only {stage}"


def test_no_parameter_has_a_name_that_dvc_leaves_out_of_its_run_cache() -> None:
    """DVC drops `size` and `nfiles` from the key (treeverse/dvc#10296), and restores stale outputs."""
    assert not {part for name in keys() for part in name.split(".")} & {"size", "nfiles"}


def test_every_parameter_that_decides_bytes_is_tracked() -> None:
    tracked = {name for stage in STAGES.values() for name in stage["params"] if "." not in name}
    assert tracked == set(sections()) - {"run", "refresh", "publish"}
    assert "publish.license" in STAGES["train-vocab"]["params"]


def test_a_new_project_has_the_keys_that_dvc_yaml_names() -> None:
    """DVC runs no stage of which params.yaml lacks a key."""
    params = YAML(typ="safe", pure=True).load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    for section, _, key in (name.partition(".") for stage in STAGES.values() for name in stage["params"]):
        assert section in params and (not key or key in params[section]), f"{section}.{key}"


def test_the_stages_that_read_the_documents_are_those_that_the_readme_of_the_data_names() -> None:
    assert {name for name, stage in STAGES.items() if "data/raw" in stage["deps"]} == set(DOCUMENT_STAGES)
    text = " ".join((REPOSITORY / "data/README.md").read_text(encoding="utf-8").split())
    assert "replace `data/raw` with their folder in the `deps` of `count`, `encode` and `validate`" in text


def test_dvc_yaml_is_short_and_says_what_each_stage_does() -> None:
    assert len((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8").splitlines()) <= 80
    assert all(stage["desc"] for stage in STAGES.values())
    assert json.dumps(STAGES)  # plain data


def test_a_release_changes_no_byte_of_the_core() -> None:
    """The digest of the core has its Cargo.toml, so a version there would redo every unit with each release."""
    package = tomllib.loads((REPOSITORY / "core/Cargo.toml").read_text(encoding="utf-8"))["package"]
    locked = tomllib.loads((REPOSITORY / "core/Cargo.lock").read_text(encoding="utf-8"))["package"]
    assert "version" not in package and package["publish"] is False
    assert [one["version"] for one in locked if one["name"] == package["name"]] == ["0.0.0"]
