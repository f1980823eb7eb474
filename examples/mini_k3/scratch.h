// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "examples/mini_k3/machine.h"

namespace k3::mini {

/// Memory for what lives no longer than a function: handed out from the front, taken back by the
/// frame. Blocks stay for the next time.
class Scratch {
 public:
  explicit Scratch(Machine& machine) : machine_(machine) {}

  /// Not zeroed. Lives as long as the innermost frame.
  TensorView take(DType dtype, std::initializer_list<std::int64_t> shape);

  class Frame {
   public:
    explicit Frame(Scratch& scratch)
        : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_;
    std::size_t used_;
  };

 private:
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes;
  };
  Machine& machine_;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  ///< the one in use
  std::size_t used_ = 0;   ///< bytes of it
};

}  // namespace k3::mini
