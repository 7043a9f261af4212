# What developers run. `make setup` makes everything else possible; each target stands on it, and it is quick when
# nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py $(shell find nandimg flashfs -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
# of tests: one more than there are processors, for some of them wait
WORKERS ?= 3
# A libfuse that speaks to the kernel over io_uring: built if asked for (make setup URING=1), used if it is there.
LIBFUSE := .libfuse/lib/libfuse3.a
RINGS := /sys/module/fuse/parameters/enable_uring
# what the kernel's requests come by there; all tests that mount: make test-uring RINGED=tests
RINGED ?= $(patsubst %,tests/fuse/test_%.py,rings mmap server seek_copy trim sync_writes cut loop daemon control large_reads fsx) \
	tests/packaging/test_libfuse.py
NEWER_LIBFUSE := $(if $(URING),$(LIBFUSE),$(wildcard $(LIBFUSE)))
CAMPAIGN_CUTS ?= 1000000
CAMPAIGN_STATE ?= campaign.json
CAMPAIGN_ROUNDS ?= 100
CAMPAIGN_SURVIVED ?= tools/results/survived.jsonl
CAMPAIGN_COMMITS ?= 500
FOUND ?= found.jsonl
ASAN_INPUTS ?= 20000
MUTANTS_STATE ?= mutants.jsonl
CRASH = $(BIN)/flashfs crash run --state $(CAMPAIGN_STATE) --survived $(CAMPAIGN_SURVIVED) --found $(FOUND)
KILLS = $(BIN)/flashfs crash kill --survived $(CAMPAIGN_SURVIVED) --found $(FOUND)
BUILD = $(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
# an editable installation has no such files
MANUAL = mkdir -p $(VENV)/share/man/man1 && ln -sf "$(CURDIR)"/man/*.1 $(VENV)/share/man/man1/
INSTALL = PYTHONWARNINGS=ignore FLASHFS_BARE=1 $(BIN)/python -m pip install --quiet --no-build-isolation --editable

# where the environment forbids bytecode, each process of a test run would rewrite all asserts anew: 5 s of 8
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-dev system system-dev test test-all test-uring durations package-test release man demo lint fresh campaign asan soak \
	bench comparison coverage mutants reproduce site clean
.DELETE_ON_ERROR:

## setup: what a mount and `make demo` need: system packages (when root), .venv, the compiled modules in place. URING=1:
## with a newer libfuse, of Debian's sources, for mounts over io_uring
setup: system $(VENV)/.tools
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.built $(if $(wildcard $(VENV)/.dev),,$(VENV)/.runtime)

## setup-dev: also what tests, linters, benchmarks and the site need
setup-dev: system-dev $(VENV)/.tools
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.built $(VENV)/.dev
	@ls flashfs/nbd/_plugin.*.so >/dev/null 2>&1 || $(BUILD)  # where nbdkit's headers came after the first build

system:
	@tools/system_packages.sh

system-dev:
	@tools/system_packages.sh dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.tools: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet 'setuptools>=77' 'Cython>=3.3,<4' 'setuptools-scm>=8'  # the last: pyfuse3's
	@touch $@

$(VENV)/.runtime: $(VENV)/.tools
	$(INSTALL) .
	@$(MANUAL)
	@touch $@

$(VENV)/.dev: $(VENV)/.tools
	$(INSTALL) '.[dev]'
	@$(MANUAL)
	@touch $@

$(LIBFUSE): tools/libfuse_uring.sh
	tools/libfuse_uring.sh "$(CURDIR)/.libfuse"

$(VENV)/.built: $(VENV)/.tools $(SOURCES) $(NEWER_LIBFUSE)
	$(BUILD)
	@touch $@

## test: everything that is not marked slow, package or rings; fails when tests have become dearer (tests/costs.py)
test: setup-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow and not package and not rings' --guard tests

## test-all: the slow tests too: every scheme in every test, every planted bug. PART=2/4: the second quarter of them
test-all: setup-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fresh $(if $(PART),--part $(PART)) -m 'not package and not rings' tests

## durations: what each test takes goes to tests/durations.json: the order of `make test`, and its limit
durations: setup-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow and not package and not rings' --write-durations tests

## test-uring: tests of mounts again, over io_uring, and those that need it or a newer libfuse (needs root, Linux 6.14)
test-uring:
	$(MAKE) setup-dev URING=1
	before=$$(cat $(RINGS)); echo Y >$(RINGS); \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m '(mount or rings) and not slow and not package' $(RINGED); \
	code=$$?; echo $$before >$(RINGS); exit $$code

## package-test: a source archive, a wheel from it, both from nothing, the wheel in an environment of its own, and used
package-test: setup-dev
	$(BIN)/python -m pytest -m package tests/packaging

## release: dist/ with a source archive, a wheel for manylinux that was tried, and their sums; a container if docker or
## podman works: docs/packaging.md
release: setup-dev
	$(BIN)/python tools/release.py

## man: man/*.1, of the command line's help
man: setup-dev
	$(BIN)/python tools/manpages.py

## demo: a source tree on ext4 on flashfs, its daemon killed, everything acknowledged still there (needs root)
demo: setup
	$(BIN)/python tools/demo.py

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/stubs.py --check
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint nandimg flashfs  # it calls pycodestyle by name

## fresh: half a minute of power cuts with a new seed. What they find is printed, and kept in FOUND; it is no failure of
## what was just changed, so the exit code is 0
fresh: setup-dev
	$(BIN)/flashfs crash run --tier sweep,wide,random,host,faults --seconds 30 --found $(FOUND) || \
		echo "fresh: cuts that lost something, kept in $(FOUND): make each a test (tests/README.md), and mend it"

## campaign: many more power cuts than `make test` has time for, then kills of the daemon under file systems (needs root).
## Broken off, the power cuts go on where they stood: CAMPAIGN_STATE says where that is. Each campaign draws a new seed;
## CAMPAIGN_SURVIVED keeps which seeds each FTL has survived
campaign: setup-dev
	$(BIN)/python -m pytest -n $(WORKERS) --fresh -m slow tests || test $$? -eq 5  # 5: no test is marked so
	$(BIN)/flashfs check --only durability $$($(BIN)/python -c "from flashfs.ftl import SCHEMES; print(*SCHEMES)")
	$(CRASH) --tier sweep --cuts $(CAMPAIGN_CUTS)
	$(CRASH) --tier random,host,faults --cuts $$(($(CAMPAIGN_CUTS) / 20))
	$(CRASH) --tier wide --cuts $$(($(CAMPAIGN_CUTS) / 5))  # it makes a tenth
	$(CRASH) --tier every --length 3
	$(CRASH) --tier every --length 2 --depth 2
	rm -f $(CAMPAIGN_STATE)
	$(KILLS) --fs ext4,xfs,btrfs --writer files,fio --rounds $(CAMPAIGN_ROUNDS)
	$(KILLS) --fs ext4 --writer sqlite --rounds $(CAMPAIGN_COMMITS)

## soak: fsx, stress-ng, RocksDB and SQLite on ext4, xfs and btrfs, an idle minute, ten million requests (needs root)
soak: setup-dev
	$(BIN)/python tools/soak.py

## bench: the figures of docs/performance.md; raw results go to bench/results (`mount` needs root and fio)
bench: setup-dev
	$(BIN)/python bench engine
	$(BIN)/python bench slimftl
	$(BIN)/python bench mount

## comparison: docs/comparison.md, every FTL on equal ground; TRACES is a folder of traces (docs/traces.md)
comparison: setup-dev
	$(BIN)/python tools/comparison.py $(if $(TRACES),--traces $(TRACES))

## reproduce: the figures of docs/reproduce.md, and what of them holds; tables go to flashfs/reproduce/results
reproduce: setup-dev
	$(BIN)/python tools/reproduce.py

## site: the documentation as a site, with the reference of the Python names, in site/ (mkdocs.yml)
site: setup-dev
	$(BIN)/python tools/docs_site.py

## asan: the fuzzers again on a copy that was built with AddressSanitizer: every access to memory is checked. ASAN_INPUTS
## damaged images, as many requests
asan: setup-dev
	rm -rf build/asan; mkdir -p build/asan/tests
	cp -r nandimg flashfs tools setup.py pyproject.toml build/asan; cp -r tests/fuzz build/asan/tests
	find build/asan -name '*.so' -delete
	cd build/asan && FLASHFS_SANITIZE=address $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
	cd build/asan && LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		PYTHONPATH=. $(CURDIR)/$(BIN)/python tools/fuzz.py --images $(ASAN_INPUTS) --requests $(ASAN_INPUTS) --cli 0 \
		--jobs 2

## coverage: lines and branches of the recovery paths that tests and scaled-down campaigns reach: docs/coverage.md
coverage: setup-dev
	$(BIN)/python tools/coverage.py --jobs $(WORKERS)

## mutants: what no check, crash tier or fast test notices when the compiled modules are changed: docs/coverage.md. Broken
## off, it goes on where it stood: MUTANTS_STATE says where that is. .mutants, its build, may be removed
mutants: setup-dev
	$(BIN)/python tools/mutants --jobs $(WORKERS) --state $(MUTANTS_STATE)

clean:
	rm -rf .mutants .libfuse $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find nandimg flashfs \( -name '*.so' -o -name '__pycache__' \) -prune -exec rm -rf {} +
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(SOURCES))) $(patsubst %.pyx,%.cpp,$(filter %.pyx,$(SOURCES)))
