#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rules that a compiler does not check.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
complain() { echo "check_rules: $1"; failed=1; }

sources=$(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

# Public headers show no type of another library.
grep -nE '#include *[<"](cuda|cute|cutlass|dlpack|fmt|nlohmann|hwy|omp)' -r include &&
  complain "a public header includes another library"
# Highway's own conversions to bf16 truncate.
grep -nE 'BF16FromF32|ReorderDemote2To|PromoteTo\(.*bfloat16|DemoteTo\(.*bfloat16' -r src/cpu &&
  complain "use bf16-inl.h: Highway's bf16 conversions truncate"
# OpenMP lives behind parallel_for.
grep -ln '#pragma omp' $sources | grep -vE '^(src/cpu/parallel.h|harness/ceilings.cpp)$' &&
  complain "an omp pragma outside src/cpu/parallel.h"
for file in $sources; do
  head -1 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || complain "$file: no SPDX line"
  lines=$(wc -l <"$file")
  [ "$lines" -le 620 ] || complain "$file: $lines lines"
done
exit $failed
