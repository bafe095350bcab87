# Installation and the package configuration found by find_package(ulp). Components: runtime (the small library), dev
# (headers, package), torch (training and compression). Each room installs the headers it lists as public.
if(NOT ULP_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulp)

# ulp_install_library(target component targets_file)
function(ulp_install_library target component targets_file)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${target} EXPORT ${targets_file}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT dev)
  install(EXPORT ${targets_file} NAMESPACE ulp:: DESTINATION ${package_dir} FILE ${targets_file}.cmake COMPONENT dev)
endfunction()

ulp_install_library(ulp_runtime runtime ulp-runtime-targets)
if(ULP_WITH_TORCH)
  ulp_install_library(ulp torch ulp-torch-targets)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ulp-config.cmake.in ${PROJECT_BINARY_DIR}/ulp-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulp-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulp-config.cmake ${PROJECT_BINARY_DIR}/ulp-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)
