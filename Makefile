# The two commands of the README: `make demo` and `make test`. Each target prepares what it needs and does nothing twice.
PRESET ?= release
JOBS   ?= $(shell nproc)
BUILD  := build/$(PRESET)
OUT    ?= demo-out
CMAKE  ?= cmake

.PHONY: help setup build test demo quick bench format format-check install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     prepare, build and run the main job; ends with a table and $(OUT)/report.html"
	@echo "make quick    the same in under a minute"
	@echo "make test     prepare, build and run every test"
	@echo "make setup    install what is missing (Debian packages, LibTorch), build nothing"
	@echo "make build    prepare and build (PRESET=release|debug|tsan)"
	@echo "make bench    run the benchmarks"
	@echo "make format   apply clang-format;  make format-check  only check"
	@echo "make install  install into PREFIX (default /usr/local)"

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh $(PRESET) $(JOBS)

test: build format-check
	@cd $(BUILD) && ctest --output-on-failure --parallel $(JOBS)

demo: build
	@. scripts/env.sh && $(BUILD)/bin/ulp demo --out $(OUT)

quick: build
	@. scripts/env.sh && $(BUILD)/bin/ulp demo --quick --out $(OUT)

bench: build
	@for program in $(BUILD)/bin/*_bench; do echo "== $$program"; $$program || exit 1; done

format:
	@scripts/format.sh -i

format-check:
	@scripts/format.sh --check

PREFIX ?= /usr/local
install: build
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build
