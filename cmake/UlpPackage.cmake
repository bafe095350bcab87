# The Debian packages that cpack makes of the preset `package`, one a component (docs/packages.md). Debian has no package of
# the LibTorch that ulp is built with: libulp and the tool look for it in ULP_TORCH_HOME.
set(soname ${ULP_SOVERSION})
if(ULP_WITH_TORCH)
  find_file(version_header torch/headeronly/version.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE REQUIRED)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${version_header} line REGEX "#define TORCH_VERSION_${part} [0-9]+")
    string(REGEX MATCH "[0-9]+$" ULP_TORCH_${part} "${line}")
  endforeach()
  set(ULP_TORCH_VERSION ${ULP_TORCH_MAJOR}.${ULP_TORCH_MINOR}.${ULP_TORCH_PATCH})
endif()

# ulp_package(component name section dependency...): what a component's package is called, and needs beside what its
# programs and libraries are linked with.
function(ulp_package component name section)
  string(TOUPPER ${component} upper)
  list(JOIN ARGN ", " depends)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component})
endfunction()

set(same "(= ${PROJECT_VERSION})")
ulp_package(runtime libulp-runtime${soname} libs)
ulp_package(dev libulp-runtime-dev libdevel "libulp-runtime${soname} ${same}")
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "runs engine files of ulp
Neural networks in fp32, bf16 and int8 on the CPU, from C and C++. Needs no
LibTorch.")
set(CPACK_DEBIAN_DEV_DESCRIPTION "development files of ulp's runtime
Headers for C and C++, and the CMake package: find_package(ulp COMPONENTS
runtime).")

if(ULP_WITH_TORCH)
  set(libtorch "LibTorch ${ULP_TORCH_VERSION}, which no Debian package provides,
is looked for in ${ULP_TORCH_HOME}.")
  # The OpenMP of a LibTorch may have another name.
  ulp_package(torch libulp${soname} libs "libulp-runtime${soname} ${same}" libgomp1)
  ulp_package(torch_dev libulp-dev libdevel "libulp${soname} ${same}" "libulp-runtime-dev ${same}")
  list(APPEND CPACK_COMPONENTS_ALL torch torch_dev)
  set(CPACK_DEBIAN_TORCH_DESCRIPTION "low-precision training and compression of LibTorch models
${libtorch}")
  set(CPACK_DEBIAN_TORCH_DEV_DESCRIPTION "development files of ulp
Headers for C++, and the CMake package: find_package(ulp). ${libtorch}")
endif()
if(TARGET ulp_tool)
  ulp_package(tool ulp science "libulp${soname} ${same}")
  list(APPEND CPACK_COMPONENTS_ALL tool)
  set(CPACK_DEBIAN_TOOL_PACKAGE_SUGGESTS "dataset-fashion-mnist, python3-pip")
  set(CPACK_DEBIAN_TOOL_DESCRIPTION "trains, compresses and runs LibTorch models in low precision
The command-line tool. ${libtorch}")
  set(ULP_TOOL_PROGRAM ${CMAKE_INSTALL_FULL_LIBEXECDIR}/ulp/ulp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/launcher.sh.in ${PROJECT_BINARY_DIR}/launcher/ulp @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/launcher/ulp DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ulp)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each has its own
set(CPACK_PACKAGE_CONTACT "The maintainers of ulp <maintainers@ulp.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
if(ULP_WITH_TORCH)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${TORCH_INSTALL_PREFIX}/lib)
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
