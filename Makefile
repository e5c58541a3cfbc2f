# The whole interface of the project. From a fresh clone, with Python 3.11 or later, make and a C compiler:
#
#   make run      the whole system alive: broker, market data, pipelines on Spark; ARGS="--rate 20000"
#   make serve    the broker alone, on its defaults or with ARGS="--port 0 --data /tmp/flint"
#   make test     all tests: on the compiled build, with Spark, on the pure build; TESTS=tests/unit for a part
#   make test-console   the web console in a browser; part of make test
#   make test-memory    what clients can make the broker hold, one test at a time; part of make test
#   make check    format, lint, types, layers, the border of compiled code, tidy, vulnerable dependencies
#   make bench    the benchmarks, with ARGS
#   make build    a wheel in dist/
#   make clean    forget everything that was made
#
# .venv holds the compiled package, installed: no machine code ever lies in src/, where it would win
# over the Python beside it. .venv-pure holds the same package uncompiled, as a link to src/. Each step
# leaves a stamp in its environment and is done again only when what it read has changed.

.SUFFIXES:
.SECONDARY:
.NOTPARALLEL:
.PHONY: run serve test test-compiled test-console test-memory test-pure test-spark check format bench build clean interop-deps FORCE

# Images often set it. Then each worker would rewrite and compile every test, and each process of the pure build
# every module: 17 s of a worker and half a second of a broker.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
ARGS ?=
TESTS ?= tests
# Twice the processors of a small machine: most tests wait for something. Those of Spark work all the time.
# A worker that has done its share takes half of another's: long tests lie beside each other, and the last
# share of them would keep one worker busy while the others wait.
WORKERS ?= 4
SHARED_OUT := -n $(WORKERS) --dist worksteal
SPARK_WORKERS ?= 2
PIP_QUIET := -m pip --disable-pip-version-check --quiet
BUILD_TOOLS := 'pip>=25.1' 'setuptools>=77' 'Cython>=3.1,<4'

CONSOLE := $(sort $(shell find src/flintmq/management/console -type f))
SOURCES := $(sort $(shell find src -name '*.py' -o -name '*.pxd' -o -name 'py.typed'))
PACKAGING := setup.py pyproject.toml README.md
CLIENTS := $(wildcard tests/interop/requirements.txt)
NODE_LOCK := $(wildcard tests/interop/node/package-lock.json)
NODE_CLIENTS := $(if $(NODE_LOCK),tests/interop/node/node_modules/.stamp)

run:
	@$(call with-build,.stamp-build .stamp-spark,demo)

serve:
	@$(call with-build,.stamp-build,serve)

# $(1): stamps that the environment needs; $(2): a command of flintmq.
define with-build
if $(PYTHON) tools/compiler.py; then chosen=.venv; else \
    echo "Running the pure Python build instead, which is many times slower."; chosen=.venv-pure; fi; \
for stamp in $(1); do $(MAKE) --no-print-directory --silent $$chosen/$$stamp || exit 1; done; \
exec $$chosen/bin/flintmq $(2) $(ARGS)
endef

# Spark takes seconds to start: its tests run by themselves, on the compiled build. Each part has settings of
# its own for the Java process, which a worker starts once: so one part after the other.
SPARK_TESTS := tests/spark tests/pipelines tests/unit/spark
# One browser and one broker for all of them, by themselves too.
CONSOLE_TESTS := tests/console
# What kills processes, fills disks and memory and simulates years of them runs on the compiled build alone,
# but for what imitates Windows, where there is the pure one alone.
PURE_LIVE := tests/live/test_without_unix.py
LONG_TESTS := tests/recovery tests/memory tests/simulation tests/fuzz tests/differential tests/stalls \
    $(filter-out $(PURE_LIVE),$(wildcard tests/live/test_*.py))

# Pages, commands, the HTTP API, tools, benchmarks and the plug-in for pytest are the same Python on both builds:
# these tests run on the compiled one, where a class shows less of itself. What they ask of a pure broker is asked
# by tests/unit, its tests of management and commands too, and tests/playbook; over sockets by tests/client,
# tests/interop and tests/hostile. `make test-pure TESTS=tests/management` runs them there all the same.
ONE_BUILD_TESTS := tests/docs tests/command_line tests/management tests/unit/tools tests/unit/test_benchmarks.py \
    tests/plugins/test_pytest_plugin.py
LEFT_OUT_OF_PURE := $(LONG_TESTS) $(ONE_BUILD_TESTS)

# By itself test-memory holds a bystander's waits to 50 ms; here the machine may have other work as well.
test: export MEMORY_WAIT_FACTOR = 4
test: test-compiled $(if $(filter tests,$(TESTS)),test-console test-memory test-spark) test-pure

test-compiled: .venv/.stamp-build .venv/.stamp-dev .venv/.stamp-clients $(NODE_CLIENTS)
	@echo "== tests, compiled build"
	@FLINTMQ_EXPECT_BUILD=compiled .venv/bin/python tools/test_run.py compiled -q $(SHARED_OUT) \
	    $(SPARK_TESTS:%=--ignore=%) --ignore=$(CONSOLE_TESTS) \
	    $(if $(filter tests,$(TESTS)),--ignore=tests/memory) $(TESTS)

test-console: .venv/.stamp-build .venv/.stamp-dev .venv/.stamp-console
	@echo "== tests of the console in a browser, compiled build"
	@FLINTMQ_EXPECT_BUILD=compiled .venv/bin/python tools/test_run.py console -q $(CONSOLE_TESTS)

# Peaks of memory and what the broker does while a bystander waits, one test at a time: each fills memory.
test-memory: .venv/.stamp-build .venv/.stamp-dev
	@echo "== tests of memory, compiled build"
	@FLINTMQ_EXPECT_BUILD=compiled .venv/bin/python tools/test_run.py memory -q tests/memory

test-spark: .venv/.stamp-build .venv/.stamp-dev .venv/.stamp-clients .venv/.stamp-spark .venv/.stamp-sdp
	@echo "== tests of Spark and pipelines, compiled build"
	@for part in $(SPARK_TESTS); do \
	    FLINTMQ_EXPECT_BUILD=compiled .venv/bin/python tools/test_run.py $$part -q -n $(SPARK_WORKERS) --dist loadfile \
	        $$part || exit 1; done

test-pure: .venv-pure/.stamp-build .venv-pure/.stamp-dev .venv-pure/.stamp-clients $(NODE_CLIENTS)
	@echo "== tests, pure build"
	@FLINTMQ_EXPECT_BUILD=pure .venv-pure/bin/python tools/test_run.py pure -q $(SHARED_OUT) \
	    $(SPARK_TESTS:%=--ignore=%) --ignore=$(CONSOLE_TESTS) \
	    $(if $(filter tests,$(TESTS)),$(LEFT_OUT_OF_PURE:%=--ignore=%)) $(TESTS)

# Each by itself, so that `make -k check` tells everything at once.
check: check-format check-lint check-types check-layers check-border check-tidy check-dependencies

check-%: .venv-pure/.stamp-build .venv-pure/.stamp-dev
	@echo "== $*"
	@$(CHECK_$*)

CHECK_format = .venv-pure/bin/ruff format --check
CHECK_lint = .venv-pure/bin/ruff check
CHECK_types = .venv-pure/bin/mypy
CHECK_layers = .venv-pure/bin/lint-imports --no-logo
CHECK_border = .venv-pure/bin/python tools/compiled_border.py
CHECK_tidy = .venv-pure/bin/python tools/tidy.py
CHECK_dependencies = .venv-pure/bin/python tools/dependency_audit.py

format: .venv-pure/.stamp-dev
	@.venv-pure/bin/ruff format && .venv-pure/bin/ruff check --fix

bench: .venv/.stamp-build .venv/.stamp-dev
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python benchmarks/run.py $(ARGS)

build: .venv/.stamp-build
	@.venv/bin/python tools/build.py wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:
	rm -rf .venv .venv-pure build dist src/flintmq.egg-info tests/interop/node/node_modules
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

interop-deps:
	@sh tools/interop-deps.sh

# -- environments ----------------------------------------------------------------------------------

%/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "FlintMQ needs Python 3.11 or later; name one with make PYTHON=python3.12"; exit 1; }
	@echo "== $*: new environment"
	@$(PYTHON) -m venv $* \
	    || { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@$*/bin/python $(PIP_QUIET) install --upgrade $(BUILD_TOOLS)
	@touch $@

%/.stamp-dev: %/.stamp-venv pyproject.toml
	@echo "== $*: tools of development"
	@$*/bin/python $(PIP_QUIET) install --group dev
	@touch $@

%/.stamp-console: %/.stamp-venv pyproject.toml
	@echo "== $*: what drives a browser"
	@$*/bin/python $(PIP_QUIET) install --group console
	@touch $@

%/.stamp-clients: %/.stamp-venv $(CLIENTS)
	@echo "== $*: AMQP clients for the interop tests"
	@$*/bin/python $(PIP_QUIET) install $(if $(CLIENTS),--requirement $(CLIENTS),pip)
	@touch $@

%/.stamp-spark: %/.stamp-venv pyproject.toml
	@echo "== $*: Spark, Java if there is none, and what pipelines need"
	@$*/bin/python $(PIP_QUIET) install $$($*/bin/python tools/extra.py pipelines) \
	    $$($*/bin/python tools/extra.py management)
	@touch $@

%/.stamp-sdp: %/.stamp-spark
	@echo "== $*: Spark Declarative Pipelines"
	@$*/bin/python $(PIP_QUIET) install $$($*/bin/python tools/extra.py sdp)
	@touch $@

.venv/.stamp-build: .venv/.stamp-venv build/inputs $(SOURCES) $(CONSOLE) $(PACKAGING)
	@$(PYTHON) tools/compiler.py || { echo "make test-pure works without a compiler."; exit 1; }
	@echo "== .venv: compiled build"
	@.venv/bin/python tools/build.py install --no-build-isolation .
	@case "$$(.venv/bin/flintmq info)" in *"build       compiled"*) ;; \
	    *) echo "The package was installed, but not compiled:"; .venv/bin/flintmq info; exit 1;; esac
	@touch $@

.venv-pure/.stamp-build: .venv-pure/.stamp-venv $(PACKAGING)
	@echo "== .venv-pure: pure build"
	@FLINTMQ_PURE=1 .venv-pure/bin/python $(PIP_QUIET) install --no-build-isolation --editable .
	@touch $@

# What was there to build from. When a file comes or goes, or setup.py lists other modules, what lies in
# build/lib would be installed though nothing makes it any more.
build/inputs: FORCE
	@mkdir -p build
	@{ printf '%s\n' $(SOURCES) "checked=$$FLINTMQ_CHECKED"; cksum setup.py; } > $@.now
	@if cmp -s $@.now $@; then rm $@.now; else rm -rf build/lib* build/bdist* && mv $@.now $@; fi

tests/interop/node/node_modules/.stamp: $(NODE_LOCK)
	@if command -v npm > /dev/null; then \
	    echo "== tests/interop/node: npm ci"; \
	    cd tests/interop/node && npm ci --silent --no-fund --no-audit && touch node_modules/.stamp; \
	else echo "No npm here, so no tests with the Node client; make interop-deps says how to get it."; fi
