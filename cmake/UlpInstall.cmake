# Installation and the package configuration found by find_package(ulp). Components: runtime (the small library), dev
# (headers, package), torch (training and compression, the tool). Each room installs the headers it lists as public; a
# header that an installed header includes is installed, too (tests/base/rooms_test.cpp, tests/consumer/headers).
if(NOT ULP_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulp)

# ulp_install_library(target component targets_file package_component)
function(ulp_install_library target component targets_file package_component)
  install(TARGETS ${target} EXPORT ${targets_file}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT dev)
  install(EXPORT ${targets_file} NAMESPACE ulp:: DESTINATION ${package_dir} FILE ${targets_file}.cmake
          COMPONENT ${package_component})
endfunction()

# Installed files look for libraries beside themselves and in LibTorch's own folder, and nowhere else.
ulp_install_library(ulp_runtime runtime ulp-runtime-targets dev)
set_target_properties(ulp_runtime PROPERTIES INSTALL_RPATH "$ORIGIN")
install(FILES ulp/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulp COMPONENT dev)
if(ULP_WITH_TORCH)
  ulp_install_library(ulp torch ulp-torch-targets torch)
  set_target_properties(ulp PROPERTIES INSTALL_RPATH "$ORIGIN;${TORCH_INSTALL_PREFIX}/lib")
  install(FILES ulp/ulp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulp COMPONENT dev)
endif()
if(TARGET ulp_tool)
  file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(ulp_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries};${TORCH_INSTALL_PREFIX}/lib")
  install(TARGETS ulp_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT torch)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ulp-config.cmake.in ${PROJECT_BINARY_DIR}/ulp-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulp-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulp-config.cmake ${PROJECT_BINARY_DIR}/ulp-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)
