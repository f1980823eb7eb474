# SPDX-License-Identifier: Apache-2.0
# The newcomer's commands. Everything else: cmake --list-presets.
BUILD ?= build
K3_CUDA_ARCHS ?= native
JOBS ?= $(shell nproc)

.PHONY: demo test build configure setup format gpu-bundle fuzz clean

demo: configure
	cmake --build $(BUILD) -j $(JOBS) --target k3_cli
	tools/demo.sh $(BUILD)

test: build
	ctest --test-dir $(BUILD) --output-on-failure --timeout 900 -j $(JOBS)
	@awk -f tools/count_tests.awk $(BUILD)/Testing/Temporary/LastTest.log

configure: setup
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DK3_CUDA_ARCHS='$(K3_CUDA_ARCHS)'

build: configure
	cmake --build $(BUILD) -j $(JOBS)

setup:
	tools/setup.sh

gpu-bundle: build
	tools/make_gpu_bundle.sh $(BUILD)

fuzz:
	tools/fuzz.sh

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-19 -i

clean:
	rm -rf $(BUILD)
