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
configure_file(cmake/k3.pc.in ${PROJECT_BINARY_DIR}/k3.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/k3Config.cmake ${PROJECT_BINARY_DIR}/k3ConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/k3)
install(FILES ${PROJECT_BINARY_DIR}/k3.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
