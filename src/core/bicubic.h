// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define K3_HOST_DEVICE __host__ __device__
#else
#define K3_HOST_DEVICE
#endif

/// The weights of a resized line, as k3/ops/image_resize.h gives them. In double, one rounding an
/// operation: the host and the device compute the same bits.
namespace k3 {

inline constexpr int kResizeFractionBits = 22;
/// What a sum of weighted pixels begins with, so that the shift that ends it rounds.
inline constexpr std::int32_t kResizeHalf = 1 << (kResizeFractionBits - 1);

/// Neighbouring pixels of a line, and where the pixel made of them lies among them.
struct ResizeTaps {
  int first;
  int count;
  double center;
};

/// A line of `size` pixels that becomes one of `out_size`; both at least 1.
class ResizeAxis {
 public:
  ResizeAxis() = default;
  K3_HOST_DEVICE ResizeAxis(int size, int out_size)
      : size_(size), scale_(static_cast<double>(size) / out_size) {
    const double width = scale_ < 1.0 ? 1.0 : scale_;
    support_ = 2.0 * width;
    inverse_width_ = 1.0 / width;
  }

  /// At most so many taps make a pixel. @returns at least 5 and at most 2^26 + 4
  [[nodiscard]] K3_HOST_DEVICE int max_taps() const { return 2 * static_cast<int>(support_) + 3; }

  [[nodiscard]] K3_HOST_DEVICE ResizeTaps taps(int out_index) const {
    const double center = (out_index + 0.5) * scale_;
    if (scale_ == 1.0) return {out_index, 1, center};  // its neighbours have no weight
    const int first = static_cast<int>(center - support_ + 0.5);
    const int end = static_cast<int>(center + support_ + 0.5);
    ResizeTaps taps = {first > 0 ? first : 0, 0, center};
    taps.count = (end < size_ ? end : size_) - taps.first;
    return taps;
  }

  /// Calls put(i, weight) for each tap i, weights in units of 2^-22.
  template <class Put>
  K3_HOST_DEVICE void weights(const ResizeTaps& taps, const Put& put) const {
    double total = 0.0;
    for (int i = 0; i < taps.count; ++i) total += unscaled_weight(taps, i);
    for (int i = 0; i < taps.count; ++i) {
      const double weight = unscaled_weight(taps, i) / total * (1 << kResizeFractionBits);
      put(i, static_cast<std::int32_t>(weight < 0.0 ? weight - 0.5 : weight + 0.5));
    }
  }

 private:
  [[nodiscard]] K3_HOST_DEVICE double unscaled_weight(const ResizeTaps& taps, int i) const {
    double x = (i + taps.first - taps.center + 0.5) * inverse_width_;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((1.5 * x) - 2.5) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5;
    return 0.0;
  }

  int size_ = 0;
  double scale_ = 0.0;
  double support_ = 0.0;
  double inverse_width_ = 0.0;
};

}  // namespace k3
