#!/bin/sh
# Runs the scenario over a real plugin under valgrind, by hand: it takes half a
# minute of CPU, and the plugin's own reports number hundreds.
#
#   tests/ffi/valgrind.sh PLUGIN MODULES
#
# MODULES is a folder with pair.mlir, summed2.mlir and train.mlir (the tests'
# fixture `modules` makes one). It fails if the innermost frame of any report is ours,
# or if a block is definitely lost.
set -eu
plugin=$1
modules=$2
here=$(cd "$(dirname "$0")" && pwd)
ffi=$here/../../fixtures/reference/ffi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -g -O1 -fPIC -shared "$ffi/pjrt_ffi.c" -ldl -o "$work/shim.so"
gcc -g "-I$ffi" "$here/scenario.c" -ldl -o "$work/scenario"
PJRT_PLUGIN=$plugin PJRT_REPLICAS=2 valgrind --error-limit=no --leak-check=full \
  --num-callers=40 "--log-file=$work/log" \
  "$work/scenario" "$work/shim.so" "$modules/pair.mlir" "$modules/summed2.mlir" \
  "$modules/train.mlir" /dev/null "$plugin"
tail -1 "$work/log"
if grep -E ' at 0x' "$work/log" | grep -E '\((pjrt|signature|json|library|failure|guard|train|scenario)[a-z_]*\.[ch]:' ||
  grep 'definitely lost: [1-9]' "$work/log"; then
  exit 1
fi
