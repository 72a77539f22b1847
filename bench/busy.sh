#!/usr/bin/env bash
# busy.sh MODEL [BRIM] [PAIRS]: what a busy neighbour costs. One endless loop is bound to one CPU; then
# decode with one lane and with two, in turn. Prints tokens/s of each pair, the medians and their ratio.
# A spinning barrier falls to about a tenth here, because its two threads wait for the one that shares
# its CPU with the loop.
set -euo pipefail
model=${1:?usage: busy.sh MODEL [BRIM] [PAIRS]}
brim=${2:-build/brim}
pairs=${3:-7}
taskset -c 1 sh -c 'while :; do :; done' &
loop=$!
trap 'kill "$loop"' EXIT

decode() { # decode LANES: tokens/s
    "$brim" run "$model" "Write a long story about the sea." --greedy -n 200 --threads "$1" --json 2>/dev/null |
        python3 -c 'import json, sys; print("%.1f" % json.load(sys.stdin)["decode_tok_s"])'
}
one=()
two=()
for ((i = 0; i < pairs; i++)); do
    one+=("$(decode 1)")
    two+=("$(decode 2)")
    echo "pair $((i + 1)): 1 lane ${one[$i]}, 2 lanes ${two[$i]} tokens/s"
done
python3 - "${one[*]}" "${two[*]}" <<'END'
import statistics, sys
one, two = (statistics.median(map(float, words.split())) for words in sys.argv[1:])
print(f"medians: 1 lane {one:.1f}, 2 lanes {two:.1f} tokens/s; ratio {two / one:.2f}")
END
