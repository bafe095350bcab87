# The two commands of the README: `make demo` and `make test`. Each target prepares what it needs and does nothing twice.
PRESET ?= release
JOBS   ?= $(shell nproc)
BUILD  := build/$(PRESET)
OUT    ?= demo-out
SECONDS ?= 60
CMAKE  ?= cmake
TOOL   := ulp_tool
BASE   ?=

.PHONY: help setup build test test-changed check-all demo quick bench benchmarks fuzz arm64 docs format format-check install wheel packages clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     prepare, build what the demo runs and run the main job; ends with a table and $(OUT)/report.html"
	@echo "make quick    the same in one to two minutes"
	@echo "make test     prepare, build and run every test"
	@echo "make test-changed  build and run only the tests that a change can reach (BASE=commit; DEEP=1: also those of rooms above)"
	@echo "make check-all  every test as on other processors, on odd numbers of threads, busy; the long tests (ONLY=name for one)"
	@echo "make setup    install what is missing (Debian packages, LibTorch), build nothing"
	@echo "make build    prepare and build (PRESET=release|asan|tsan|asan-torch|tsan-torch); make test takes them, too"
	@echo "make benchmarks  build the programs of bench/;  make bench also runs those that time kernels and steps"
	@echo "make fuzz     run each fuzzer for SECONDS=60 (PRESET=fuzz-torch: also those that need LibTorch); needs clang-14"
	@echo "make arm64    cross-compile the runtime for 64-bit Arm and run its tests under qemu-user"
	@echo "make docs     the public headers as HTML"
	@echo "make format   apply clang-format;  make format-check  only check"
	@echo "make install  install into PREFIX (default /usr/local)"
	@echo "make wheel    the runtime as a Python wheel in dist, tried in a fresh environment"
	@echo "make packages Debian packages in dist, tried without installing them"

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh $(PRESET) $(JOBS)

test:
	@echo "test: 1. setup, a few minutes the first time; 2. build all but the benchmarks; 3. check the format; 4. run the tests"
	@scripts/setup.sh
	@scripts/build.sh $(PRESET) $(JOBS)
	@scripts/format.sh --check
	@cd $(BUILD) && { ctest --output-on-failure --parallel $(JOBS) || \
	  { echo "test: what failed, once more (all output: $(BUILD)/Testing/Temporary/LastTest.log)"; \
	    grep -h -A 8 ': Failure$$' Testing/Temporary/LastTest.log; \
	    grep -h '^\[  FAILED  \]' Testing/Temporary/LastTest.log; exit 1; }; }

test-changed:
	@scripts/setup.sh
	@scripts/test_changed.py --preset $(PRESET) --jobs $(JOBS) $(if $(BASE),--base $(BASE)) $(if $(DEEP),--deep)

check-all:
	@scripts/check_all.sh $(PRESET) $(JOBS) $(if $(ONLY),--only $(ONLY))

demo:
	@echo "demo: 1. setup, a few minutes the first time; 2. build what the demo runs; 3. the demo, about 5 minutes on 2 cores"
	@scripts/setup.sh
	@scripts/build.sh $(PRESET) $(JOBS) ulp_demo
	@. scripts/env.sh && $(BUILD)/bin/ulp-demo demo --out $(OUT)

quick:
	@echo "quick: 1. setup, a few minutes the first time; 2. build what the demo runs; 3. the short demo, under a minute (some minutes on processors without bf16 products)"
	@scripts/setup.sh
	@scripts/build.sh $(PRESET) $(JOBS) ulp_demo
	@. scripts/env.sh && $(BUILD)/bin/ulp-demo demo --quick --out $(OUT)

benchmarks: setup
	@scripts/build.sh $(PRESET) $(JOBS) benchmarks

bench: benchmarks
	@for program in $(BUILD)/bin/*_bench; do echo "== $$program"; $$program || exit 1; done

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(if $(filter fuzz%,$(PRESET)),$(PRESET),fuzz) $(JOBS) $(SECONDS)

arm64:
	@scripts/setup.sh arm64
	@scripts/build.sh arm64 $(JOBS)
	@cd build/arm64 && ctest --output-on-failure --parallel $(JOBS)

docs:
	@scripts/setup.sh docs
	@scripts/build.sh $(PRESET) $(JOBS) docs
	@echo "docs: $(BUILD)/docs/html/index.html"

format:
	@scripts/format.sh -i

format-check:
	@scripts/format.sh --check

PREFIX ?= /usr/local
install: setup
	@scripts/build.sh $(PRESET) $(JOBS) $(TOOL)
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)

wheel:
	@echo "wheel: 1. setup; 2. build the runtime; 3. pack dist/ulp_runtime-*.whl; 4. install it into an environment and test it"
	@scripts/setup.sh wheel
	@scripts/wheel.sh $(PRESET) $(JOBS)

packages:
	@echo "packages: 1. setup; 2. build the preset package; 3. pack dist/*.deb; 4. unpack them and try them there"
	@scripts/setup.sh packages
	@scripts/packages.sh $(JOBS)

clean:
	rm -rf build
