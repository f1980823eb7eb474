// SPDX-License-Identifier: Apache-2.0
#include "harness/machine.h"

#include <fmt/format.h>

#include <cctype>
#include <thread>

#include "k3/device.h"

namespace k3::harness {
namespace {

std::string slug(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      result += static_cast<char>(std::tolower(byte));
    else if (!result.empty() && result.back() != '-')
      result += '-';
  }
  if (result.ends_with('-')) result.pop_back();
  return result;
}

}  // namespace

std::string machine_name(Backend backend) {
  if (backend == Backend::kCuda) {
    const auto devices = cuda_devices();
    return devices.empty() ? "no-cuda-device" : slug(devices.front().name);
  }
  return slug(fmt::format("{} {} cores", cpu_info().name, std::thread::hardware_concurrency()));
}

}  // namespace k3::harness
