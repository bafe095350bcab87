# Installation and the package configuration found by find_package(ulp). Components: runtime (the small library), dev (its
# headers and the package), torch (the library for training and compression), torch_dev (its headers), tool. Programs include
# the headers directly below ulp/, one a room (docs/packages.md); each room installs those that they stand on, which it lists as
# public (tests/base/rooms_test.cpp, tests/consumer/headers). Each component is a Debian package (UlpPackage.cmake).
if(NOT ULP_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulp)

# ulp_install_library(target component targets_file package_component)
function(ulp_install_library target component targets_file package_component)
  install(TARGETS ${target} EXPORT ${targets_file}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT ${package_component})
  install(EXPORT ${targets_file} NAMESPACE ulp:: DESTINATION ${package_dir} FILE ${targets_file}.cmake
          COMPONENT ${package_component})
endfunction()

# Installed files look for libraries beside themselves and in LibTorch's own folder, and nowhere else.
ulp_install_library(ulp_runtime runtime ulp-runtime-targets dev)
set_target_properties(ulp_runtime PROPERTIES INSTALL_RPATH "$ORIGIN")
set(runtime_headers ulp/formats.h ulp/runtime.h ulp/ulp_runtime.h ulp/version.h)
install(FILES ${runtime_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulp COMPONENT dev)
if(ULP_WITH_TORCH)
  set(ULP_TORCH_HOME "" CACHE PATH "Where installed files look for LibTorch; empty: where it was found")
  if(NOT ULP_TORCH_HOME)
    set(ULP_TORCH_HOME ${TORCH_INSTALL_PREFIX})
  endif()
  ulp_install_library(ulp torch ulp-torch-targets torch_dev)
  set_target_properties(ulp PROPERTIES INSTALL_RPATH "$ORIGIN;${ULP_TORCH_HOME}/lib")
  file(GLOB torch_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/ulp/*.h)
  list(REMOVE_ITEM torch_headers ${runtime_headers})
  foreach(component ${ULP_COMPONENTS_LEFT_OUT})  # a program is to find out before it is linked
    string(TOLOWER ${component} name)
    list(REMOVE_ITEM torch_headers ulp/${name}.h)
    if(component STREQUAL "FP8")
      list(REMOVE_ITEM torch_headers ulp/watch.h)
    endif()
  endforeach()
  install(FILES ${torch_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ulp COMPONENT torch_dev)
endif()
if(TARGET ulp_tool)
  set(tool_dir ${CMAKE_INSTALL_BINDIR})
  if(ULP_PACKAGE)  # a script stands in its place that says where LibTorch is missing
    set(tool_dir ${CMAKE_INSTALL_LIBEXECDIR}/ulp)
  endif()
  file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_PREFIX}/${tool_dir} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(ulp_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries};${ULP_TORCH_HOME}/lib")
  install(TARGETS ulp_tool RUNTIME DESTINATION ${tool_dir} COMPONENT tool)
endif()
if(ULP_PACKAGE)
  include(UlpPackage)
else()
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ulp-config.cmake.in ${PROJECT_BINARY_DIR}/ulp-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulp-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulp-config.cmake ${PROJECT_BINARY_DIR}/ulp-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)
