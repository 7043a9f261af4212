# What developers run. `make setup` makes everything else possible; each target stands on it, and it is quick when
# nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py $(shell find nandimg flashfs -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
WORKERS ?= 2
# A libfuse that speaks to the kernel over io_uring: built if asked for (make setup URING=1), used if it is there.
LIBFUSE := .libfuse/lib/libfuse3.a
RINGS := /sys/module/fuse/parameters/enable_uring
NEWER_LIBFUSE := $(if $(URING),$(LIBFUSE),$(wildcard $(LIBFUSE)))
CAMPAIGN_CUTS ?= 1000000
CAMPAIGN_STATE ?= campaign.json
CAMPAIGN_ROUNDS ?= 100
CAMPAIGN_COMMITS ?= 500
MUTANTS_STATE ?= mutants.jsonl

.PHONY: setup system test test-uring package-test man demo lint campaign soak bench comparison coverage mutants reproduce site \
	clean
.DELETE_ON_ERROR:

## setup: system packages (when root), .venv, the package with its compiled modules in place. URING=1: with a newer
## libfuse, of Debian's sources, for mounts over io_uring
setup: system $(VENV)/.built

system:
	@tools/system_packages.sh

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.tools: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet 'setuptools>=77' 'Cython>=3.3,<4' 'setuptools-scm>=8'  # the last: pyfuse3's
	PYTHONWARNINGS=ignore FLASHFS_BARE=1 $(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@

$(LIBFUSE): tools/libfuse_uring.sh
	tools/libfuse_uring.sh "$(CURDIR)/.libfuse"

$(VENV)/.built: $(VENV)/.tools $(SOURCES) $(NEWER_LIBFUSE)
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
	@touch $@

## test: everything that is not marked slow, package or rings
test: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow and not package and not rings' tests

## test-uring: the tests of mounts again, over io_uring, and those that need it (needs root, Linux 6.14)
test-uring:
	$(MAKE) setup URING=1
	before=$$(cat $(RINGS)); echo Y >$(RINGS); \
	$(BIN)/python -m pytest -n $(WORKERS) -m '(mount or rings) and not slow and not package' tests; \
	code=$$?; echo $$before >$(RINGS); exit $$code

## package-test: a source archive, a wheel from it, both from nothing, the wheel in an environment of its own, and used
package-test: setup
	$(BIN)/python -m pytest -m package tests/packaging

## man: man/*.1, of the command line's help
man: setup
	$(BIN)/python tools/manpages.py

## demo: a source tree on ext4 on flashfs, its daemon killed, everything acknowledged still there (needs root)
demo: setup
	$(BIN)/python tools/demo.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/stubs.py --check
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint nandimg flashfs  # it calls pycodestyle by name

## campaign: many more power cuts than `make test` has time for, then kills of the daemon under file systems (needs root).
## Broken off, the power cuts go on where they stood: CAMPAIGN_STATE says where that is
campaign: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m slow tests || test $$? -eq 5  # 5: no test is marked so
	$(BIN)/flashfs crash --tier sweep --cuts $(CAMPAIGN_CUTS) --state $(CAMPAIGN_STATE)
	$(BIN)/flashfs crash --tier random,host,faults --cuts $$(($(CAMPAIGN_CUTS) / 20)) --state $(CAMPAIGN_STATE)
	$(BIN)/flashfs crash --tier wide --cuts $$(($(CAMPAIGN_CUTS) / 5)) --state $(CAMPAIGN_STATE)  # it makes a tenth
	$(BIN)/flashfs crash --every --length 4 --state $(CAMPAIGN_STATE)
	$(BIN)/flashfs crash --every --length 2 --depth 2 --state $(CAMPAIGN_STATE)
	rm -f $(CAMPAIGN_STATE)
	$(BIN)/flashfs crash --kill --fs ext4,xfs,btrfs --writer files,fio --rounds $(CAMPAIGN_ROUNDS)
	$(BIN)/flashfs crash --kill --fs ext4 --writer sqlite --rounds $(CAMPAIGN_COMMITS)

## soak: fsx, stress-ng, RocksDB and SQLite on ext4, xfs and btrfs, an idle minute, ten million requests (needs root)
soak: setup
	$(BIN)/python tools/soak.py

## bench: the figures of docs/performance.md; raw results go to tools/results (bench_mount needs root and fio)
bench: setup
	$(BIN)/python tools/bench_engine.py
	$(BIN)/python tools/bench_slimftl.py
	$(BIN)/python tools/bench_mount.py

## comparison: docs/comparison.md, every FTL on equal ground; TRACES is a folder of traces (docs/traces.md)
comparison: setup
	$(BIN)/python tools/comparison.py $(if $(TRACES),--traces $(TRACES))

## reproduce: the figures of docs/reproduce.md, and what of them holds; tables go to flashfs/reproduce/results
reproduce: setup
	$(BIN)/python tools/reproduce.py

## site: the documentation as a site, with the reference of the Python names, in site/ (mkdocs.yml)
site: setup
	$(BIN)/python tools/docs_site.py

## coverage: lines and branches of the recovery paths that tests and scaled-down campaigns reach: docs/coverage.md
coverage: setup
	$(BIN)/python tools/coverage.py --jobs $(WORKERS)

## mutants: what no check, crash tier or fast test notices when the compiled modules are changed: docs/coverage.md. Broken
## off, it goes on where it stood: MUTANTS_STATE says where that is. .mutants, its build, may be removed
mutants: setup
	$(BIN)/python tools/mutants --jobs $(WORKERS) --state $(MUTANTS_STATE)

clean:
	rm -rf .mutants .libfuse $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find nandimg flashfs \( -name '*.so' -o -name '__pycache__' \) -prune -exec rm -rf {} +
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(SOURCES))) $(patsubst %.pyx,%.cpp,$(filter %.pyx,$(SOURCES)))
