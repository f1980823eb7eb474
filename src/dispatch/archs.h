// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// What this build and this machine can run.
namespace k3::dispatch {

/// The SIMD target that Highway has chosen for this CPU, in lower case: "avx2".
std::string cpu_target();

/// "sm_90a" for 90.
std::string cuda_arch_name(int arch);

/// The arch of a CUDA device. @throws UnsupportedError in a build without CUDA, CudaError.
int cuda_arch_of(const char* op, int device);

/// Null where the build holds an image for the arch, else a sentence with the archs it holds.
const char* cuda_image_refusal(int arch);

/// Archs of the images in this build, for example {"sm_90a", "sm_100"}; empty without CUDA.
const std::vector<std::string>& cuda_image_archs();

}  // namespace k3::dispatch
