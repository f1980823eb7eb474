#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build and the tests need on Debian 12. Does nothing where all of it is there.
set -euo pipefail

packages=(g++ make cmake ninja-build ccache git python3-venv libgtest-dev libhwy-dev libfmt-dev
  libcli11-dev nlohmann-json3-dev libpng-dev libjpeg62-turbo-dev libopenblas-pthread-dev)
[ "${1:-}" = ci ] && packages+=(clang-format-19 clang-14 libclang-rt-14-dev unzip)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "k3: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The plots need matplotlib; a virtual environment keeps it out of the system's Python.
root=$(cd "$(dirname "$0")/.." && pwd)
if ! python3 -c 'import matplotlib' 2>/dev/null && [ ! -x "$root/.venv/bin/python" ]; then
  python3 -m venv "$root/.venv"
  "$root/.venv/bin/pip" install -q --disable-pip-version-check matplotlib ||
    echo "k3: no matplotlib: plots are off"
fi
