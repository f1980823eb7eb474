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

/// Null where the build holds an image that runs on the arch, else a sentence with the archs it has
/// images for. `only_archs` (between spaces) narrows the build's archs; null does not. An image of
/// a Blackwell family (sm_100 on) also runs on later chips of the same major number.
const char* image_refusal(int arch, const char* only_archs = nullptr);

/// Archs of the images in this build, for example {"sm_90a", "sm_100"}; empty without CUDA.
const std::vector<std::string>& cuda_image_archs();

/// True where `list`, words between spaces, holds the word.
bool contains_word(const char* list, const std::string& word);

}  // namespace k3::dispatch
