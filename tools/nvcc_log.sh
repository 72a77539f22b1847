#!/bin/sh
# nvcc_log.sh LOG COMMAND...: runs the command with its output in LOG. If it fails the output is shown
# too; otherwise only its warnings are (ptxas reports registers and spills on every kernel: those are
# for tools/image_report).
log=$1
shift
"$@" >"$log" 2>&1
code=$?
if [ "$code" = 0 ]; then
    grep -i 'warning' "$log" >&2
else
    cat "$log" >&2
fi
exit "$code"
