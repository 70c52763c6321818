#!/usr/bin/env bash
# Installs the Debian 12 packages that this project needs, as root or through sudo; quick when all are there.
#   scripts/install-deps.sh [build]   what building and running takes
#   scripts/install-deps.sh test      and what scripts/test.sh takes besides
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache mold
  libboost1.81-dev                          # Asio and Beast, headers only
  libflatbuffers-dev flatbuffers-compiler   # message schema
  nlohmann-json3-dev libcli11-dev libfmt-dev
  libgtest-dev                              # with its sources, for cross and fuzz builds
  python3                                   # tests and tools
  curl jq ca-certificates                   # scripts
)
case "${1:-build}" in
  build) ;;
  test)
    packages+=(
      clang-16 libclang-rt-16-dev           # fuzz targets
      g++-powerpc64-linux-gnu qemu-user     # the node on a big-endian machine
      g++-aarch64-linux-gnu                 # the kernels of ARM
    )
    ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps: these packages are missing: ${missing[*]}; install them as root" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
install() { "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }
echo "installing ${missing[*]}"
# Without package lists, or with old ones, the first try fails.
install 2>/dev/null || { "${as_root[@]}" apt-get update -qq && install; }
