# SPDX-License-Identifier: Apache-2.0
# Adds up what GoogleTest says in a log of ctest: tests passed and skipped, and why.
/^\[  PASSED  \]/ { passed += $4 }
/^\[  SKIPPED \]/ { skipped += $4 }
/: Skipped$/ {
  getline reason
  count[substr(reason, 1, 100)]++
}
END {
  print passed + 0 " tests passed, " skipped + 0 " skipped"
  for (reason in count) print count[reason] " skipped: " reason
}
