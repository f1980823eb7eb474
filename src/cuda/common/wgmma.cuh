// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/mma.cuh"

/// Products of a warpgroup, four warps of which each has 16 of the 64 rows (sm_90a only): the left
/// operand and the sums in registers, in the fragments of mma.cuh; the right operand a tile of rows
/// of 128 bytes in shared memory, SwizzledTile<64>, that begins at a multiple of 1024 bytes.
///
/// They run on their own: operands and sums of one that was issued are nobody's until a wait says
/// that its group is done. The compiler keeps to that within one turn of a loop; across turns it
/// gives up and puts every product in order (ptxas warns: C7510, C7514, C7517), so sums are read in
/// the turn that issued their group, or held.
namespace k3::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define K3_HAS_WGMMA 1
#endif

/// Before the first product of a group: registers written until now are seen by it.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Makes a group of the products issued since the last one.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Returns once at most kPending groups are not done, the latest ones.
template <int kPending>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// No access of these registers moves from one side of this to the other.
template <int kCount>
__device__ void hold(FragmentC (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile(""
                 : "+f"(sums[i].c[0]), "+f"(sums[i].c[1]), "+f"(sums[i].c[2]),
                   "+f"(sums[i].c[3])::"memory");
}
template <int kCount>
__device__ void hold(FragmentA (&operands)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile(""
                 : "+r"(operands[i].a[0]), "+r"(operands[i].a[1]), "+r"(operands[i].a[2]),
                   "+r"(operands[i].a[3])::"memory");
}

/// A right operand as an instruction names it: its address, the distances between its groups of
/// eight rows (1024 bytes) and between tiles side by side, all in units of 16 bytes, and the
/// swizzle of 128 bytes.
__device__ inline std::uint64_t describe_tile(std::uint32_t address, std::uint32_t tile_bytes) {
  constexpr std::uint32_t kHigh = (1024U >> 4) | (1U << 30);
  const std::uint32_t low = (address >> 4) | (tile_bytes >> 4 << 16);
  return std::uint64_t{kHigh} << 32 | low;
}

/// 16 columns of a [64 x 64] tile, from `column` on, whose transpose multiplies.
__device__ inline std::uint64_t describe_columns(std::uint32_t tile, int column) {
  return describe_tile(tile + 2 * column, 16);  // one tile: its distance means nothing
}

/// 16 rows, from `row` on, of a tile [.. x 64] and of the next, `tile_bytes` further.
__device__ inline std::uint64_t describe_rows(std::uint32_t tile, int row,
                                              std::uint32_t tile_bytes) {
  return describe_tile(tile + 128 * row, tile_bytes);
}

/// sums = a B, or with kKeep sums + a B, where B is the transpose of what `describe_columns` names:
/// [64 x 16] times [16 x 64].
template <bool kKeep>
__device__ void issue_by_columns(FragmentC (&sums)[8], const FragmentA& a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      " %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, "
      " %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n}"
      : "+f"(sums[0].c[0]), "+f"(sums[0].c[1]), "+f"(sums[0].c[2]), "+f"(sums[0].c[3]),
        "+f"(sums[1].c[0]), "+f"(sums[1].c[1]), "+f"(sums[1].c[2]), "+f"(sums[1].c[3]),
        "+f"(sums[2].c[0]), "+f"(sums[2].c[1]), "+f"(sums[2].c[2]), "+f"(sums[2].c[3]),
        "+f"(sums[3].c[0]), "+f"(sums[3].c[1]), "+f"(sums[3].c[2]), "+f"(sums[3].c[3]),
        "+f"(sums[4].c[0]), "+f"(sums[4].c[1]), "+f"(sums[4].c[2]), "+f"(sums[4].c[3]),
        "+f"(sums[5].c[0]), "+f"(sums[5].c[1]), "+f"(sums[5].c[2]), "+f"(sums[5].c[3]),
        "+f"(sums[6].c[0]), "+f"(sums[6].c[1]), "+f"(sums[6].c[2]), "+f"(sums[6].c[3]),
        "+f"(sums[7].c[0]), "+f"(sums[7].c[1]), "+f"(sums[7].c[2]), "+f"(sums[7].c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "l"(b), "n"(kKeep ? 1 : 0));
}

/// The same where B is what `describe_rows` names: [64 x 16] times [16 x 128].
template <bool kKeep>
__device__ void issue_by_rows(FragmentC (&sums)[16], const FragmentA& a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      " %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, "
      " %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, "
      " %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, "
      " %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, keep, 1, 1, 1;\n}"
      : "+f"(sums[0].c[0]), "+f"(sums[0].c[1]), "+f"(sums[0].c[2]), "+f"(sums[0].c[3]),
        "+f"(sums[1].c[0]), "+f"(sums[1].c[1]), "+f"(sums[1].c[2]), "+f"(sums[1].c[3]),
        "+f"(sums[2].c[0]), "+f"(sums[2].c[1]), "+f"(sums[2].c[2]), "+f"(sums[2].c[3]),
        "+f"(sums[3].c[0]), "+f"(sums[3].c[1]), "+f"(sums[3].c[2]), "+f"(sums[3].c[3]),
        "+f"(sums[4].c[0]), "+f"(sums[4].c[1]), "+f"(sums[4].c[2]), "+f"(sums[4].c[3]),
        "+f"(sums[5].c[0]), "+f"(sums[5].c[1]), "+f"(sums[5].c[2]), "+f"(sums[5].c[3]),
        "+f"(sums[6].c[0]), "+f"(sums[6].c[1]), "+f"(sums[6].c[2]), "+f"(sums[6].c[3]),
        "+f"(sums[7].c[0]), "+f"(sums[7].c[1]), "+f"(sums[7].c[2]), "+f"(sums[7].c[3]),
        "+f"(sums[8].c[0]), "+f"(sums[8].c[1]), "+f"(sums[8].c[2]), "+f"(sums[8].c[3]),
        "+f"(sums[9].c[0]), "+f"(sums[9].c[1]), "+f"(sums[9].c[2]), "+f"(sums[9].c[3]),
        "+f"(sums[10].c[0]), "+f"(sums[10].c[1]), "+f"(sums[10].c[2]), "+f"(sums[10].c[3]),
        "+f"(sums[11].c[0]), "+f"(sums[11].c[1]), "+f"(sums[11].c[2]), "+f"(sums[11].c[3]),
        "+f"(sums[12].c[0]), "+f"(sums[12].c[1]), "+f"(sums[12].c[2]), "+f"(sums[12].c[3]),
        "+f"(sums[13].c[0]), "+f"(sums[13].c[1]), "+f"(sums[13].c[2]), "+f"(sums[13].c[3]),
        "+f"(sums[14].c[0]), "+f"(sums[14].c[1]), "+f"(sums[14].c[2]), "+f"(sums[14].c[3]),
        "+f"(sums[15].c[0]), "+f"(sums[15].c[1]), "+f"(sums[15].c[2]), "+f"(sums[15].c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "l"(b), "n"(kKeep ? 1 : 0));
}

}  // namespace k3::cuda
