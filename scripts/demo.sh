#!/usr/bin/env bash
# Shows Myriad at work on this machine: builds it, starts a fleet of eight nodes of 64 MiB each with the model that comes
# with it, streams text from the API, kills a node, streams again, and takes the fleet down.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$*"; }

say "installing what is missing"
scripts/install-deps.sh build
say "building build/release/myriad"
scripts/build.sh myriad

myriad=build/release/myriad
fleet=demo-$$
work=$(mktemp -d "${TMPDIR:-/tmp}/myriad-demo.XXXXXX")
export MYRIAD_RUN_DIR=$work/run MYRIAD_CACHE_DIR=$work/cache
cleanup() {
  "$myriad" fleet down --fleet "$fleet" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

say "starting a controller, eight nodes of 64 MiB and a gateway"
"$myriad" fleet up models/tiny-k3 --fleet "$fleet" --nodes 8 --node-memory 64MiB --context 512 --http 127.0.0.1:0 2>/dev/null
url=$("$myriad" fleet status --fleet "$fleet" --json | jq -r .url)

prompt="In the beginning God created"
# The text of a streamed completion, as it comes.
complete() {
  curl -sSN --fail --max-time 60 "$url/v1/completions" -H 'Content-Type: application/json' \
    -d "$(jq -n --arg p "$prompt" '{model: "tiny-k3", prompt: $p, max_tokens: 40, temperature: 0, stream: true}')" |
    sed -u -n 's/^data: //p' | grep --line-buffered -v '^\[DONE\]' | jq -j --unbuffered '.choices[0].text // empty'
}
say "streaming from $url/v1/completions"
printf '%s' "$prompt"
complete | tee "$work/before"
echo

say "the same prompt in one process, without a fleet"
"$myriad" run models/tiny-k3 -p "$prompt" -n 40 2>/dev/null | tee "$work/alone"
[ "$prompt$(cat "$work/before")" = "$(cat "$work/alone")" ] || { echo "demo: the texts differ" >&2; exit 1; }

say "killing node n3 as a power cut would, and waiting until the others hold its parts"
"$myriad" fleet kill n3 --fleet "$fleet"
healed() { [ "$("$myriad" fleet status --fleet "$fleet" --json | jq -r '.state')" = ready ]; }
deadline=$((SECONDS + 60))
until healed && ! "$myriad" fleet status --fleet "$fleet" --json | jq -e '.stages[] | select(.lead == "n3")' >/dev/null; do
  [ $SECONDS -lt $deadline ] || { echo "demo: the fleet did not recover in 60 s" >&2; exit 1; }
  sleep 0.1
done
printf '%s' "$prompt"
complete | tee "$work/after"
echo
cmp "$work/before" "$work/after"

say "taking the fleet down"
"$myriad" fleet down --fleet "$fleet"
say "done: eight processes held the model in pieces, gave the text that one process gives, lost one and gave it again"
