// SPDX-License-Identifier: Apache-2.0
#include "k3/error.h"

#include <fmt/format.h>

#include "k3/version.h"

namespace k3 {

ContractError::ContractError(std::string op, std::string argument, const std::string& rule,
                             const std::string& seen)
    : Error(fmt::format("{}: {} {}; got {}", op, argument, rule, seen)),
      op_(std::move(op)),
      argument_(std::move(argument)) {}

#define K3_STRINGIZE_(x) #x
#define K3_STRINGIZE(x) K3_STRINGIZE_(x)

const char* version() {
  return K3_STRINGIZE(K3_VERSION_MAJOR) "." K3_STRINGIZE(K3_VERSION_MINOR) "." K3_STRINGIZE(
      K3_VERSION_PATCH);
}

}  // namespace k3
