#!/usr/bin/env bash
# check.sh [--quick | --long]: everything that must pass before a change lands.
#   (default)  release build and all its tests (unit tests, fuzz corpora, command transcripts,
#              tools/tidy), all of them again under the address and undefined behaviour sanitizers,
#              and the tests with threads under the thread sanitizer. The device code is compiled
#              once, in the release build, and what the compiler says of it is checked; running it
#              takes a GPU: make check-gpu
#   --quick    the release build and its tests alone
#   --long     the default, then every fuzzer for BRIM_FUZZ_SECONDS (600) seconds
# Ends with "N passed, N failed", and what was not run before it; exits with 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
tier=${1:-}
case "$tier" in
'' | --quick | --long) ;;
*)
    sed -n '2,10p' "$0" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
passed=0
failed=0
not_run=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
fail() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$*"
}

configure_and_build() { # configure_and_build FOLDER [CMAKE_OPTION...]
    local folder=$1
    shift
    local generator=() launcher=()
    command -v ninja >/dev/null && generator=(-G Ninja)
    command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
    [ ! -e "$folder/CMakeCache.txt" ] || generator=()
    if ! { cmake -S . -B "$folder" "${generator[@]}" "${launcher[@]}" "$@" &&
        cmake --build "$folder" --parallel "$jobs"; } >"$log" 2>&1; then
        tail -n 60 "$log"
        fail "the build in $folder"
        return 1
    fi
    # Warnings are shown: the build is meant to have none.
    grep -E 'warning( #[0-9]+-D)? ?:' "$log" | sort -u | head -n 20
    return 0
}

run_tests() { # run_tests FOLDER [CTEST_OPTION...]
    local folder=$1
    shift
    ctest --test-dir "$folder" --parallel "$jobs" --timeout 900 --output-on-failure "$@" 2>&1 | tee "$log"
    local line
    line=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$log") || {
        fail "ctest in $folder ran no test"
        return
    }
    local bad all
    bad=$(sed -E 's/.* ([0-9]+) tests? failed.*/\1/' <<<"$line")
    all=$(sed -E 's/.* out of ([0-9]+).*/\1/' <<<"$line")
    failed=$((failed + bad))
    passed=$((passed + all - bad))
    [ "$bad" = 0 ] || printf 'to see it again: ctest --test-dir %s --rerun-failed --output-on-failure\n' "$folder"
}

say "what the build needs"
setup=()
[ "$tier" != --long ] || setup=(--fuzz)
tools/setup.sh "${setup[@]}" || exit 1

say "the compiler for device code"
cuda=(-DBRIM_CUDA=OFF)
if nvcc=$(tools/cuda_toolchain.sh); then
    echo "$nvcc"
    cuda=(-DBRIM_CUDA=ON "-DBRIM_NVCC=$nvcc" -DBRIM_CUDA_ONLY=)
else
    not_run+=("device images: no CUDA compiler, so none was built, embedded or reported")
fi

say "release build"
configure_and_build build "${cuda[@]}" || exit 1
# The other builds embed the same images.
cuda=("-DBRIM_CUDA_IMAGES=$PWD/build/cuda")

if [ -n "$nvcc" ]; then
    say "device images: registers, spills, size"
    if tools/image_report build/cuda; then
        passed=$((passed + 1))
    else
        fail "tools/image_report build/cuda"
    fi
    say "the programs of bench/peers, compiled"
    if ! echo '#include <cublas_v2.h>' | "$nvcc" -E -x cu - >/dev/null 2>&1; then
        not_run+=("bench/peers: cuBLAS is not installed, so they were not compiled")
    elif cmake --build build --target peers >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        tail -n 20 "$log"
        fail "cmake --build build --target peers"
    fi
fi

say "the model for the tests"
export BRIM_MODELS=${BRIM_MODELS:-$PWD/models}
if model=$(build/brim pull smollm2-135m); then
    export BRIM_MODEL=${BRIM_MODEL:-$model}
else
    fail "brim pull smollm2-135m (the tests that need the model will be skipped)"
fi

say "release tests"
run_tests build

if [ "$tier" != --quick ]; then
    say "address and undefined behaviour sanitizers"
    if configure_and_build build-asan "${cuda[@]}" -DBRIM_SANITIZE=address,undefined -DBRIM_BENCH=OFF; then
        UBSAN_OPTIONS=print_stacktrace=1 run_tests build-asan -LE once
    fi
    say "thread sanitizer"
    if configure_and_build build-tsan "${cuda[@]}" -DBRIM_SANITIZE=thread -DBRIM_BENCH=OFF; then
        run_tests build-tsan -L threads
    fi
fi

if [ "$tier" = --long ]; then
    seconds=${BRIM_FUZZ_SECONDS:-600}
    say "fuzzers, $seconds s each"
    if configure_and_build build-fuzz "${cuda[@]}" -DCMAKE_C_COMPILER=clang -DBRIM_FUZZ=ON -DBRIM_BENCH=OFF \
        -DBRIM_SANITIZE=address,undefined; then
        for program in build-fuzz/fuzz/fuzz_*; do
            name=$(basename "$program")
            noun=${name#fuzz_}
            mkdir -p "build-fuzz/new/$noun"
            if "$program" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
                -artifact_prefix="build-fuzz/$name-" "build-fuzz/new/$noun" "fuzz/corpus/$noun" >"$log" 2>&1; then
                passed=$((passed + 1))
                printf '%-24s %s\n' "$name" "$(grep -E 'number_of_executed_units' "$log")"
            else
                tail -n 40 "$log"
                fail "$name (the input is build-fuzz/$name-*)"
            fi
        done
    fi
fi

printf '\n'
skipped=
if [ ${#not_run[@]} -gt 0 ]; then
    printf 'not run: %s\n' "${not_run[@]}"
    skipped=", ${#not_run[@]} skipped"
fi
printf '%d passed, %d failed%s\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
