#!/usr/bin/env bash
# Builds the release preset into build/release: everything, or the targets that are named.
#   scripts/build.sh [TARGET…]
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release ${1:+--target "$@"}
