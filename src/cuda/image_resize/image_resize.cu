// SPDX-License-Identifier: Apache-2.0
#include "cuda/image_resize/image_resize.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/error.h"
#include "cuda/common/launch.h"
#include "cuda/image_resize/tile.cuh"
#include "cuda/image_resize/two_pass.cuh"

namespace k3::cuda {
namespace {

constexpr std::int64_t kMaxGridYZ = 65535;

// --- one launch, through shared memory ---------------------------------------------------------

/// At least two CTAs an SM.
constexpr std::size_t kMaxTileBytes = 100 * 1024;

/// Three channels side by side are loaded together.
bool is_interleaved(const ImageResizeProblem& p) { return p.C == 3 && p.image.stride_c == 1; }

/// Of a tile: fewer where the output has too few pixels to fill the device with larger ones.
int tile_rows(const ImageResizeProblem& p) {
  constexpr std::int64_t kFewSamples = std::int64_t{1} << 21;
  return p.B * p.C * p.out.height <= kFewSamples / p.out.width ? 8 : 32;
}

/// Low tiles take their many taps one after the other, and leave most of the device idle.
int most_taps(const ImageResizeProblem& p) {
  constexpr int kOfThree = 15;  // what a scale of 3 needs
  constexpr int kOfEight = 35;
  return tile_rows(p) == 8 ? kOfThree : kOfEight;
}

resize_tile::Params tile_params(const ImageResizeProblem& problem) {
  resize_tile::Params p;
  p.image = problem.image;
  p.out = problem.out;
  p.x_axis = ResizeAxis(problem.image.width, problem.out.width);
  p.y_axis = ResizeAxis(problem.image.height, problem.out.height);
  p.groups = static_cast<int>(is_interleaved(problem) ? 1 : problem.C);
  const std::int64_t moved =
      std::int64_t{tile_rows(problem)} * problem.image.height / problem.out.height + 1;
  p.max_input_rows =
      static_cast<int>(std::min<std::int64_t>(problem.image.height, moved + p.y_axis.max_taps()));
  return p;
}

template <int kChannels, int kRows>
void launch_tile(const ImageResizeProblem& problem, const Target& target) {
  const resize_tile::Params p = tile_params(problem);
  LaunchConfig config = launch_config(target);
  config.grid =
      dim3(static_cast<unsigned>((problem.out.width - 1) / (resize_tile::kSamples / kChannels) + 1),
           static_cast<unsigned>((problem.out.height - 1) / kRows + 1),
           static_cast<unsigned>(problem.B * p.groups));
  config.block = dim3(resize_tile::kSamples);
  config.dynamic_smem_bytes = resize_tile::shared_bytes(p, kChannels, kRows);
  K3_CUDA_CHECK(launch(resize_tile::resize_tile_kernel<kChannels, kRows>, config, p));
}

// --- three launches, through the workspace -----------------------------------------------------

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Takes pieces of the workspace, or counts them where it is null.
class Memory {
 public:
  explicit Memory(void* data) : data_(static_cast<std::byte*>(data)) {}
  template <class T>
  T* take(std::size_t count) {
    auto* const piece = data_ == nullptr ? nullptr : reinterpret_cast<T*>(data_ + bytes_);
    bytes_ += aligned(count * sizeof(T));
    return piece;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_ = 0;
};

resize_two_pass::Table take_table(Memory& memory, int size, int out_size) {
  resize_two_pass::Table table;
  table.axis = ResizeAxis(size, out_size);
  table.pixels = out_size;
  table.max_taps = table.axis.max_taps();
  table.taps = memory.take<int2>(static_cast<std::size_t>(out_size));
  table.weights = memory.take<std::int32_t>(static_cast<std::size_t>(out_size) * table.max_taps);
  return table;
}

/// What the passes share: both tables, and [B, C, image.height, out.width] bytes between them.
struct TwoPass {
  Memory memory;
  resize_two_pass::Table x;
  resize_two_pass::Table y;
  std::uint8_t* rows;

  TwoPass(const ImageResizeProblem& p, void* workspace)
      : memory(workspace),
        x(take_table(memory, p.image.width, p.out.width)),
        y(take_table(memory, p.image.height, p.out.height)),
        rows(memory.take<std::uint8_t>(static_cast<std::size_t>(p.B) * p.C * p.image.height *
                                       p.out.width)) {}
};

/// Planes past what a grid takes go into further launches, whole images at a time where they fit.
void launch_pass(resize_two_pass::Pass pass, std::int64_t B, std::int64_t C, const Target& target) {
  const int along = pass.threads_along_lines ? pass.lines : pass.table.pixels;
  const int across = pass.threads_along_lines ? pass.table.pixels : pass.lines;
  LaunchConfig config = launch_config(target);
  config.block = dim3(resize_two_pass::kThreads);
  const std::int64_t channels = std::min(C, kMaxGridYZ);
  const std::int64_t images = kMaxGridYZ / channels;
  const std::uint8_t* const from = pass.from;
  std::uint8_t* const to = pass.to;
  for (std::int64_t b = 0; b < B; b += images)
    for (std::int64_t c = 0; c < C; c += channels) {
      pass.channels = static_cast<int>(std::min(channels, C - c));
      pass.from = from + b * pass.from_b + c * pass.from_c;
      pass.to = to + b * pass.to_b + c * pass.to_c;
      config.grid = dim3(static_cast<unsigned>((along - 1) / resize_two_pass::kThreads + 1),
                         static_cast<unsigned>(std::min<std::int64_t>(across, kMaxGridYZ)),
                         static_cast<unsigned>(std::min(images, B - b) * pass.channels));
      K3_CUDA_CHECK(launch(resize_two_pass::pass_kernel, config, pass));
    }
}

}  // namespace

const char* image_resize_tile_refusal(const ImageResizeProblem& p, const Target&) {
  if (p.empty()) return nullptr;
  const resize_tile::Params tile = tile_params(p);
  if (std::max(tile.x_axis.max_taps(), tile.y_axis.max_taps()) > most_taps(p))
    return "the image shrinks too much for tiles";
  if (resize_tile::shared_bytes(tile, is_interleaved(p) ? 3 : 1, tile_rows(p)) > kMaxTileBytes)
    return "a tile does not fit shared memory";
  const __int128 span = __int128{p.image.stride_c} * (p.C - 1) +
                        __int128{p.image.stride_y} * (p.image.height - 1) +
                        __int128{p.image.stride_x} * (p.image.width - 1);
  if (span >= std::int64_t{1} << 31) return "an image lies across more than 2^31 bytes";
  if (p.B > kMaxGridYZ / std::max<std::int64_t>(tile.groups, 1) || p.C > kMaxGridYZ)
    return "more than 65535 planes";
  if ((p.out.height - 1) / tile_rows(p) >= kMaxGridYZ) return "too many rows of tiles";
  return nullptr;
}

void image_resize_tile(const ImageResizeProblem& p, const Target& target) {
  if (p.empty()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  if (is_interleaved(p))
    tile_rows(p) == 8 ? launch_tile<3, 8>(p, target) : launch_tile<3, 32>(p, target);
  else
    tile_rows(p) == 8 ? launch_tile<1, 8>(p, target) : launch_tile<1, 32>(p, target);
}

std::size_t image_resize_two_pass_workspace(const ImageResizeProblem& p, const Target&) {
  return p.empty() ? 0 : TwoPass(p, nullptr).memory.bytes();
}

void image_resize_two_pass(const ImageResizeProblem& p, const Target& target) {
  if (p.empty()) return;
  const DeviceGuard guard(target.device.index);
  K3_CUDA_CHECK(guard.error());
  const TwoPass plan(p, target.workspace.data);

  LaunchConfig config = launch_config(target);
  config.grid = dim3(static_cast<unsigned>(
      (std::int64_t{p.out.width} + p.out.height - 1) / resize_two_pass::kThreads + 1));
  config.block = dim3(resize_two_pass::kThreads);
  K3_CUDA_CHECK(launch(resize_two_pass::weights_kernel, config, plan.x, plan.y));

  resize_two_pass::Pass rows;
  rows.table = plan.x;
  rows.from = p.image.data;
  rows.from_b = p.image.stride_b;
  rows.from_c = p.image.stride_c;
  rows.from_line = p.image.stride_y;
  rows.from_pixel = p.image.stride_x;
  rows.to = plan.rows;
  rows.to_pixel = 1;
  rows.to_line = p.out.width;
  rows.to_c = rows.to_line * p.image.height;
  rows.to_b = rows.to_c * p.C;
  rows.lines = p.image.height;
  rows.threads_along_lines = false;
  launch_pass(rows, p.B, p.C, target);

  resize_two_pass::Pass columns;
  columns.table = plan.y;
  columns.from = plan.rows;
  columns.from_b = rows.to_b;
  columns.from_c = rows.to_c;
  columns.from_line = rows.to_pixel;
  columns.from_pixel = rows.to_line;
  columns.to = p.out.data;
  columns.to_b = p.out.stride_b;
  columns.to_c = p.out.stride_c;
  columns.to_line = p.out.stride_x;
  columns.to_pixel = p.out.stride_y;
  columns.lines = p.out.width;
  columns.threads_along_lines = true;
  launch_pass(columns, p.B, p.C, target);
}

}  // namespace k3::cuda
