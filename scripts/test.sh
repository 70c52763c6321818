#!/usr/bin/env bash
# Builds and tests everything: a slice of each fuzz target, the kernels on emulated 64-bit ARM machines, the node's modules
# on an emulated big-endian one, then all CTest tests of the release build; the last lines are CTest's summary.
#   MYRIAD_TEST_DATA   folder with test data that may not be part of the project; tests that need it are skipped without
#   FUZZ_SECONDS       for each fuzz target; 10 by default, 0 leaves them out
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
if [ -z "${MYRIAD_TEST_DATA:-}" ] && [ -d ../shared/golden ]; then
  MYRIAD_TEST_DATA=$(cd ../shared && pwd)
fi
export MYRIAD_TEST_DATA=${MYRIAD_TEST_DATA:-}
[ -n "$MYRIAD_TEST_DATA" ] || unset MYRIAD_TEST_DATA
log=$(mktemp "${TMPDIR:-/tmp}/myriad-test.XXXXXX")
trap 'rm -f "$log"' EXIT
# Runs a command whose output matters only when it fails.
quietly() { "$@" >"$log" 2>&1 || { tail -n 60 "$log" >&2; echo "test: failed: $*" >&2; exit 1; }; }

say "installing what is missing"
scripts/install-deps.sh test

say "building the release preset"
quietly cmake --preset release
quietly cmake --build --preset release

fuzz_seconds=${FUZZ_SECONDS:-10}
if [ "$fuzz_seconds" -gt 0 ]; then
  mapfile -t fuzzers < <(find src -name '*_fuzz.cc' -exec basename {} .cc \; | sort)
  say "building ${#fuzzers[@]} fuzz targets"
  quietly cmake --preset fuzz
  quietly cmake --build --preset fuzz --target "${fuzzers[@]}"
  for fuzzer in "${fuzzers[@]}"; do
    say "fuzzing $fuzzer for $fuzz_seconds s"
    binary=$(find build/fuzz/src -name "$fuzzer" -type f -perm -u+x)
    quietly "$binary" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=build/fuzz/
    sed -n 's/^stat::number_of_executed_units: */  inputs tried: /p' "$log"
  done
fi

say "building the kernels for 64-bit ARM"
quietly cmake --preset arm64
quietly cmake --build --preset arm64 --target kernels_test
for cpu in max cortex-a72; do  # with the dot products of bytes and without
  say "testing them under qemu, CPU $cpu"
  quietly qemu-aarch64 -cpu "$cpu" build/arm64/src/kernels/kernels_test --gtest_brief=1
  tail -n 2 "$log"
done

say "building for big-endian PowerPC"
quietly cmake --preset ppc64
quietly cmake --build --preset ppc64
say "testing it under qemu"
ctest --preset ppc64 -j "$(nproc)" 2>&1 | tail -n 20

say "testing the release build"
ctest --preset release -LE long -j "$(nproc)"
