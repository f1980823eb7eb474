#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into a scratch prefix and uses it from a project that knows only find_package, and
# from one that knows only pkg-config. usage: check_install.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
cmake -S "$root/examples/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$scratch/consumer" >/dev/null
for program in situ_shared situ_static decode_step; do
  "$scratch/consumer/$program"
done

libdir=$(dirname "$(find "$scratch/prefix" -name libk3.so | head -1)")
if command -v pkg-config >/dev/null; then
  flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs k3)
  g++ -std=c++20 "$root/examples/consumer/situ.cpp" -o "$scratch/situ" $flags
  LD_LIBRARY_PATH="$libdir" "$scratch/situ"
fi
