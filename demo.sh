#!/usr/bin/env bash
# demo.sh [QUESTION]: from a fresh clone to an answer: installs what the build needs (Debian,
# Ubuntu), builds, downloads SmolLM2-135M-Instruct (98 MB) once, and asks it a question.
set -euo pipefail
cd "$(dirname "$0")"
question=${1:-What is the capital of France?}
export BRIM_MODELS=${BRIM_MODELS:-$PWD/models}

say() { printf '\n== %s\n' "$*" >&2; }

say "checking what the build needs"
tools/setup.sh
say "building (build/brim)"
make --no-print-directory all >build.log 2>&1 || {
    tail -n 40 build.log >&2
    exit 1
}
rm -f build.log
say "getting the model (in $BRIM_MODELS)"
build/brim pull smollm2-135m >/dev/null
say "build/brim run smollm2-135m \"$question\" --greedy -n 300"
build/brim run smollm2-135m "$question" --greedy -n 300
cat >&2 <<'END'

Next: build/brim run models/smollm2-135m.gguf      a chat
      build/brim bench models/smollm2-135m.gguf    how fast, beside what this machine can reach
      build/brim --help                             everything else
END
