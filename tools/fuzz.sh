#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Feeds hostile files to the safetensors reader. usage: fuzz.sh [SECONDS]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:-60}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
clang++-14 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -DFMT_HEADER_ONLY -I"$root/include" -I"$root/src" -I"$root" \
  "$root"/tests/fuzz/safetensors_fuzz.cpp "$root"/src/io/safetensors.cpp \
  "$root"/src/core/tensor.cpp "$root"/src/core/error.cpp -o "$scratch/fuzz"
mkdir "$scratch/corpus"
"$scratch/fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  "$scratch/corpus" "$root/tests/fuzz/corpus" 2>"$scratch/log" || { tail -40 "$scratch/log"; exit 1; }
grep -E 'stat::number_of_executed_units|^Done' "$scratch/log"
