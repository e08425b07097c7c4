# make demo and make test do all their own set-up; a second run installs and compiles nothing.
PYTHON ?= python3
BIN := .venv/bin
LOCK := --quiet --universal --python-version 3.11 --no-emit-index-url --generate-hashes --no-emit-package pip --custom-compile-command "make lock"
PIP = -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r
NO_PACKAGES = { tail -3 .venv/pip.log; echo "The packages could not be installed: without a network, connect to one or set PIP_INDEX_URL to a mirror, then run make again (full log: .venv/pip.log)."; exit 1; }
# uv installs in a tenth of pip's time. pip knows mirrors and certificates of its own settings, so it has the next try.
INSTALL = { $(BIN)/uv pip install --quiet --python $(1) --no-deps --require-hashes -r $(2) || $(1)/bin/python $(PIP) $(2); } >.venv/pip.log 2>&1 || $(NO_PACKAGES)
# No lock: the lowest versions stand in pyproject.toml, and the newest are those of the day.
RESOLVE = echo "installing packages into $< ..." && $(BIN)/uv pip install --quiet --python $< $(1) --extra dev -r pyproject.toml && . $</bin/activate && maturin develop --release --locked --quiet >$</core.log 2>&1
# Some tools ask for an older transformers or huggingface-hub, or for an older OLMo-core than a newer torch would allow.
NEWEST_TOOLS = printf '%s\n' 'transformers>=5' 'huggingface-hub>=1' 'ai2-olmo-core>=3' | $(BIN)/uv pip install --quiet --python .interop-newest-venv --upgrade --override /dev/stdin -r interop/requirements.in
# The core's tests compile in four fifths of the time without debugging information. In Cargo.toml this would change the core's digest.
export CARGO_PROFILE_DEV_DEBUG := false
# Where it is set, each process compiles all Python files again: two thirds of the time in which `tokenmill status` answers.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal --durations 10
# Compiles the core into tokenmill/, with further options $(1). pip takes a dozen seconds, so it installs the package only where pyproject.toml is newer.
# Both stamps go first: one that is there says which core is in tokenmill/.
COMPILE = rm -f .venv/.core .venv/.core-dev; . $(BIN)/activate && maturin develop $$(test $(BIN)/tokenmill -nt pyproject.toml && echo --skip-install) --release --locked --quiet $(1) >.venv/core.log 2>&1 || { tail -20 .venv/core.log; echo "The core could not be compiled (full log: .venv/core.log). Without a network its crates cannot be fetched: connect to one and run make again."; exit 1; }
# What core-dev changes in the release profile, for the core's crate alone. Its folder is another one, as in one folder each would make the other compile again.
# Without any optimization (opt-level=0) the tests take twice as long, and some run out of time; with 1 they take as long as with the release build.
CORE_DEV := --target-dir core/target/dev $(addprefix --config profile.release.package.tokenmill-core.,incremental=true codegen-units=256 opt-level=1)
CORE := $(shell find core/src -name '*.rs') core/Cargo.toml core/Cargo.lock core/build.rs pyproject.toml

.PHONY: help audit check demo fuzz snapshots test test-conform test-faults test-interop test-lowest test-memory test-newest test-slow test-storage test-surroundings test-wheel lint docs reader wheel setup core core-dev lock server bench bench-build bench-chat bench-clusters bench-count bench-encode bench-first bench-hard bench-plan bench-reader bench-remap bench-scale bench-second bench-sets bench-stage bench-storage bench-task bench-train bench-verify clean

help: ## what each target does
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1: \2/p' Makefile | awk -F': ' '{ printf "%-16s%s\n", $$1, substr($$0, length($$1) + 3) }'

demo: .venv/.core ## sample input, then the whole build
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/tokenmill build
	@echo "the tokenizer is in data/tokenizer, the dataset in data/tokens; docs/tutorial.md goes on with documents of your own."

check: .venv/.installed $(if $(wildcard .venv/.core-dev),.venv/.core-dev,.venv/.core) ## in a minute: the tests near a room, its pages, lint, types, layers (ROOM="chat formats"; without: what differs from main)
	@$(BIN)/python -m tests.check $(ROOM)

test: setup ## every quick test
	@$(PYTEST) -m "not slow"
	@$(BIN)/python -m pytest tests/test_budget.py

test-slow: setup ## the tests that take longer: whole builds, killed processes, clusters
	@$(PYTEST) -m slow
	@$(BIN)/python -m pytest tests/test_budget.py

test-surroundings: setup ## builds with proxies, variables, names and folders that libraries under us stumble over, in four minutes
	@$(PYTEST) tests/surroundings

test-memory: setup ## the memory of builds over all formats, columns, engines and limits (hours; CELLS="416 core": some)
	@$(BIN)/python -m tests.pipeline.test_memory_sweep $(CELLS)

snapshots: setup ## writes again what tokenizers, chat templates and builds give (tests/snapshots, tests/chat, tests/golden): review the changes in git
	@$(BIN)/python -m tests.snapshots.test_snapshots
	@$(BIN)/python -m tests.golden.test_golden
	@$(BIN)/python -m tests.chat.test_families

test-faults: setup ## builds under faults of the machine: killed, failing calls, full disk, bad inputs (hours; MODES="errors order": some)
	@$(BIN)/python -m tests.faults $(MODES)

fuzz: setup ## random, damaged files to whatever reads files of others, and random input to the core, 10 minutes each (SECONDS=60: one)
	@TRANSFORMERS_VERBOSITY=error $(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600)
	@TOKENMILL_FUZZ_SEED=$$(date +%s) TOKENMILL_FUZZ_SECONDS=$(or $(SECONDS),600) cargo test --manifest-path core/Cargo.toml --locked --quiet --lib fuzzed_

test-interop: setup $(if $(NEWEST),.interop-newest-venv,.interop-venv/.installed) ## file formats and recipes with the tools that read them (5 GB of packages; NEWEST=1: the newest)
	@$(if $(NEWEST),$(NEWEST_TOOLS))
	@PYTHONPATH="$(CURDIR)" .interop$(if $(NEWEST),-newest)-venv/bin/python -m pytest interop --ignore interop/test_conform.py --ignore interop/test_exchanged_ids.py --ignore interop/test_sentencepiece.py

test-conform: setup .conform-venv/.installed ## the ids of ten tokenizers in every library that `tokenmill conform` knows, and that a changed file is found
	@NEXT_TOKENIZERS="$(CURDIR)/.conform-venv/tokenizers-1.0" PYTHONPATH="$(CURDIR)" .conform-venv/bin/python -m pytest -s interop/test_conform.py interop/test_exchanged_ids.py interop/test_sentencepiece.py

test-lowest: .lowest-venv ## every quick test with the oldest packages that pyproject.toml allows, in .lowest-venv
	@$(BIN)/uv pip compile --quiet --no-deps --resolution lowest --extra hf --extra sign --extra storage pyproject.toml -o .lowest-venv/lowest.txt
	@$(call RESOLVE,--constraints .lowest-venv/lowest.txt)
	@.lowest-venv/bin/python -m pytest -n 3 --dist worksteal -m "not slow"

test-newest: .newest-venv ## every quick test with the newest ones, in .newest-venv (PRERELEASE=allow: pre-releases, too)
	@$(call RESOLVE,--upgrade --prerelease $(or $(PRERELEASE),if-necessary-or-explicit))
	@$(BIN)/uv pip install --quiet --target .newest-venv/tokenizers-1 --no-deps "tokenizers>=1.0.0rc3"
	@NEXT_TOKENIZERS=$(CURDIR)/.newest-venv/tokenizers-1 .newest-venv/bin/python -m pytest -n 3 --dist worksteal -m "not slow"

test-storage: setup .s3-server/bin/s3s-fs ## object storage, with a second S3 server (in Rust, compiled once)
	@$(BIN)/python -m pytest tests/storage tests/pipeline/test_object_storage.py tests/pipeline/test_hub.py

lint: setup ## format and lint of Python and Rust, wording of docstrings, types, licence texts, the core's documentation, and its own tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict tokenmill tokenmill_reader flows tasks
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m pytest -q tests/test_prose.py
	$(BIN)/stubtest --concise tokenmill._core
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/basedpyright --ignoreexternal --verifytypes tokenmill >.venv/verifytypes.log || { cat .venv/verifytypes.log; exit 1; }
	$(BIN)/python core/third_party.py --check
	cargo fmt --manifest-path core/Cargo.toml --check
	cargo clippy --manifest-path core/Cargo.toml --locked --all-targets --features python -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --manifest-path core/Cargo.toml --locked --quiet --no-deps --document-private-items --features python
	cargo test --manifest-path core/Cargo.toml --locked --quiet
	cargo test --manifest-path core/Cargo.toml --locked --quiet --lib --features portable split::scan

audit: setup .audit/bin/cargo-deny ## every locked package and crate against the known vulnerabilities; one that cannot be asked about is a failure
	@failed=; \
	for lock in requirements.lock core/wheel.lock benchmarks/requirements.lock interop/requirements.lock interop/conform.lock interop/tokenizers-1.0.lock; do \
		$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $$lock || failed="$$failed $$lock"; \
	done; \
	.audit/bin/cargo-deny --manifest-path core/Cargo.toml check || failed="$$failed core/Cargo.lock"; \
	test -z "$$failed" || { echo "Vulnerable, or not checked, as said above:$$failed. Where an advisory database could not be reached, nothing is known: connect to a network and run make audit again."; exit 1; }

reader: setup ## the wheel of tokenmill-reader, in dist/: pure Python that needs numpy alone
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist ./reader

wheel: .wheel-venv/.installed ## the wheel of tokenmill, in dist/, for Linux with glibc 2.28 or newer: compiled with zig, some minutes
	@echo "compiling the wheel, some minutes ..."
	@rm -f dist/tokenmill-[0-9]*.whl
	@. .wheel-venv/bin/activate && maturin build --release --locked --quiet --zig --compatibility manylinux_2_28 --out dist
	@.wheel-venv/bin/check-wheel-contents dist/tokenmill-[0-9]*.whl
	@.wheel-venv/bin/auditwheel show dist/tokenmill-[0-9]*.whl

test-wheel: wheel ## that wheel alone, with the locked packages of a build in a new environment: it builds sample text and verifies it
	@set -e; bare=$$(mktemp -d); trap 'rm -rf "$$bare"' EXIT; \
	$(PYTHON) -m venv $$bare/venv; \
	$$bare/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r runtime.lock; \
	$$bare/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index dist/tokenmill-[0-9]*.whl; \
	cd $$bare; \
	env -i HOME=$$bare PATH=$$bare/venv/bin:/usr/bin:/bin sh -ec 'tokenmill init demo; cd demo; python -m tokenmill.corpus.sample data/raw; tokenmill build; tokenmill verify'

docs: setup ## the tables in docs/ that are made from the code, and the web site in site/; a link that leads nowhere is an error
	@$(BIN)/python -m docs.generated.pages
	@NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html. The search needs a server: python3 -m http.server --bind 127.0.0.1 --directory site"

setup: .venv/.installed .venv/.core

core: .venv/.core ## compile the core again where its sources changed: a release build, which takes about a minute

core-dev: .venv/.core-dev ## the same in seconds, almost without optimization, for messages and tests (by pytest: other targets bring back the release build)

# What a build needs comes first, and the core is compiled while it is downloaded; the packages of the tests and linters come when they are asked for.
.venv/.runtime: runtime.lock core/maturin.lock
	@command -v $(PYTHON) >/dev/null || { echo "Python is missing: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python is too old: found $$($(PYTHON) -V 2>&1), tokenmill needs 3.11 or newer; install one and name it: make PYTHON=/path/to/python3.11."; exit 1; }
	@command -v cargo >/dev/null || { echo "The Rust toolchain is missing: install rustc and cargo 1.89 or newer, with rustup (rustup.rs) or from your system's packages."; exit 1; }
	@command -v cc >/dev/null || { echo "A C compiler is missing: install gcc (Debian: apt-get install gcc), which Rust links with."; exit 1; }
	@command -v git >/dev/null || { echo "git is missing: install it (Debian: apt-get install git)."; exit 1; }
	@$(PYTHON) -m venv .venv >.venv.log 2>&1 || { tail -3 .venv.log; echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)."; exit 1; }
	@rm -f .venv.log
	@echo "installing the locked packages into .venv, and compiling the core at the same time, some minutes ..."
	@$(BIN)/python $(PIP) core/maturin.lock >.venv/pip.log 2>&1 || $(NO_PACKAGES)
	@. $(BIN)/activate && { maturin develop --skip-install --release --locked --quiet >.venv/core.log 2>&1 & }; \
	( $(call INSTALL,.venv,runtime.lock) ); code=$$?; wait; exit $$code
	@install -d -m 700 .dvc/tmp/site-cache && $(BIN)/dvc config --local core.site_cache_dir "$(CURDIR)/.dvc/tmp/site-cache"
	@touch $@

.venv/.installed: requirements.lock .venv/.runtime
	@echo "installing the packages of the tests and linters ..."
	@$(call INSTALL,.venv,requirements.lock)
	@touch $@

.venv/.core: .venv/.runtime $(CORE)
	@echo "compiling the core, unless that is done: a release build, about a minute (for messages and tests, make core-dev is quicker) ..."
	@$(call COMPILE)
	@touch $@

.venv/.core-dev: .venv/.runtime $(CORE) | core/target/dev
	@echo "compiling the core almost without optimization, some seconds (the first time about a minute) ..."
	@$(call COMPILE,$(CORE_DEV))
	@touch $@

# The crates that the release build compiled serve here, too.
core/target/dev: | .venv/.runtime
	@rm -rf $@.part && mkdir -p $@.part && { test ! -d core/target/release || cp -a core/target/release $@.part; }
	@mv $@.part $@

lock: ## resolve the dependencies anew (needs uv)
	uv pip compile $(LOCK) --extra dev pyproject.toml -o requirements.lock
	uv pip compile $(LOCK) --constraints requirements.lock pyproject.toml -o runtime.lock
	printf '%s\n' maturin uv | uv pip compile $(LOCK) --constraints requirements.lock - -o core/maturin.lock
	printf '%s\n' auditwheel check-wheel-contents maturin ziglang | uv pip compile $(LOCK) --constraints requirements.lock - -o core/wheel.lock
	uv pip compile $(LOCK) benchmarks/requirements.in -o benchmarks/requirements.lock
	uv pip compile $(LOCK) interop/requirements.in -o interop/requirements.lock
	uv pip compile $(LOCK) interop/conform.in -o interop/conform.lock
	echo 'tokenizers>=1.0.0rc3' | uv pip compile $(LOCK) --no-deps - -o interop/tokenizers-1.0.lock
	$(PYTHON) core/third_party.py

server: setup ## Prefect's server and its web page, on this machine alone, with the runs of this repository's builds
	@mkdir -p .tokenmill
	@PREFECT_HOME="$${PREFECT_HOME:-$(CURDIR)/.tokenmill/prefect}" DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false $(BIN)/prefect server start --host 127.0.0.1 --port 4200

bench: setup .bench-venv/.installed ## count, train and encode side by side with other tools, on one core; records go to .bench-venv/record
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@.bench-venv/bin/python -m benchmarks.train --only counting english --runs 3 --record .bench-venv/record
	@.bench-venv/bin/python -m benchmarks.encode --texts english --tokenizers trained --threads 1 --runs 3 --record .bench-venv/record

bench-build: setup ## 1,000 shards: a first build, one with nothing changed, one with one shard changed; and its overhead
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.incremental

bench-first: setup ## whole first builds: 16 MB by two engines, 504 MB with a published tokenizer, 40,000 small files
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.first_build

bench-chat: setup ## instruction samples to packed sequences with loss masks, by tokenmill and, where test-interop has it, by TRL
	@$(BIN)/python -m benchmarks.chat

bench-clusters: setup ## builds by Dask and Ray with one worker and with two, and what a unit costs beside its work
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.clusters

bench-plan: setup ## how often builds of four corpora lie within the ranges of `tokenmill plan`
	@$(BIN)/python -m benchmarks.plan

bench-verify: setup ## how fast `tokenmill verify` checks datasets of 512 MB and 2 GB of text
	@$(BIN)/python -m benchmarks.verify

bench-reader: setup .s3-server/bin/s3s-fs ## how fast `tokenmill.open` gives documents and sequences, from each format, and from S3 on this machine
	@$(BIN)/python -m benchmarks.reader
	@$(BIN)/python -m benchmarks.reader_remote

bench-remap: setup ## remapping a dataset for a trimmed tokenizer beside encoding its documents again
	@$(BIN)/python -m benchmarks.remap

bench-scale: setup ## how large a corpus the planner can carry: units, task runs, memory, manifest and DVC's records, up to 100 TB
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.scale

bench-sets: setup .bench-venv/.installed ## files for training jobs: the encode stage with one format and with two, each writer, and other tools where test-interop has them
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.file_sets

bench-storage: setup .s3-server/bin/s3s-fs ## reading from S3 on this machine beside local files, by obstore and by s3fs
	@$(BIN)/python -m benchmarks.storage

bench-count: setup ## 2 GB of text with 30 million distinct pre-tokens, counted in bounded memory
	@$(BIN)/python -m benchmarks.count_memory

bench-encode: setup .bench-venv/.installed ## encoding alone: three kinds of text, five tokenizers, every tool, one core and two
	@.bench-venv/bin/python -m benchmarks.encode
	@.bench-venv/bin/python -m benchmarks.published

bench-stage: setup .bench-venv/.installed ## the stages encode and validate on 504 MB of text, beside a bare loop, and where their time goes
	@$(BIN)/python -m benchmarks.encode_stage

bench-hard: setup .bench-venv/.installed ## one huge pre-token of each hard shape, and each class of character at 4 and 16 MB
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@.bench-venv/bin/python -m benchmarks.hard_shapes

bench-second: setup ## the engine `tokenizers` beside the library that it calls, over ten shapes of tokenizer.json
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.second_engine

bench-train: setup .bench-venv/.installed ## counting and merging: every tool that trains, one core and two, up to 1.2 GB of text
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@.bench-venv/bin/python -m benchmarks.train

bench-task: setup ## the inside of an encode task, and readers of JSON lines
	@$(BIN)/python -m tokenmill.corpus.sample data/raw
	@$(BIN)/python -m benchmarks.encode_task

.s3-server/bin/s3s-fs:
	@echo "compiling an S3 server for tests, some minutes ..."
	@cargo install --quiet --locked --root .s3-server --version 0.14.1 --features binary s3s-fs

.audit/bin/cargo-deny:
	@echo "compiling cargo-deny, some minutes ..."
	@cargo install --quiet --locked --root .audit --version 0.20.2 cargo-deny

.wheel-venv/.installed: core/wheel.lock
	@$(PYTHON) -m venv .wheel-venv
	@.wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r core/wheel.lock
	@touch $@

.interop-newest-venv .lowest-venv .newest-venv: | setup
	@$(PYTHON) -m venv $@

.bench-venv/.installed: benchmarks/requirements.lock .venv/.installed
	@$(BIN)/python -m venv .bench-venv
	@$(call INSTALL,.bench-venv,benchmarks/requirements.lock)
	@touch $@

.interop-venv/.installed: interop/requirements.lock .venv/.installed
	@$(BIN)/python -m venv .interop-venv
	@echo "installing the tools whose formats are tested into .interop-venv ..."
	@$(call INSTALL,.interop-venv,interop/requirements.lock)
	@touch $@

.conform-venv/.installed: interop/conform.lock interop/tokenizers-1.0.lock .venv/.installed
	@$(BIN)/python -m venv .conform-venv
	@$(call INSTALL,.conform-venv,interop/conform.lock)
	@.conform-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target .conform-venv/tokenizers-1.0 -r interop/tokenizers-1.0.lock
	@touch $@

clean: ## what make made, but for data
	rm -rf .venv .audit .bench-venv .conform-venv .interop-newest-venv .interop-venv .lowest-venv .newest-venv .s3-server .wheel-venv core/target dist reader/build reader/*.egg-info tokenmill/*.so
