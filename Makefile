# Thin: CMake does the work. `make` leaves build/brim and build/libbrim.so.
BUILD ?= build
PREFIX ?= /usr/local
GENERATOR := $(if $(shell command -v ninja),-G Ninja)
CACHE := $(if $(shell command -v ccache),-DCMAKE_C_COMPILER_LAUNCHER=ccache)

.PHONY: all test check check-gpu carry install fuzz format clean

all: $(BUILD)/CMakeCache.txt
	cmake --build $(BUILD) --parallel

$(BUILD)/CMakeCache.txt:
	cmake -S . -B $(BUILD) $(GENERATOR) $(CACHE) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

test: all
	ctest --test-dir $(BUILD) --output-on-failure

check:
	./check.sh

# carry/: what a machine with a GPU needs to run the checks there, without building (tools/carry).
carry: all
	tools/carry $(BUILD) carry

# On a machine with a GPU: out of carry/ if there is one, otherwise out of the build (tools/check_gpu.sh).
check-gpu:
	tools/check_gpu.sh

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

# The libFuzzer programs, in build-fuzz/fuzz/.
fuzz:
	cmake -S . -B build-fuzz $(GENERATOR) $(CACHE) -DCMAKE_C_COMPILER=clang -DBRIM_FUZZ=ON \
	    -DBRIM_BENCH=OFF -DBRIM_SANITIZE=address,undefined
	cmake --build build-fuzz --parallel

format:
	clang-format -i $$(find src include cli test fuzz bench examples -name '*.[ch]')

clean:
	rm -rf build build-asan build-tsan build-fuzz build-debug carry
