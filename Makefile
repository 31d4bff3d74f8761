# Two commands: `make demo` and `make test`. Both make .venv, build, and fetch what they need; needed on the
# machine are Python 3.11+, a C++20 compiler and make.

PYTHON ?= python3
MODEL ?= qwen2.5-coder-1.5b
VENV := .venv
BIN := $(VENV)/bin
DATA := .ringline
TEST_MODELS := smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b
NATIVE := CMakeLists.txt $(shell find shared/native \( -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt \))
CPP := $(filter %.cpp %.hpp,$(NATIVE)) $(wildcard bench/*.cpp)

.PHONY: help demo test test-machine test-kills test-identity test-budget test-native test-asan test-tsan test-arm
.PHONY: lint bench bench-speculation estimate-a76 build clean clean-data mosquitto
.DELETE_ON_ERROR:

help:
	@echo 'make demo [MODEL=smollm2-135m]   build, fetch the models, answer the bundled alarms'
	@echo 'make test                        build, fetch the test models, run every test'
	@echo 'make test-machine                context against its model, at length'
	@echo 'make test-kills                  kill -9 of context and verifier, 50 times each, under load'
	@echo 'make test-identity               the Qwen pair gives the same answers however it is drafted and batched'
	@echo 'make test-budget                 the reference target in the memory of a small board, flooded'
	@echo 'make bench-speculation           answers with and without drafts, on alarms; DRAFT=cpu, WORKLOAD=chat'
	@echo 'make lint | bench | test-native | test-asan | test-tsan | test-arm | estimate-a76 | clean'
	@echo 'make clean-data                  remove the models, caches and journals in $(DATA)'

demo: build
	$(BIN)/ringline demo --model $(MODEL)

test: mosquitto build test-native $(TEST_MODELS:%=$(DATA)/models/%.gguf)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-machine: build
	RINGLINE_MACHINE_EXAMPLES=5000 $(BIN)/python -m pytest tests/unit/test_context_machine.py

test-kills: build $(DATA)/models/smollm2-135m.gguf
	$(BIN)/python -m pytest tests/long/test_kills.py

test-identity: build $(DATA)/models/qwen2.5-coder-1.5b.gguf $(DATA)/models/qwen2.5-coder-0.5b.gguf
	$(BIN)/python -m pytest tests/long/test_identity.py

test-budget: build $(DATA)/models/qwen2.5-coder-1.5b.gguf
	$(BIN)/python -m bench.budget --model qwen2.5-coder-1.5b

lint: $(VENV)/.packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

bench: build $(DATA)/models/$(MODEL).gguf
	$(BIN)/python -m bench.engine --model $(DATA)/models/$(MODEL).gguf

WORKLOAD ?= alarms
DRAFT ?= retrieval

bench-speculation: build $(DATA)/models/qwen2.5-coder-1.5b.gguf $(DATA)/models/qwen2.5-coder-0.5b.gguf
	$(BIN)/python -m bench.speculation --workload $(WORKLOAD) --draft $(DRAFT)

build: $(VENV)/.built

# The interpreter's own venv; a broken one (a moved checkout, another Python) is made anew.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Ringline needs Python 3.11 or newer: make PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || \
	  { echo 'no virtual environment: on Debian run apt-get install python3-venv'; exit 1; }

# What the project needs, without the project itself: linting and testing start before anything is compiled.
$(VENV)/.packages: pyproject.toml deploy/requirements.py | $(BIN)/python
	$(BIN)/python deploy/requirements.py > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@touch $@

# Editable: Python is imported from the checkout, the native module is compiled in build/ and installed beside it.
$(VENV)/.built: $(NATIVE) $(VENV)/.packages
	@command -v $(or $(CXX),c++) > /dev/null || \
	  { echo 'a C++20 compiler is missing: on Debian run apt-get install g++'; exit 1; }
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation --no-deps --editable .
	@touch $@

$(DATA)/models/%.gguf: | build
	$(BIN)/ringline models fetch $* --data $(DATA)

mosquitto:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin"; for needed in mosquitto mosquitto_pub mosquitto_sub; do \
	  command -v $$needed > /dev/null || { echo "the tests need $$needed:" \
	    'on Debian run apt-get install mosquitto mosquitto-clients'; exit 1; }; done

define native_tests
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/$(1) -G Ninja -DCMAKE_BUILD_TYPE=$(2) \
	  -DRINGLINE_PYTHON=OFF -DRINGLINE_NATIVE_TESTS=ON -DRINGLINE_SANITIZE=$(3) $(4)
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/$(1)
	$(call native_ctest,$(1))
endef

native_ctest = PATH="$(abspath $(BIN)):$$PATH" \
  ctest --test-dir build/$(1)/shared/native --output-on-failure --no-tests=error

test-native: $(VENV)/.packages
	$(call native_tests,native-tests,Release,)

test-asan: $(VENV)/.packages
	$(call native_tests,asan,Sanitize,address$(comma)undefined)

test-tsan: $(VENV)/.packages
	$(call native_tests,tsan,Sanitize,thread)

ARM_CXX := aarch64-linux-gnu-g++
ARM := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(ARM_CXX) \
  "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"

# Cross-compiled, and run under emulation: of a processor with everything, of RK3588's, and of an older one.
test-arm: export QEMU_CPU := max
test-arm: export RINGLINE_BEST_ISA := i8mm
test-arm: $(VENV)/.packages
	@command -v $(ARM_CXX) > /dev/null && command -v qemu-aarch64 > /dev/null || \
	  { echo 'test-arm needs a cross compiler and an emulator:' \
	    'on Debian run apt-get install g++-aarch64-linux-gnu qemu-user'; exit 1; }
	$(call native_tests,arm,Release,,$(ARM))
	QEMU_CPU=cortex-a76 RINGLINE_BEST_ISA=dotprod $(call native_ctest,arm) -R 'isa|matmul'
	QEMU_CPU=cortex-a72 RINGLINE_BEST_ISA=portable $(call native_ctest,arm) -R isa

# What an RK3588 should do, without one.
estimate-a76: $(VENV)/.packages
	@$(BIN)/python -m bench.estimate --cxx $(ARM_CXX)

comma := ,

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Not part of `clean`: to fetch the models again takes longer than to build everything.
clean-data:
	rm -rf $(DATA)
