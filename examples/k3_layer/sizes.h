// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// One rank's part of two layers of Kimi K3 (technical report, arXiv 2607.24653), as its engine
/// would run it: the attention of a KDA layer, a latent mixture of experts, the attention of an MLA
/// layer, each behind its mixture of the block residuals.
namespace k3::layer {

inline constexpr std::int64_t kHeadDim = 128;
inline constexpr std::int64_t kConvTaps = 4;
inline constexpr std::int64_t kQuantGroup = 32;

enum class Mode {
  kDecode,   ///< one token a request
  kPrefill,  ///< a prompt a request
  kVerify,   ///< a draft a request, then the commit of its accepted tokens
};

/// What a rank holds. The defaults are K3's on 8 ranks.
struct Sizes {
  std::int64_t heads = 12;          ///< of KDA and of MLA: 96 / ranks
  std::int64_t expert_width = 384;  ///< of each routed expert: 3072 / ranks
  std::int64_t shared_width = 768;  ///< of the shared experts: 6144 / ranks
  // Whole on every rank.
  std::int64_t hidden = 7168;
  std::int64_t latent = 3584;
  std::int64_t experts = 896;
  std::int64_t topk = 16;
  std::int64_t q_rank = 1536;
  std::int64_t kv_rank = 512;
  std::int64_t rope = 64;
  std::int64_t bank_rows = 8;  ///< finished blocks: layers 84 and up

  [[nodiscard]] std::int64_t inner() const { return heads * kHeadDim; }
  [[nodiscard]] std::int64_t channels() const { return 3 * inner(); }
  /// Rows of the merged projection to forget gate and beta: 128 + heads, on whole 16 bytes.
  [[nodiscard]] std::int64_t forget_beta() const { return (kHeadDim + heads + 7) / 8 * 8; }
};

/// K3 on so many ranks, which divide 96 heads.
constexpr Sizes k3_sizes(std::int64_t ranks) {
  Sizes sizes;
  sizes.heads = 96 / ranks;
  sizes.expert_width = 3072 / ranks;
  sizes.shared_width = 6144 / ranks;
  return sizes;
}

struct Request {
  Mode mode = Mode::kDecode;
  Sizes sizes;
  std::int64_t batch = 1;
  std::int64_t tokens = 1;    ///< of each request in a step
  std::int64_t accepted = 1;  ///< verify: of those
  std::int64_t context = 0;   ///< tokens of each request in the MLA cache before the first step
  std::int64_t steps = 1;
  std::uint64_t seed = 1;
  bool dense_by_library = false;  ///< CUDA: for few rows, too

  [[nodiscard]] std::int64_t rows() const { return batch * tokens; }
  /// By which a request's text grows in a step.
  [[nodiscard]] std::int64_t growth() const { return mode == Mode::kVerify ? accepted : tokens; }
  /// Rows of the MLA cache that one request needs.
  [[nodiscard]] std::int64_t cache_rows() const {
    return context + (steps - 1) * growth() + tokens;
  }
};

}  // namespace k3::layer
