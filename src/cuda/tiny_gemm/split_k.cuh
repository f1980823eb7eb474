// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/bulk_copy.cuh"
#include "cuda/common/cluster.cuh"
#include "cuda/common/pdl.cuh"
#include "cuda/common/prefetch.cuh"
#include "cuda/tiny_gemm/tile.cuh"

/// The variant for long rows. The eight CTAs of a cluster make the same columns, each from its own
/// part of k; seven warps of a CTA divide that part once more. All of w is on its way before
/// anything waits for the previous kernel, and the CTAs of two launches or more fit the SMs side by
/// side, so that the memory never rests.
///
/// Columns come in tiles of 16: rows 2g and 2g + 1 of a tile of w are the rows g and g + 8 of the
/// 16-row operand, eight rows of x the other one. So a lane's sums are of two neighbouring columns,
/// and rows of x past the eighth make products of their own, in the same CTA or in others.
///
///   warps 0-6  math, four chunks at a time; the last one also makes and arms the barriers and,
///   past
///              the cluster's sums, stores what the CTA owns
///   warp 7     where w goes to shared memory, takes both over from warp 6 and loads w, a few
///   pieces
///              of eight rows at a time, so that x need not queue behind the next launch's w
///   w          one tile: global -> registers. More: global -> shared by bulk copies, a row of the
///              part each; rows are 32 bytes more than a multiple of 64 apart, so that no two lanes
///              of a chunk meet in a bank
///   x          global -> registers after pdl_wait, each element once a CTA
///   sums       of a warp: in shared memory, where w was there over what this very lane has read;
///              of the CTA: in the order of its warps, sent to the CTA that owns these two rows of
///              the tile; of the cluster: in the order of its CTAs
///   full       of each piece, one phase: its rows of w are here
///   arrived    one phase: all sums of what this CTA owns are here. Armed before the cluster
///              barrier, which every thread passes long before the first sending
///
/// In shared memory a lane may read up to three chunks past its warp's part of w: another warp's,
/// its sums, or what peers send. It meets x = 0 there and its sums are dropped; `received` stands
/// behind w, so that the reads stay in bounds.
///
/// From pdl_wait on, all launches of a chain wait for each instruction. So addresses are made ahead
/// of it, and no loop over chunks, tiles or warps has a branch: what does not exist is zero.
namespace k3::cuda {

inline constexpr int kSplitKCluster = 8;
inline constexpr int kSplitKWarps = 7;   ///< of math: an eighth of 7168 is 28 chunks, four for each
inline constexpr int kSplitKChunks = 4;  ///< that a warp multiplies at once
inline constexpr int kTileColumns = 16;
inline constexpr int kPieceRows = 8;

struct SplitKPlan {
  int rows;             ///< of w a CTA, even
  int chunks_per_cta;   ///< as many in each CTA of a cluster hold K
  int chunks_per_warp;  ///< the last ones may have fewer
  int warps;            ///< that have chunks
  int pitch;            ///< of rows of w in shared memory, in 16 bytes
};

/// @tparam kTiles_  of columns a CTA
template <int kTiles_>
struct SplitKTraits {
  static constexpr int kTiles = kTiles_;
  static constexpr bool kInRegisters = kTiles == 1;  ///< w
  static constexpr int kThreads = 32 * (kSplitKWarps + (kInRegisters ? 0 : 1));
  static constexpr int kChains = kTiles == 1 ? 4 : kTiles == 2 ? 2 : 1;
  static constexpr int kPieces = kTiles * kTileColumns / kPieceRows;

  /// Of shared memory: w, or the sums of the warps.
  __host__ __device__ static int weights_bytes(const SplitKPlan& plan) {
    return kInRegisters ? 2 * 512 * kSplitKWarps : 16 * plan.rows * plan.pitch;
  }
  /// And what `arrived` counts.
  static int smem_bytes(const SplitKPlan& plan) {
    return weights_bytes(plan) + 16 * 8 * kTiles * kSplitKCluster;
  }
};

/// The copies of a piece's rows; a whole warp. Rows past the last one of w are left out.
__device__ inline void load_piece(const TinyGemmParams& p, const SplitKPlan& plan, int piece,
                                  int n0, int k0, int row_bytes, uint4* weights, MBarrier* full) {
  const int lane = threadIdx.x % 32;
  const int first = kPieceRows * piece;
  const int rows = max(min(kPieceRows, min(plan.rows, p.N - n0) - first), 0);
  if (lane == 0) mbarrier_expect(full, static_cast<std::uint32_t>(rows * row_bytes));
  __syncwarp();
  if (lane < rows && row_bytes > 0)
    bulk_load(weights + (first + lane) * plan.pitch, p.w + (n0 + first + lane) * p.w_stride + k0,
              static_cast<std::uint32_t>(row_bytes), full);
}

/// A row's next chunks.
struct RowOfChunks {
  const bf16* at;
  int existing;  ///< of which this lane has something

  /// This lane's share of chunk `i` from here on; zero where nothing exists.
  [[nodiscard]] __device__ uint4 load(int i) const {
    uint4 value = {};
    asm volatile(
        "{\n.reg .pred p;\n"
        "setp.gt.s32 p, %5, %6;\n"
        "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
        : "l"(at + i * kChunk), "r"(existing), "r"(i)
        : "memory");
    return value;
  }
  /// For pdl_wait_after.
  [[nodiscard]] __device__ unsigned made() const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    return static_cast<unsigned>(address) | static_cast<unsigned>(address >> 32) |
           static_cast<unsigned>(existing);
  }
};

/// Of each row its next kChunks. A chunk of all rows before the next one: products begin with the
/// first that arrive.
template <int kChunks, int kRows>
__device__ void take(uint4 (&to)[kChunks][kRows], RowOfChunks (&rows)[kRows]) {
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) to[i][r] = rows[r].load(i);
    __syncwarp();  // the compiler keeps this order
  }
#pragma unroll
  for (RowOfChunks& row : rows) {
    row.at += kChunks * kChunk;
    row.existing -= kChunks;
  }
}

/// pdl_wait once `made`, never 0, is known: else the compiler puts off all address arithmetic until
/// after the wait, where it delays x.
__device__ inline void pdl_wait_after(unsigned made) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.u32 p, %0, 0;\n"
      "@p griddepcontrol.wait;\n}" ::"r"(made)
      : "memory");
}

/// A chunk of a tile of w as operands: of words 0 and 1, and of words 2 and 3. Zero where it does
/// not exist, whatever was read there.
struct ChunkOfW {
  FragmentA halves[2];

  __device__ ChunkOfW(uint4 even, uint4 odd, bool exists)
      : halves{
            {{exists ? even.x : 0, exists ? odd.x : 0, exists ? even.y : 0, exists ? odd.y : 0}},
            {{exists ? even.z : 0, exists ? odd.z : 0, exists ? even.w : 0, exists ? odd.w : 0}}} {}
};

/// Adds the products of a warp's chunk number `i` and eight rows of x.
template <int kChains>
__device__ void multiply_chunk(TileSums<kChains>& sums, int i, const ChunkOfW& w, uint4 x) {
  multiply_add(sums.chain[2 * i % kChains], w.halves[0], x.x, x.y);
  multiply_add(sums.chain[(2 * i + 1) % kChains], w.halves[1], x.z, x.w);
}

/// Rows of x from 8 blockIdx.y on.
/// @tparam kTwoHalves  16 of them, else 8
template <class Traits, bool kTwoHalves>
__global__ __launch_bounds__(Traits::kThreads, 2) void tiny_gemm_split_k_kernel(
    const __grid_constant__ TinyGemmParams p, const __grid_constant__ SplitKPlan plan) {
  constexpr int kTiles = Traits::kTiles;
  constexpr int kChunks = kSplitKChunks;
  constexpr bool kInRegisters = Traits::kInRegisters;
  constexpr int kHalves = kTwoHalves ? 2 : 1;
  constexpr int kJobs = kTiles * kHalves;      // sums of a tile and eight rows of x, a warp each
  constexpr int kWindow = kTwoHalves ? 2 : 3;  // pieces of w on their way at once
  constexpr int kLastWarp = Traits::kThreads / 32 - 1;
  static_assert(kJobs <= kLastWarp + 1);
  extern __shared__ uint4 weights[];  // [row, pitch]
  __shared__ ByteBarrier arrived;
  __shared__ MBarrier full[Traits::kPieces];
  auto* const received = reinterpret_cast<float4*>(  // [rank, tile, g]
      reinterpret_cast<char*>(weights) + Traits::weights_bytes(plan));
  const int warp = __shfl_sync(~0U, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int rank = blockIdx.x % kSplitKCluster;
  const int n0 = blockIdx.x / kSplitKCluster * plan.rows;
  const int k0 = rank * plan.chunks_per_cta * kChunk;
  const int k_end = min(p.K, k0 + plan.chunks_per_cta * kChunk);
  const int row_bytes = max(k_end - k0, 0) * static_cast<int>(sizeof(bf16));
  const int m0 = 8 * blockIdx.y;
  // Pair q of rows of x, m0 + 2q and the next, of a tile belongs to CTA (q + 2 tile) % 8.
  const auto exists = [&](int pair) { return pair < 4 * kHalves && m0 + 2 * pair < p.M; };
  const auto own_pair = [&](int tile) { return (rank + 6 * tile) % kSplitKCluster; };

  pdl_launch_dependents();
  if (warp == kLastWarp) {
    if (lane == 0) {
      if constexpr (!kInRegisters)
#pragma unroll
        for (MBarrier& barrier : full) mbarrier_init(&barrier, 1);
      int tiles = 0;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) tiles += exists(own_pair(tile)) ? 1 : 0;
      arm(&arrived, static_cast<std::uint32_t>(16 * 8 * kSplitKCluster * tiles));
      publish_to_bulk_copies();
    }
    __syncwarp();
    if constexpr (!kInRegisters)
#pragma unroll 1
      for (int piece = 0; piece < kWindow; ++piece)
        load_piece(p, plan, piece, n0, k0, row_bytes, weights, &full[piece]);
  }

  const int begin = warp * plan.chunks_per_warp;
  const int end = min(begin + plan.chunks_per_warp, plan.chunks_per_cta);
  const int k = k0 + begin * kChunk + 8 * t;
  int existing = (max(min(k_end, k0 + end * kChunk) - k, 0) + kChunk - 1) / kChunk;
  RowOfChunks x_rows[kHalves];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int m = m0 + g + 8 * half;
    x_rows[half] = {p.x + m * p.x_stride + k, m < p.M ? existing : 0};
  }
  RowOfChunks w_rows[2];
  uint4 w[kChunks][2];
  if constexpr (kInRegisters) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = n0 + 2 * g + i;
      w_rows[i] = {p.w + n * p.w_stride + k, n < p.N ? existing : 0};
    }
    take(w, w_rows);
  }
  const uint4* even_rows[kTiles];  // of w in shared memory
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    // The last two of all rows stand for those past them, whose sums go nowhere.
    even_rows[tile] =
        weights + min(kTileColumns * tile + 2 * g, plan.rows - 2) * plan.pitch + 4 * begin + t;
  // Where this lane's sums of a warp go, and where it finds those of its job.
  constexpr int kSlot = kInRegisters ? 32 : 4;
  const int slot_of_warp = kInRegisters ? kJobs * kSlot : 4 * plan.chunks_per_warp;
  const int slot_of_tile = kInRegisters ? kHalves * kSlot : kTileColumns * plan.pitch;
  const int lane_slot = kInRegisters ? lane : 2 * g * plan.pitch + t;
  auto* const slots = reinterpret_cast<float4*>(weights);
  const float4* job_slots =
      slots + (kInRegisters
                   ? warp * kSlot + lane
                   : min(kTileColumns * (warp / kHalves) + 2 * g, plan.rows - 2) * plan.pitch + t +
                         warp % kHalves * kSlot);
  const int job_pair = warp % kHalves * 4 + t;

  // Brings x into the L2, where a previous kernel has mostly left it. Once in the grid: many
  // requests for a line on its way would wait for each other.
  if (blockIdx.x < kSplitKCluster)
#pragma unroll 1
    for (int m = m0 + warp; m < min(p.M, m0 + 8 * kHalves); m += kLastWarp + 1)
#pragma unroll 1
      for (int at = k0 + 64 * lane; at < k_end; at += 64 * 32)
        prefetch_l2(p.x + m * p.x_stride + at);
  __syncthreads();  // the barriers are made
  cluster_arrive_relaxed();
  if constexpr (!kInRegisters)
    if (warp == kLastWarp)
#pragma unroll 1
      for (int piece = kWindow; piece < Traits::kPieces; ++piece) {
        mbarrier_wait(&full[piece - kWindow], 0);
        load_piece(p, plan, piece, n0, k0, row_bytes, weights, &full[piece]);
      }
  cluster_wait();  // the barriers of all CTAs are armed
  unsigned made = shared_address(job_slots);
#pragma unroll
  for (const RowOfChunks& row : x_rows) made |= row.made();
  if constexpr (kInRegisters)
    made |= w_rows[0].made() | w_rows[1].made();
  else
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) made |= shared_address(even_rows[tile]);

  pdl_wait_after(made);
  if (kInRegisters || warp < plan.warps) {
    uint4 x[kChunks][kHalves];
    take(x, x_rows);
    TileSums<Traits::kChains> sums[kTiles][kHalves];
#pragma unroll 1
    for (int at = begin;;) {
      if constexpr (!kInRegisters)
#pragma unroll
        for (MBarrier& barrier : full) mbarrier_wait(&barrier, 0);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const ChunkOfW chunk(kInRegisters ? w[i][0] : even_rows[tile][4 * i],
                               kInRegisters ? w[i][1] : even_rows[tile][plan.pitch + 4 * i],
                               i < existing);
#pragma unroll
          for (int half = 0; half < kHalves; ++half)
            multiply_chunk(sums[tile][half], i, chunk, x[i][half]);
        }
      at += kChunks;
      if (at >= end) break;
      existing -= kChunks;
      if constexpr (kInRegisters) take(w, w_rows);
      take(x, x_rows);
#pragma unroll
      for (const uint4*& row : even_rows) row += 4 * kChunks;
    }
    float4* const own_slots = slots + warp * slot_of_warp + lane_slot;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      if (kInRegisters || tile + 1 < kTiles || kTileColumns * tile + 2 * g < plan.rows)
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
          own_slots[tile * slot_of_tile + half * kSlot] = total(sums[tile][half]);
  }

  __syncthreads();  // the sums of all warps are there
  if (warp < kJobs && exists(job_pair)) {
    const int tile = warp / kHalves;
    float4 sum = job_slots[0];
#pragma unroll
    for (int i = 1; i < kSplitKWarps; ++i) {
      const bool used = kInRegisters || i < plan.warps;
      const float4 part = job_slots[used ? i * slot_of_warp : 0];
      if (used) sum = sum + part;
    }
    send(received + (rank * kTiles + tile) * 8 + g, &arrived,
         (job_pair + 2 * tile) % kSplitKCluster, sum);
  }

  const int tile = lane / 8;
  const int pair = own_pair(tile);
  if (warp == kLastWarp && tile < kTiles && exists(pair)) {
    const int m = m0 + 2 * pair;
    const int n = n0 + kTileColumns * tile + 2 * (lane % 8);
    const int n_end = min(n0 + plan.rows, p.N);
    wait(&arrived);
    float4 sum = received[lane];
#pragma unroll
    for (int r = 1; r < kSplitKCluster; ++r) sum = sum + received[r * kTiles * 8 + lane];
    store_pair(p, m, n, n_end, sum.x, sum.z);
    store_pair(p, m + 1, n, n_end, sum.y, sum.w);
  }
}

}  // namespace k3::cuda
