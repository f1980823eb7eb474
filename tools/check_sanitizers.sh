#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests under AddressSanitizer and UndefinedBehaviorSanitizer, host code only.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset sanitize >/dev/null
cmake --build --preset sanitize
ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
  build-sanitize/tests/k3_tests --gtest_brief=1
