#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests under AddressSanitizer and UndefinedBehaviorSanitizer, host code only.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset sanitize >/dev/null
cmake --build --preset sanitize

# A share of the tests for each core. The machine's own SIMD target is enough here.
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export GTEST_TOTAL_SHARDS=$(nproc)
shares=()
for ((share = 0; share < GTEST_TOTAL_SHARDS; ++share)); do
  GTEST_SHARD_INDEX=$share build-sanitize/tests/k3_tests --gtest_brief=1 \
    --gtest_filter='-*SimdTarget*' &
  shares+=($!)
done
for share in "${shares[@]}"; do wait "$share"; done
