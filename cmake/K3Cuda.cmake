# SPDX-License-Identifier: Apache-2.0
# Sets, in the including scope:
#   K3_WITH_CUDA              OFF where no nvcc is found
#   K3_DEFINITIONS            K3_WITH_CUDA=0|1, K3_CUDA_ARCH_LIST="sm_90a,sm_100,..."
#   K3_CUDA_SOURCES           of libk3
#   K3_HARNESS_CUDA_SOURCES   of the harness
#   K3_CUDA_LIBRARIES         the static CUDA runtime
#   K3_WITH_CUTLASS           ON where the CUTLASS headers are found, in K3_CUTLASS_DIR
set(K3_DEFINITIONS K3_WITH_CUDA=0)
set(K3_CUDA_SOURCES)
set(K3_HARNESS_CUDA_SOURCES)
set(K3_CUDA_LIBRARIES)
set(K3_WITH_CUTLASS OFF)

if(K3_WITH_CUDA AND NOT CMAKE_CUDA_COMPILER)
  find_program(K3_NVCC nvcc HINTS /usr/local/cuda/bin)
  mark_as_advanced(K3_NVCC)
  if(K3_NVCC)
    set(CMAKE_CUDA_COMPILER ${K3_NVCC})
  else()
    message(STATUS "k3: CUDA off (no nvcc): building for the CPU only")
    set(K3_WITH_CUDA OFF)
  endif()
endif()

if(NOT K3_WITH_CUDA)
  return()
endif()

# The archs of this machine's GPUs, for example "90;100"; 90 where there is none.
function(k3_native_archs result)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE output RESULT_VARIABLE status ERROR_QUIET)
  set(archs)
  if(status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" archs "${output}")
    string(REPLACE "." "" archs "${archs}")
    list(REMOVE_DUPLICATES archs)
  endif()
  foreach(arch IN LISTS archs)
    if(arch LESS 90)
      message(STATUS "k3: no kernels for this machine's sm_${arch} GPU (sm_90a and later only)")
      list(REMOVE_ITEM archs ${arch})
    endif()
  endforeach()
  if(NOT archs)
    set(archs 90)
  endif()
  set(${result} ${archs} PARENT_SCOPE)
endfunction()

if(K3_CUDA_ARCHS STREQUAL "native")
  k3_native_archs(k3_archs)
elseif(K3_CUDA_ARCHS STREQUAL "all")
  set(k3_archs 90 100 103 120)
else()
  set(k3_archs ${K3_CUDA_ARCHS})
endif()

# Machine code only, with each chip's own instructions: wgmma and setmaxnreg exist on sm_90a alone,
# tcgen05 and the narrow conversions on the family targets (sm_100f, ...) of the later chips.
set(k3_arch_targets)
set(k3_arch_names)
foreach(arch IN LISTS k3_archs)
  string(REGEX REPLACE "^(sm_)?([0-9]+)[af]?$" "\\2" number "${arch}")
  if(NOT number MATCHES "^[0-9]+$" OR number LESS 90)
    message(FATAL_ERROR "k3: K3_CUDA_ARCHS has '${arch}'; the kernels need sm_90a or later")
  endif()
  if(number EQUAL 90)
    list(APPEND k3_arch_targets 90a-real)
    list(APPEND k3_arch_names sm_90a)
  else()
    list(APPEND k3_arch_targets ${number}f-real)
    list(APPEND k3_arch_names sm_${number})
  endif()
endforeach()
list(JOIN k3_arch_names "," k3_arch_list)

set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "Host compiler of nvcc")
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# CMake 3.25 checks the compiler with plain numbers only; the targets of this project come after.
set(CMAKE_CUDA_ARCHITECTURES 90)
enable_language(CUDA)
set(CMAKE_CUDA_ARCHITECTURES ${k3_arch_targets})
find_package(CUDAToolkit REQUIRED)
message(STATUS "k3: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${k3_arch_list}")

# CMake 3.25 does not know nvcc's option for C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# Contraction is off, as in host code: a fused multiply-add stands where the source says fmaf.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-fmad=false;-Xcompiler=-Wall>")

# Binaries also look beside themselves, where tools/make_gpu_bundle.sh puts their libraries.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")

# nvcc splits -D at commas; only host code reads the list.
set(K3_DEFINITIONS K3_WITH_CUDA=1
  "$<$<COMPILE_LANGUAGE:CXX>:K3_CUDA_ARCH_LIST=\"${k3_arch_list}\">")
set(K3_CUDA_LIBRARIES CUDA::cudart_static)
file(GLOB K3_CUDA_SOURCES CONFIGURE_DEPENDS
  src/cuda/*.cpp src/cuda/common/*.cpp src/cuda/*/*.cu)
file(GLOB K3_HARNESS_CUDA_SOURCES CONFIGURE_DEPENDS harness/*.cu)

# CudaError names its source file as src/...
set(k3_prefix_map -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
set_source_files_properties(${K3_CUDA_SOURCES} ${K3_HARNESS_CUDA_SOURCES} harness/device_cuda.cpp
  PROPERTIES COMPILE_OPTIONS
  "$<IF:$<COMPILE_LANGUAGE:CUDA>,-Xcompiler=${k3_prefix_map},${k3_prefix_map}>")

# Headers alone, from the wheel nvidia-cutlass.
set(K3_CUTLASS_DIR ${PROJECT_SOURCE_DIR}/.deps/cutlass/cutlass_library/source/include CACHE PATH
  "Folder that holds cutlass/cutlass.h and cute/tensor.hpp")
if(EXISTS ${K3_CUTLASS_DIR}/cutlass/cutlass.h)
  set(K3_WITH_CUTLASS ON)
  message(STATUS "k3: CUTLASS headers in ${K3_CUTLASS_DIR}")
else()
  message(STATUS "k3: no CUTLASS headers in ${K3_CUTLASS_DIR}: kernels that need them are off")
endif()
