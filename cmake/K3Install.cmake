# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

install(TARGETS k3_shared k3_static EXPORT k3Targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/k3 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT k3Targets NAMESPACE k3:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/k3)
configure_package_config_file(cmake/k3Config.cmake.in ${PROJECT_BINARY_DIR}/k3Config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/k3)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/k3ConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH K3_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
if(K3_WITH_CUDA)
  set(K3_PC_CUDA_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lpthread")
endif()
configure_file(cmake/k3.pc.in ${PROJECT_BINARY_DIR}/k3.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/k3Config.cmake ${PROJECT_BINARY_DIR}/k3ConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/k3)
install(FILES ${PROJECT_BINARY_DIR}/k3.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
