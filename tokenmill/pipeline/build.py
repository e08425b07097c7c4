"""One build of one project: each stage is skipped, restored, or run and recorded."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from tokenmill.config.load_params import load_params
from tokenmill.config.params import Params
from tokenmill.console import console, say, say_more
from tokenmill.corpus.shards import Shard
from tokenmill.corpus.source_shards import reads_objects
from tokenmill.corpus.units import Unit, cut, md5_of_file
from tokenmill.errors import CorpusError, ParamsError
from tokenmill.layout import (
    DOCUMENT_STAGES,
    OUTPUT_DIRECTORIES,
    PARAMS_FILE,
    STAGES,
)
from tokenmill.pipeline.alone import alone as alone  # the flows of projects import it from here
from tokenmill.pipeline.alone import under_dvc
from tokenmill.pipeline.arrivals import BuildShards, find_shards_now
from tokenmill.pipeline.causes import FORCED, Cause, UnitCauses, as_words, causes_of, outputs_of
from tokenmill.pipeline.dvc_sight import refuse_unseen
from tokenmill.pipeline.input_changes import changes_since, earlier_inputs, input_changes, last_manifest
from tokenmill.pipeline.memory import Memory, divide, peak_mb, reset_peak
from tokenmill.pipeline.object_list import check_object_list, write_object_list
from tokenmill.pipeline.own_step import naming_step, outputs_aside, refuse_foreign_files
from tokenmill.pipeline.pools import Pool
from tokenmill.pipeline.project import Project
from tokenmill.pipeline.run import Driver
from tokenmill.pipeline.stage_order import stages_of
from tokenmill.process_memory import give_memory_back
from tokenmill.rounds import Stage
from tokenmill.storage.file_facts import Digests
from tokenmill.storage.unit_store import UnitStore
from tokenmill.storage.writable import check_writable
from tokenmill.summary import StageSummary
from tokenmill.versioning import dvc_stage
from tokenmill.versioning.dvc_files import Known

_N_CHANGED_SHOWN = 5


@dataclass(frozen=True)
class Build:
    """The options of a build and the results of its stages so far. `only`: one stage, or None for all. `force`: redo stages
    and units that are up to date. `rehash`: hash files again even if they seem unchanged. `code_changes`: what changed of the
    stages' code since tokenmill.lock pinned it. `checked`: the names of checks that need not be made again."""

    root: Path
    params: Params
    only: str | None
    force: bool
    rehash: bool
    code_changes: Mapping[str, Cause] = field(default_factory=dict)
    summaries: list[StageSummary] = field(default_factory=list)
    checked: set[str] = field(default_factory=set)
    _causes: dict[str, list[Cause]] = field(default_factory=dict, init=False)
    _files: dict[str, str] = field(
        default_factory=dict, init=False
    )  # how the documents changed, by stage (count or encode)

    @property
    def stages(self) -> tuple[str, ...]:
        """The requested stages, in order."""
        return self.all_stages if self.only is None else (self.only,)

    @property
    def all_stages(self) -> tuple[str, ...]:
        """All stages of dvc.yaml, tokenmill's four and the project's own, each after the stages whose outputs it reads."""
        return tuple(self._before)

    @cached_property
    def _before(self) -> dict[str, list[str]]:
        return stages_of(self.root)

    @property
    def workers(self) -> int:
        """The number of units that run at the same time."""
        return self.memory.workers

    @cached_property
    def memory(self) -> Memory:
        """The memory of each worker. Raises ParamsError if it would be too little."""
        return divide(self.params.run, reads_objects(self.params))

    @cached_property
    def project(self) -> Project:
        """The values that its stages share. The documents are cut into units on first access. Raises CorpusError or Stopped."""
        source, threads = self.params.source, self.memory.own_threads
        corpus = cut(self.shards, self.digests, source.unit_bytes_min, source.unit_bytes_max, threads)
        recorded = partial(dvc_stage.recorded_files, self.root)
        return Project(self.root, self.params, corpus, self.memory, self.digests, self.store, self.force, recorded)

    @cached_property
    def digests(self) -> Digests:
        """The facts about the project's files."""
        return Digests(self.root, trust=not self.rehash)

    def driver(self) -> Driver:
        """What runs the tasks of a stage."""
        return Driver(self.root, self.store, self.force, self.params.run.unit_timeout_s, self._cause_of)

    def _cause_of(self, stage: str, unit: Unit) -> str | None:
        """Why a unit is worked on again; None without --verbose or without an earlier dataset."""
        return None if self._unit_causes is None else self._unit_causes.of(stage, unit)

    @cached_property
    def _unit_causes(self) -> UnitCauses | None:
        """The causes, from the dataset that is there on first access, before `encode` replaces it."""
        manifest = last_manifest(self.root) if console.level >= 1 else None
        if manifest is None:
            return None
        sha256 = self.project.corpus.sha256
        inputs = changes_since(manifest, self.shards, lambda _: sha256)
        return UnitCauses(self.root, inputs, outputs_of(manifest if self.only is None else None), self._causes)

    def _told(self, stage: dvc_stage.DvcStage, name: str) -> list[str]:
        """Says why the stage has to run, one text per cause; empty without --verbose."""
        if console.level < 1:
            return []
        of_code = self.code_changes.get(name)
        self._causes[name] = causes_of(
            name, stage.changes(), self.root, self.params, of_code, partial(self._documents_in, name)
        )
        return as_words([FORCED] if self.force else self._causes[name])

    def _documents_in(self, stage: str, path: Path) -> str | None:
        """Says how the documents below an input changed; None if it holds no documents or none changed."""
        if not any(isinstance(shard.path, Path) and shard.path.is_relative_to(path) for shard in self.shards):
            return None
        of = "count" if stage == "count" else "encode"  # validate's files are those of encode
        if of not in self._files:
            earlier = earlier_inputs(self.root, stage)
            self._files[of] = str(input_changes(earlier, self.shards, lambda _: self.project.corpus.sha256))
        return self._files[of] or None

    @cached_property
    def store(self) -> UnitStore:
        """The store of finished units."""
        return UnitStore(self.root, trust=not self.rehash)

    @cached_property
    def _inputs(self) -> BuildShards:
        return find_shards_now(self.root, self.params)

    @property
    def shards(self) -> list[Shard]:
        """The shards, listed on first access, which is when the first stage begins. Raises CorpusError."""
        return self._inputs.shards

    @cached_property
    def known(self) -> Known:
        """What DVC found at paths since the last stage ran, so that it need not look again."""
        return {}

    def finished(self) -> list[StageSummary]:
        """The result of each stage. Stages of dvc.yaml that the project's flow did not call are settled first.

        Raises what `stage` raises."""
        self._settle_uncalled(self.stages)
        is_new = any(summary.action != "up to date" for summary in self.summaries)
        if is_new and not under_dvc() and "_inputs" in self.__dict__ and (new := self._inputs.new()):
            say(
                f"files that arrived while the build ran: {len(new):,}, such as {new[0].name}. The next build reads them"
            )
        if self.params.run.report_page and "validate" in self.stages:
            self._write_page(is_new)
        return self.summaries

    def _write_page(self, is_new: bool) -> None:
        from tokenmill.report.page import is_current, write_page

        if is_new or not is_current(self.root):
            from tokenmill.pipeline.last_plan import outcome_shown  # imports pyarrow
            from tokenmill.versioning.published_report import published_report

            planned = outcome_shown(self.root, self.summaries)
            write_page(self.root, self.summaries, planned, published_report(self.root))

    def stage(
        self, name: str, work: Callable[["Build"], Stage | StageSummary | None], pool: Pool | None = None
    ) -> None:
        """Brings the outputs of a stage up to date: it is skipped, restored from DVC's run cache, or run and recorded.

        `work` makes the outputs, or gives a generator of rounds of tasks, which run in `pool`. Outputs of a project's own stage are
        not there when it begins, as DVC does it. Raises VersionsError for a stage that is not in dvc.yaml, ParamsError if an
        earlier stage should have run but did not, and what `work` and its tasks raise.
        """
        if self.only not in (None, name) or self._is_done(name):
            return
        with ExitStack() as recording:
            settled = self._settle_or_record(name, recording)
            if settled is None:
                with self._checked(name), self._naming(name):
                    start_s, made = time.monotonic(), work(self)
                    if isinstance(made, Generator):
                        assert pool is not None
                        driver = self.driver()
                        made = driver.run(made, pool)
                        made = replace(made, done_mb=made.file_mb and driver.done_bytes[name] / 1e6)
                    seconds, peak = time.monotonic() - start_s, peak_mb()
                    settled = replace(made or StageSummary(name, "run"), seconds=seconds, peak_mb=peak)
        self.summaries.append(settled)
        if not under_dvc() and name == self.stages[-1] and settled.action == "run":
            self.store.clean(int(self.params.run.store_gb_max * 1e9))

    def _settle_or_record(self, name: str, recording: ExitStack) -> StageSummary | None:
        """The result for a stage that need not run. None if it has to run: then the end of `recording` records it with DVC."""
        if under_dvc():
            if name in DOCUMENT_STAGES:
                check_object_list(self.root, self.shards)
            return None
        if self.only is None:
            self._settle_uncalled(self._before.get(name, ()))
        else:
            self._refuse_missing_inputs(name)
            self._warn_of_stale_inputs(name)
        self._list_objects(name)
        stage = recording.enter_context(self._opened(name))
        why = self._told(stage, name)  # before DVC puts the new inputs into the stage
        settled = None if self.force else self._settle(stage, name)
        if settled is None:
            say_more(f"{name}: to do: {'; '.join(why)}")
            if name not in STAGES:
                recording.enter_context(outputs_aside(stage, name))
            # `_checked` compares the shards before that ends.
            checked = self._shard_at.keys() if name in DOCUMENT_STAGES else frozenset[str]()
            recording.enter_context(stage.recording(checked))
        elif settled.action == "restored":
            say_more(f"{name}: restored: {'; '.join(why)}")
        return settled

    def _naming(self, name: str) -> AbstractContextManager[None]:
        """Names the step in errors of a project's own stage. Under `dvc repro` DVC has removed its previous output already."""
        return nullcontext() if name in STAGES or under_dvc() else naming_step(self.root, name)

    def _is_done(self, name: str) -> bool:
        return any(summary.stage == name for summary in self.summaries)

    def _settle_uncalled(self, names: Sequence[str]) -> None:
        """Settles stages of dvc.yaml that the flow did not call. Raises ParamsError for one that has to run."""
        for name in names:
            if self._is_done(name):
                continue
            self._list_objects(name)
            with self._opened(name) as stage:
                settled = self._settle(stage, name)
            if settled is None:
                when = "" if names is self.stages else " before the stages that follow"
                raise ParamsError(
                    "dvc.yaml",
                    f"stage {name} has to run, but nothing ran it{when}.",
                    "Call it in flows/build.py, after the stages whose outputs it reads.",
                    code="TM107",
                )
            self.summaries.append(settled)

    def settle_first(self) -> str | None:
        """Settles all stages before the first one that has to run. Gives the name of that one; None if no stage has to run."""
        for name in self.stages:
            self._list_objects(name)
            with self._opened(name) as stage:
                settled = None if self.force else self._settle(stage, name)
            if settled is None:
                return name
            self.summaries.append(settled)
        return None

    def _settle(self, stage: dvc_stage.DvcStage, name: str) -> StageSummary | None:
        """The result for a stage that need not run (up to date, frozen, or restored); None if it has to run.

        If someone wrote into an output that is a hard link, the unit store's file changed too, so damaged units are removed.
        """
        if name not in STAGES or "dvc.yaml" not in self.checked:
            refuse_unseen(self.root, self.params, self.shards if name in DOCUMENT_STAGES else (), stage, name)
        match stage.state():
            case "current":
                return StageSummary(name, "up to date")
            case "frozen":
                return StageSummary(name, "frozen")
            case "stale":
                if name in STAGES:
                    self.store.remove_damaged(stage.altered())
                else:
                    refuse_foreign_files(stage, name)
                return StageSummary(name, "restored") if stage.restore() else None

    def _opened(self, name: str) -> AbstractContextManager[dvc_stage.DvcStage]:
        """Opens a stage in DVC. Documents that DVC has to read are read once for its md5 and for the digests of their units."""
        md5_of = None
        if name in DOCUMENT_STAGES:
            unit_bytes_max = self.params.source.unit_bytes_max
            md5_of = partial(md5_of_file, shards=self._shard_at, digests=self.digests, unit_bytes_max=unit_bytes_max)
        return dvc_stage.opened(self.root, name, self.known, md5_of)

    @cached_property
    def _shard_at(self) -> dict[str, Shard]:
        """The shards on disk, by the path under which DVC finds them."""
        return {os.path.abspath(shard.path): shard for shard in self.shards if isinstance(shard.path, Path)}  # noqa: PTH100

    def _list_objects(self, name: str) -> None:
        """Before DVC looks at a stage that reads documents: lists those in object storage for it."""
        if name in DOCUMENT_STAGES:
            write_object_list(self.root, self.shards)

    def _refuse_missing_inputs(self, name: str) -> None:
        """Raises ParamsError if an input of this stage is missing because an earlier stage has not made it."""
        with dvc_stage.opened(self.root, name, self.known) as stage:
            missing = stage.missing()
        for earlier in self._before[name] if missing else ():
            with dvc_stage.opened(self.root, earlier, self.known) as stage:
                made = [path for path in missing if path in stage.outputs]
            if made:
                path = os.path.relpath(made[0], self.root)
                raise ParamsError(
                    f"--only {name}",
                    f"{self.root / path} is not there; stage {earlier} makes it, which must be built first.",
                    f"Run `tokenmill build`, which builds all that is needed, or `tokenmill build --only {earlier}`.",
                )

    def _warn_of_stale_inputs(self, name: str) -> None:
        for earlier in self._before[name]:
            with dvc_stage.opened(self.root, earlier, self.known) as stage:
                is_stale = stage.state() == "stale"
            if is_stale:
                say(
                    f"--only {name}: {earlier} is not up to date, but {name} uses its present outputs. `tokenmill build` brings "
                    "all stages up to date"
                )
                return

    @contextmanager
    def _checked(self, name: str) -> Iterator[None]:
        """Lets the block run a stage. Raises ParamsError or CorpusError if params.yaml or the shards changed since the build
        began."""
        self._check_params(name)
        self._check_folders()
        # train-vocab reads no documents, and a project's own stage may make them, so only some stages check the shards.
        inputs = self._inputs if name in DOCUMENT_STAGES else None
        give_memory_back()
        reset_peak()
        yield
        if inputs is not None and (changed := inputs.changed()):
            raise CorpusError(
                "",
                f"{', '.join(changed[:_N_CHANGED_SHOWN])} changed while the build ran; nothing was recorded of stage "
                f"{name}.",
                "Run `tokenmill build` again when nothing changes the inputs any more.",
                code="TM207",
            )
        self._check_params(name)

    def _check_folders(self) -> None:
        """Raises TokenmillError for an output folder of a requested stage that cannot be written to."""
        outputs = [self.root / folder for name in self.stages for folder in OUTPUT_DIRECTORIES.get(name, ())]
        check_writable([self.root, *(one for folder in outputs for one in (folder.parent, folder))])

    def _check_params(self, name: str) -> None:
        """Raises ParamsError if params.yaml changed since the build began."""
        how = {"run"}
        if load_params(self.root / PARAMS_FILE).model_dump(exclude=how) != self.params.model_dump(exclude=how):
            raise ParamsError(
                "",
                f"{self.root / PARAMS_FILE} changed while the build ran; nothing was recorded of stage {name}.",
                "Run `tokenmill build` again.",
                code="TM106",
            )
