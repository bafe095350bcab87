# GTest::gtest and GTest::gtest_main: those of the machine; cross-compiled also from the sources that Debian's package
# googletest has, since a library for the other architecture is seldom installed.
if(NOT TARGET GTest::gtest)
  find_package(GTest QUIET)
endif()
if(TARGET GTest::gtest)
  return()
endif()
set(ulp_gtest_sources /usr/src/googletest/googletest)
if(NOT CMAKE_CROSSCOMPILING OR NOT EXISTS ${ulp_gtest_sources}/CMakeLists.txt)
  message(FATAL_ERROR "GoogleTest was not found. Run `make setup` (cross-compiling: `scripts/setup.sh arm64`), or pass "
                      "-DULP_BUILD_TESTS=OFF.")
endif()
set(INSTALL_GTEST OFF)
add_subdirectory(${ulp_gtest_sources} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
