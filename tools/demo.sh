#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The recorded tensors one by one, then everything in one table, then a whole small K3 that writes.
# usage: demo.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
k3=$(cd "$1" && pwd)/k3
for op in kda_prefill kda_fused_decode situ_and_mul; do
  for file in "$root"/tests/data/"$op"_*.safetensors "$root"/tests/data/"$op".safetensors; do
    [ -e "$file" ] || continue
    echo "\$ k3 run $op --in tests/data/$(basename "$file") --compare --tol 0.002"
    "$k3" run "$op" --in "$file" --compare --tol 0.002
  done
done
echo
"$k3" demo "$root/tests/data"
echo
echo "\$ k3 generate --model examples/mini_k3/model --prompt 'In the beginning ' --tokens 300"
"$k3" generate --model "$root/examples/mini_k3/model" --prompt 'In the beginning ' --tokens 300
