#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gathers a finished build into one folder that runs on a machine with nothing but an NVIDIA driver:
#   tools/make_gpu_bundle.sh BUILD_DIR [OUT_DIR]        OUT_DIR: build-bundle
# Then, there:  ./run_all.sh [RESULTS_DIR]
set -euo pipefail

build=${1:?usage: make_gpu_bundle.sh BUILD_DIR [OUT_DIR]}
for program in k3 k3_decode_chain k3_device_base libk3.so tests/k3_tests; do
  if [[ ! -e $build/$program ]]; then
    echo "make_gpu_bundle: $build has no $program: not a finished build with CUDA" >&2
    exit 1
  fi
done
source_dir=$(cd "$(dirname "$0")/.." && pwd)
out=${2:-$source_dir/build-bundle}

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib"
install -m 755 "$build/k3" "$build/k3_decode_chain" "$build/k3_device_base" "$out/bin/"
find "$build/tests" -maxdepth 1 -type f -perm -u+x -name '*tests' -exec cp {} "$out/bin/" \;
cp -L "$build/libk3.so" "$out/lib/libk3.so.0"
ln -s libk3.so.0 "$out/lib/libk3.so"

# Everything but the C library and the driver travels along, under the names that the loader asks
# for; the binaries look for them in ../lib.
system='^(linux-vdso|ld-linux|libc|libm|libpthread|libdl|librt|libcuda)[.-]'
for binary in "$out"/bin/* "$out/lib/libk3.so.0"; do
  ldd "$binary" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r name path; do
    [[ $name =~ $system || -e $out/lib/$name ]] || cp -L "$path" "$out/lib/$name"
  done
done

mkdir -p "$out/tests"
cp -r "$source_dir/tests/data" "$out/tests/"
cp -r "$source_dir/examples/mini_k3/model" "$out/tests/mini_k3_model"
strip --strip-debug "$out"/bin/* "$out"/lib/*.so.*

cat > "$out/run_all.sh" <<'RUN'
#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks, tests and benches everything on this machine, CPU and GPU. Logs and the benches' JSON go
# to the results folder.
set -uo pipefail
cd "$(dirname "$0")"
results=${1:-results}
mkdir -p "$results"
export K3_TEST_DATA=$PWD/tests/data K3_MINI_MODEL=$PWD/tests/mini_k3_model
failed=0
step() {
  local name=$1
  shift
  if "$@" > "$results/$name.log" 2>&1; then
    echo "ok      $name"
  else
    echo "FAILED  $name (exit $?)"
    tail -n 20 "$results/$name.log"
    failed=1
  fi
}

step info bin/k3 info
step ops bin/k3 ops
step check bin/k3 check
for test in bin/*tests; do
  step "$(basename "$test")" "$test" --gtest_brief=1
done
step generate bin/k3 generate --model "$K3_MINI_MODEL" --prompt 'In the beginning '
for backend in cuda cpu; do
  step "bench-$backend" bin/k3 bench --backend "$backend" --json "$results/bench-$backend.json"
done
exit $failed
RUN
chmod +x "$out/run_all.sh"
du -sh "$out"
