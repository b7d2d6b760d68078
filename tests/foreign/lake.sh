#!/bin/sh
# A stand-in for lake: it notes what was asked of it, and makes what would be built. It proves nothing.
echo "$PWD|$*|$CUDA_VISIBLE_DEVICES" >>"$LAKE_LOG"
pin=$(cat lean-toolchain)
case "$pin" in
*nobody*) echo "error: toolchain '$pin' does not exist" >&2; exit 1 ;;
esac
case "$1 $2" in
"--version ") echo "Lake version 5.0.0 (Lean version ${pin##*:v})" ;;
"exe cache") ;;
"build Proofs"*)
  grep -rq "^broken" --include=*.lean . && { echo "error: unknown identifier" >&2; exit 1; }
  grep -rn "sorry" --include=*.lean . | sed "s/:.*/: warning: declaration uses 'sorry'/"
  mkdir -p .lake/build && echo proved >".lake/build/$2.olean"
  ;;
"build learner")
  test -f ffi/libpjrt_ffi.so || { echo "cannot find ffi/libpjrt_ffi.so" >&2; exit 1; }
  mkdir -p .lake/build/bin
  cc learner.c -ldl -o .lake/build/bin/learner
  ;;
*) echo "unknown target $*" >&2; exit 1 ;;
esac
