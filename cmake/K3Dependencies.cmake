# SPDX-License-Identifier: Apache-2.0
# Everything comes from the system's packages; nothing is fetched here.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)

find_path(K3_HIGHWAY_INCLUDE_DIR hwy/highway.h REQUIRED)
find_library(K3_HIGHWAY_LIBRARY hwy REQUIRED)
add_library(k3_highway INTERFACE)
add_library(K3::highway ALIAS k3_highway)
target_include_directories(k3_highway SYSTEM INTERFACE ${K3_HIGHWAY_INCLUDE_DIR})
target_link_libraries(k3_highway INTERFACE ${K3_HIGHWAY_LIBRARY})
message(STATUS "k3: Highway ${K3_HIGHWAY_LIBRARY}")

if(K3_BUILD_TOOLS OR K3_BUILD_TESTS)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
endif()
