#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Benches our CUDA kernels, our decode in three launches and a peer's decode and prefill kernels one
# after the other on this machine, and puts the others' figures beside ours:
#   tools/bench_with_peers.sh BUNDLE_DIR PEER_PYTHONPATH RESULTS_DIR [OP...]
# BUNDLE_DIR       of tools/make_gpu_bundle.sh
# PEER_PYTHONPATH  a folder with fla-core (and einops, packaging where Python lacks them) unpacked
# RESULTS_DIR      gets bench-cuda.json (ours, joined), peer-chain.json, peer-fla.json and, where
#                  kda_prefill is benched, peer-fla-chunk.json, which tunes itself for minutes: no
#                  row is begun after PEER_LIMIT_S seconds (600)
# Python with torch and triton: PYTHON, or else python3.
set -euo pipefail

usage='usage: bench_with_peers.sh BUNDLE_DIR PEER_PYTHONPATH RESULTS_DIR [OP...]'
bundle=${1:?$usage}
peer_path=${2:?$usage}
results=${3:?$usage}
shift 3
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)

fail() {
  echo "bench_with_peers: $1" >&2
  exit 1
}
[[ -x $bundle/bin/k3 ]] || fail "$bundle has no bin/k3"
[[ -d $peer_path ]] || fail "$peer_path is no folder"
PYTHONPATH=$peer_path "$python" -c 'import fla, torch, triton' ||
  fail "$python cannot import torch, triton and fla (PYTHON names another)"
mkdir -p "$results"
"$bundle/bin/k3" bench "$@" --backend cuda --shapes full --peers "$root/bench/peers.json" \
  --json "$results/bench-cuda.json"
"$bundle/bin/k3_decode_chain" --json "$results/peer-chain.json"
PYTHONPATH=$peer_path "$python" "$root/bench/peers/fla_recurrent.py" \
  --json "$results/peer-fla.json"
peers=(chain fla)
if [[ $# -eq 0 || " $* " == *" kda_prefill "* ]]; then
  rm -f "$results/peer-fla-chunk.json"
  PYTHONPATH=$peer_path "$python" "$root/bench/peers/fla_chunk.py" \
    --json "$results/peer-fla-chunk.json" --limit-s "${PEER_LIMIT_S:-600}" ||
    echo "bench_with_peers: fla_chunk.py broke off; the rows it has written count" >&2
  peers+=(fla-chunk)
fi
failed=0
for peer in "${peers[@]}"; do
  "$python" "$root/tools/join_peers.py" "$results/bench-cuda.json" "$results/peer-$peer.json" ||
    [[ $# -gt 0 ]] || failed=1  # named ops may have no row of a peer
done
exit $failed
