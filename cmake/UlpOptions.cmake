# Build options, common compile flags and the compiler cache.
set(ULP_TOP_LEVEL ${PROJECT_IS_TOP_LEVEL})
option(ULP_WITH_TORCH "Build training and compression (needs LibTorch); OFF builds the runtime alone" ON)
option(ULP_BUILD_TOOL "Build the ulp command-line tool" ${ULP_TOP_LEVEL})
option(ULP_BUILD_TESTS "Build the tests" ${ULP_TOP_LEVEL})
option(ULP_LONG_TESTS "Tests also replay hostile files (fuzz/) and compile every installed header by itself and the runtime from fetched sources; make check-all" OFF)
option(ULP_BUILD_BENCHMARKS "Build the benchmarks" ${ULP_TOP_LEVEL})
option(ULP_BUILD_EXAMPLES "Build the examples" ${ULP_TOP_LEVEL})
option(ULP_INSTALL "Make install rules and the CMake package" ${ULP_TOP_LEVEL})
option(ULP_PACKAGE "Install as the Debian packages want it (docs/packages.md); for the preset package" OFF)
option(ULP_WERROR "Treat warnings as errors" ${ULP_TOP_LEVEL})
set(ULP_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize= (address,undefined or thread)")
option(ULP_FUZZ "Build the fuzzers of fuzz/ with libFuzzer (needs clang)" OFF)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "ulp needs GCC 11 or later, found ${CMAKE_CXX_COMPILER_VERSION}. Install g++-12 and pass -DCMAKE_CXX_COMPILER=g++-12.")
endif()
if(ULP_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "ULP_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}. Install clang-14 and pass -DCMAKE_CXX_COMPILER=clang++-14.")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)  # programs share the libraries' precompiled header, so they need its flags
if(ULP_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
endif()

# One interface target carries the flags of every translation unit of ours. NDEBUG is always
# defined: at::RecordFunction has another layout without it and capture would break at run time.
add_library(ulp_flags INTERFACE)
target_compile_definitions(ulp_flags INTERFACE NDEBUG)
target_compile_options(ulp_flags INTERFACE -Wall -Wextra $<$<BOOL:${ULP_WERROR}>:-Werror>)
# GCC 12 has false alarms on string concatenation, bug 105651.
set(gcc_before_13 $<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>)
target_compile_options(ulp_flags INTERFACE $<${gcc_before_13}:-Wno-restrict>)
if(ULP_PACKAGE)
  target_compile_options(ulp_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)  # __FILE__ in messages of LibTorch's macros
endif()
if(ULP_SANITIZE)
  # A finding ends the process: a test that goes on would pass.
  target_compile_options(ulp_flags INTERFACE -fsanitize=${ULP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ulp_flags INTERFACE -fsanitize=${ULP_SANITIZE})
endif()
if(ULP_FUZZ)
  target_compile_options(ulp_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_program(ULP_CCACHE ccache)
if(ULP_CCACHE AND ULP_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ULP_CCACHE})
  target_compile_options(ulp_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
                                             "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
