// SPDX-License-Identifier: Apache-2.0
#include "dispatch/archs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cpu/parallel.h"
#include "cpu/targets.h"
#include "k3/device.h"
#include "k3/error.h"
#if K3_WITH_CUDA
#include "cuda/device.h"
#endif

namespace k3 {
namespace dispatch {

std::string cpu_target() { return cpu::chosen_target(); }

std::string cuda_arch_name(int arch) { return fmt::format("sm_{}{}", arch, arch == 90 ? "a" : ""); }

const std::vector<std::string>& cuda_image_archs() {
  static const std::vector<std::string> archs = [] {
    std::vector<std::string> names;
#if K3_WITH_CUDA
    const std::string list = K3_CUDA_ARCH_LIST;
    for (std::size_t begin = 0; begin < list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      names.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
#endif
    return names;
  }();
  return archs;
}

bool contains_word(const char* list, const std::string& word) {
  std::istringstream words(list);
  for (std::string next; words >> next;)
    if (next == word) return true;
  return false;
}

const char* image_refusal(int arch, const char* only_archs) {
  for (const std::string& image : cuda_image_archs()) {
    if (only_archs != nullptr && !contains_word(only_archs, image)) continue;
    const int built = std::atoi(image.c_str() + 3);  // past "sm_"
    const bool same_family = arch >= 100 && arch / 10 == built / 10 && built <= arch;
    if (built == arch || same_family) return nullptr;
  }
  if (only_archs != nullptr) return "not compiled for this chip";
  static const std::string text = fmt::format("no image for this chip; this build holds {}",
                                              fmt::join(cuda_image_archs(), ", "));
  return text.c_str();
}

int cuda_arch_of([[maybe_unused]] const char* op, [[maybe_unused]] int device) {
#if K3_WITH_CUDA
  return cuda::arch_of(device);
#else
  throw UnsupportedError(fmt::format("{}: this build of libk3 has no CUDA kernels", op));
#endif
}

}  // namespace dispatch

bool built_with_cuda() { return K3_WITH_CUDA != 0; }

std::vector<CudaDeviceInfo> cuda_devices(std::string* why) {
#if K3_WITH_CUDA
  auto devices = cuda::devices(why);
  for (auto& device : devices) device.has_image = dispatch::image_refusal(device.arch) == nullptr;
  return devices;
#else
  if (why != nullptr) *why = "this build of libk3 has no CUDA kernels";
  return {};
#endif
}

CpuInfo cpu_info() {
  CpuInfo info;
  info.name = "unknown CPU";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) info.name = line.substr(colon + 2);
    break;
  }
  info.threads = cpu::max_threads();
  info.simd_target = cpu::chosen_target();
  return info;
}

}  // namespace k3
