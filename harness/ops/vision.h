// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "harness/inputs.h"
#include "harness/tensor.h"

/// Inputs of the vision ops, for their cases, tests and benches.
namespace k3::harness {

/// Bytes [B, C, H, W] with every value at any place; `interleaved` puts the channels of a pixel
/// side by side, as decoders do.
inline Tensor random_pixels(Random& random, std::int64_t B, std::int64_t C, std::int64_t H,
                            std::int64_t W, bool interleaved) {
  Tensor pixels = interleaved ? Tensor::strided(DType::kU8, {B, C, H, W}, {H * W * C, 1, W * C, C})
                              : Tensor::dense(DType::kU8, {B, C, H, W});
  for (std::size_t i = 0; i < pixels.storage_bytes(); ++i)
    pixels.storage()[i] = static_cast<std::byte>(random.next());
  return pixels;
}

struct PatchifyOptions {
  std::int64_t B = 1;
  std::int64_t C = 3;
  std::int64_t H = 30;
  std::int64_t W = 40;
  std::int64_t P = 14;
  std::int64_t more_rows = 0;  ///< of padding patches, past the multiple of P
  std::int64_t more_columns = 0;
  DType image = DType::kF32;
  DType out = DType::kF32;
  DType affine = DType::kF32;
  bool interleaved = false;  ///< of bytes
};

/// K3's scale and bias of the first three channels, others beyond them; pixels from 0 to 255.
inline Bundle patchify_bundle(const PatchifyOptions& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  b.tensors["image"] = o.image == DType::kU8
                           ? random_pixels(random, o.B, o.C, o.H, o.W, o.interleaved)
                           : uniform(random, o.image, {o.B, o.C, o.H, o.W}, 0.0, 255.0);
  b.tensors["scale"] = constant(o.affine, {1, o.C, 1, 1}, 1.0 / 127.5);
  b.tensors["bias"] = constant(o.affine, {1, o.C, 1, 1}, -1.0);
  for (std::int64_t c = 3; c < o.C; ++c) {
    b.tensors.at("scale").set(c, random.uniform(-2.0, 2.0));
    b.tensors.at("bias").set(c, random.uniform(-1.0, 1.0));
  }
  const std::int64_t gh = (o.H + o.P - 1) / o.P + o.more_rows;
  const std::int64_t gw = (o.W + o.P - 1) / o.P + o.more_columns;
  b.tensors["out"] = poisoned(o.out, {o.B, gh * gw, o.C, o.P, o.P});
  b.scalars = {{"patch_size", std::to_string(o.P)},
               {"padded_height", std::to_string(gh * o.P)},
               {"padded_width", std::to_string(gw * o.P)}};
  return b;
}

struct RopeOptions {
  std::int64_t T = 5;
  std::int64_t H = 12;
  std::int64_t D = 128;
  DType dtype = DType::kBF16;
  bool interleaved = false;  ///< q and k lie as in [T, 3, H, D]
};

/// Rotations by angles of all sizes.
inline Bundle rope_bundle(const RopeOptions& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  for (const char* name : {"q", "k"}) {
    b.tensors[name] = normal(random, o.dtype, {o.T, o.H, o.D});
    if (o.interleaved) b.tensors[name] = restrided(b.tensors[name], {3 * o.H * o.D, o.D, 1});
  }
  Tensor& freqs = b.tensors["freqs"] = Tensor::dense(DType::kF32, {o.T, o.D / 2, 2});
  for (std::int64_t i = 0; i < freqs.numel(); i += 2) {
    const double angle = random.uniform(-7.0, 7.0);
    freqs.set(i, std::cos(angle));
    freqs.set(i + 1, std::sin(angle));
  }
  for (const char* name : {"q_out", "k_out"}) b.tensors[name] = poisoned(o.dtype, {o.T, o.H, o.D});
  return b;
}

struct ResizeOptions {
  std::int64_t B = 1;
  std::int64_t C = 3;
  std::int64_t H = 30;
  std::int64_t W = 40;
  std::int64_t out_H = 15;
  std::int64_t out_W = 20;
  bool interleaved = false;  ///< image and out
};

inline Bundle resize_bundle(const ResizeOptions& o, std::uint64_t seed) {
  Random random(seed);
  Bundle b;
  b.tensors["image"] = random_pixels(random, o.B, o.C, o.H, o.W, o.interleaved);
  b.tensors["out"] = random_pixels(random, o.B, o.C, o.out_H, o.out_W, o.interleaved);
  return b;
}

}  // namespace k3::harness
