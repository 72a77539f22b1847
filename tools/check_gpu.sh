#!/usr/bin/env bash
# check_gpu.sh [NAME...]: what takes a GPU to check, in under ten minutes: the programs of test/gpu, the
# compute-sanitizer, benchmarks, and what others reach (bench/peers). Runs out of the folder that
# tools/carry made (its own, or carry/), otherwise out of build/. Changes no setting of the GPU.
# With NAMEs (or beginnings of names) those lines alone.
#
#   OUT                    folder for check_gpu.json and check_gpu.log (bench/results)
#   BRIM_COMMIT            what was built (commit.txt of the folder)
#   BRIM_CHECK_GPU_SECONDS no line starts that could end later than this (570)
#
# A line passes when its command exits with 0; 77 means that it could not run, and its last line of
# output says why. JSON objects that a command prints, each from the start of a line, are kept with it.
# Ends with "N passed, N failed, N skipped"; exits with 1 if anything failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -e "$here/commit.txt" ]; then
    root=$here
else
    cd "$here/.." || exit 1
    root=$PWD/build
    [ ! -e carry/commit.txt ] || root=$PWD/carry
fi
peers=$root/peers
scripts=$peers
if [ "$root" = "$PWD/build" ]; then
    peers=$root/bench/peers
    scripts=$PWD/bench/peers
fi
BRIM=$root/brim

# ---- the list: name | seconds at most | command ----
# T is the folder of the test programs, P of the peers' programs, S of their scripts, M of the models,
# which are made when a line first names them. `sanitize TOOL PROGRAM...` runs under the
# compute-sanitizer. Programs of test/gpu that no line names get one of their own.
lines() {
    cat <<'END'
hardware           |  20 | $BRIM hw
probe              |  60 | $T/gpu_probe --json
resident           |  60 | $T/gpu_resident $M/small.gguf
resident_generic   |  60 | $T/gpu_resident $M/small.gguf --generic
memcheck_probe     |  60 | sanitize memcheck $T/gpu_probe
memcheck_resident  |  90 | sanitize memcheck $T/gpu_resident $M/small.gguf --lanes 8
racecheck_resident |  90 | sanitize racecheck $T/gpu_resident $M/small.gguf --lanes 8
read_bandwidth     |  60 | $P/read_bandwidth 2.5 16
litmus             |  30 | $T/gpu_litmus
sample             |  40 | $T/gpu_sample
bits               |  60 | $T/gpu_bits $M/small.gguf
stress             |  60 | $T/gpu_stress $M/small.gguf
errors             |  60 | $T/gpu_errors $M/small.gguf
decode_1b          |  30 | $T/gpu_decode $M/1b.gguf --json
decode_1b_sampled  |  30 | $T/gpu_decode $M/1b.gguf --sampled --json
decode_1b_8_rows   |  30 | $T/gpu_decode $M/1b.gguf --sessions 8 --json
decode_1b_8k       |  30 | $T/gpu_decode $M/1b.gguf --position 8192 --json
decode_8b          |  60 | $T/gpu_decode $M/8b.gguf --json
decode_135m        |  30 | $T/gpu_decode $M/135m.gguf --json
bench_1b           |  60 | $BRIM bench $M/1b.gguf --device cuda -p 0 -n 512 --json
cublas_1b          |  60 | $P/cublas_graph 1b
bench_8b           | 120 | $BRIM bench $M/8b.gguf --device cuda -p 0 -n 256 --json
cublas_8b          |  60 | $P/cublas_graph 8b
torch_1b           | 150 | python3 $S/torch_decode.py --models 1b --ways graph,compile
torch_8b           | 220 | python3 $S/torch_decode.py --models 8b --ways graph,regional,compile
torch_1b_autotune  | 200 | python3 $S/torch_decode.py --models 1b --ways autotune
END
}

model_options() { # model_options NAME: what $M/NAME.gguf is made of
    case $1 in
    small) echo --shape llama-3.2-1b --type BF16 --layers 2 --vocab 4096 ;;
    1b) echo --shape llama-3.2-1b --type BF16 ;;
    8b) echo --shape llama-3.1-8b --type BF16 ;;
    135m) echo --shape smollm2-135m --type BF16 ;;
    esac
}

most=${BRIM_CHECK_GPU_SECONDS:-570}
out=${OUT:-bench/results}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$out/check_gpu.log
: >"$log"
T=$root/test
P=$peers
S=$scripts
M=$work/models
mkdir -p "$M"
passed=0 failed=0 skipped=0 number=0

# cuBLAS: where the loader looks, CUDA's folder, or beside PyTorch.
cublas_folder() {
    local folder
    for folder in /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64 \
        "$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)"/*/lib; do
        [ ! -e "$folder/libcublas.so.13" ] || {
            echo "$folder"
            return
        }
    done
}
cublas=$(cublas_folder)

sanitize() { # sanitize TOOL COMMAND...
    local tool=$1 sanitizer
    shift
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$sanitizer" ] || {
        echo "compute-sanitizer is not installed"
        return 77
    }
    "$sanitizer" --tool "$tool" --error-exitcode 99 "$@"
}

gpu_state() {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu,power.draw,memory.used,utilization.gpu \
        --format=csv,noheader,nounits 2>/dev/null | head -n 1
}

no_gpu=
python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null || no_gpu="there is no libcuda.so.1 here"

record() { # record NAME RESULT SECONDS WHY COMMAND [OUTPUT_FILE]
    number=$((number + 1))
    local at
    at=$work/$(printf '%04d' "$number")
    printf '%s\n' "$1" "$2" "$3" "$4" "$5" >"$at.line"
    [ -z "${6:-}" ] || cp "$6" "$at.output"
    case $2 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    *) skipped=$((skipped + 1)) ;;
    esac
    printf '%-20s %-8s %5s s  %s\n' "$1" "$2" "$3" "$4"
}

too_late() { # too_late NAME SECONDS COMMAND
    [ $((SECONDS + $2)) -gt "$most" ] || return 1
    record "$1" "not run" 0 "it may take $2 s, and $((most - SECONDS)) of $most s are left" "$3"
}

run_line() { # run_line NAME SECONDS COMMAND
    local name=$1 limit=$2 command=$3 began=$SECONDS code program
    if [ -n "$no_gpu" ]; then
        record "$name" "not run" 0 "$no_gpu" "$command"
        return
    fi
    if too_late "$name" "$limit" "$command"; then
        return
    fi
    # shellcheck disable=SC2016 # the words are looked at before they are expanded
    for program in $command; do
        case $program in
        '$BRIM' | '$T/'* | '$P/'* | '$S/'*)
            program=$(eval "echo $program")
            if [ ! -e "$program" ]; then
                record "$name" "not run" 0 "$(basename "$program") is not here" "$command"
                return
            fi
            ;;
        '$M/'*.gguf)
            program=$(basename "$program" .gguf)
            # Word by word:
            # shellcheck disable=SC2046
            if [ ! -e "$M/$program.gguf" ] &&
                ! timeout 150 "$BRIM" make $(model_options "$program") -o "$M/$program.gguf" >>"$log" 2>&1; then
                record "$name" failed $((SECONDS - began)) "its model could not be made" "$command"
                return
            fi
            began=$SECONDS
            ;;
        esac
    done
    # A model may have taken its time.
    if too_late "$name" "$limit" "$command"; then
        return
    fi
    export -f sanitize
    export BRIM T P S M
    local path=${LD_LIBRARY_PATH:-}
    case $command in *cublas*) path=$cublas${path:+:$path} ;; esac
    LD_LIBRARY_PATH=$path timeout -k 5 "$limit" bash -c "$command" >"$work/output" 2>&1 </dev/null
    code=$?
    { printf '\n==== %s: %s\n' "$name" "$command" && cat "$work/output"; } >>"$log"
    case $code in
    0) record "$name" passed $((SECONDS - began)) "" "$command" "$work/output" ;;
    77) record "$name" "not run" $((SECONDS - began)) "$(tail -n 1 "$work/output")" "$command" "$work/output" ;;
    124 | 137) record "$name" failed $((SECONDS - began)) "ran longer than $limit s" "$command" "$work/output" ;;
    *)
        record "$name" failed $((SECONDS - began)) "exit code $code" "$command" "$work/output"
        tail -n 15 "$work/output" | cut -c1-300 | sed 's/^/    /'
        ;;
    esac
}

wanted() { # wanted NAME
    [ ${#names[@]} -gt 0 ] || return 0
    local name
    for name in "${names[@]}"; do
        case $1 in "$name"*) return 0 ;; esac
    done
    return 1
}

names=("$@")
commit=${BRIM_COMMIT:-$(cat "$root/commit.txt" 2>/dev/null || git rev-parse HEAD 2>/dev/null || echo unknown)}
before=$(gpu_state)
printf 'GPU before: %s\ncommit: %s\n' "${before:-nvidia-smi does not answer}" "$commit"
while IFS='|' read -r name limit command; do
    name=$(xargs <<<"$name")
    wanted "$name" && run_line "$name" "$(xargs <<<"$limit")" "${command# }"
    # After the line "probe": the programs that no line names.
    if [ "$name" = probe ]; then
        for program in "$T"/gpu_*; do
            other=$(basename "$program")
            if [ -x "$program" ] && ! lines | grep -qF "/$other" && wanted "${other#gpu_}"; then
                run_line "${other#gpu_}" 60 "\$T/$other"
            fi
        done
    fi
done < <(lines)
after=$(gpu_state)
printf 'GPU after:  %s\n' "${after:-nvidia-smi does not answer}"

python3 - "$work" "$out/check_gpu.json" "$commit" "$before" "$after" "$SECONDS" <<'END'
import glob, json, os, sys, time
work, out, commit, before, after, seconds = sys.argv[1:]
keys = ["gpu", "driver", "sm_mhz", "memory_mhz", "sm_mhz_max", "memory_mhz_max", "temperature_c",
        "power_w", "memory_used_mib", "utilization_percent"]

def state(text):
    words = [word.strip() for word in text.split(",")]
    if len(words) != len(keys):
        return None
    return {key: word if key in ("gpu", "driver") else number(word) for key, word in zip(keys, words)}

def number(word):
    try:
        return float(word)
    except ValueError:
        return None

def results(path):
    found = []
    if os.path.exists(path):
        with open(path, errors="replace") as file:
            text = "\n" + file.read()
        at = text.find("\n{")
        while at >= 0:
            try:
                value, end = json.JSONDecoder().raw_decode(text, at + 1)
                found.append(value)
            except ValueError:
                end = at + 1
            at = text.find("\n{", end)
    return found

lines = []
for path in sorted(glob.glob(os.path.join(work, "*.line"))):
    with open(path) as file:
        name, result, took, why, command = file.read().split("\n")[:5]
    line = {"name": name, "result": result, "seconds": float(took), "command": command}
    if why:
        line["why"] = why
    line["figures"] = results(path[:-len("line")] + "output")
    lines.append(line)
with open(out, "w") as file:
    json.dump({"commit": commit, "date": time.strftime("%Y-%m-%d"), "seconds": float(seconds),
               "before": state(before), "after": state(after), "lines": lines}, file, indent=1)
    file.write("\n")
print("written:", out)
END
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
