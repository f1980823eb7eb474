// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "k3/export.h"

namespace k3 {

/// Base of everything the library throws.
class K3_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller broke an op's contract. The text names the argument, the rule and the value seen.
/// Thrown before anything is written.
class K3_API ContractError : public Error {
 public:
  ContractError(std::string op, std::string argument, const std::string& rule,
                const std::string& seen);

  [[nodiscard]] const std::string& op() const { return op_; }
  [[nodiscard]] const std::string& argument() const { return argument_; }

 private:
  std::string op_;
  std::string argument_;
};

/// The request is valid, but no kernel of this build serves it on this machine. The text lists each
/// candidate and the first condition it failed.
class K3_API UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// A CUDA call failed. The text holds the call, the error's name and text, and file:line.
class K3_API CudaError : public Error {
 public:
  CudaError(int code, const std::string& what) : Error(what), code_(code) {}

  /// The `cudaError_t` as a number.
  [[nodiscard]] int code() const { return code_; }

 private:
  int code_;
};

}  // namespace k3
