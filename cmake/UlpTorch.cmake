# Finds LibTorch: one given by CMAKE_PREFIX_PATH or Torch_DIR, else the one `make setup` placed in .deps.
# Defines the target ulp_torch (LibTorch without its Python library) and shared precompiled headers.
if(NOT ULP_WITH_TORCH)
  return()
endif()
if(NOT Torch_DIR)
  list(APPEND CMAKE_PREFIX_PATH "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found. Run `make setup`, or point CMAKE_PREFIX_PATH or Torch_DIR at a LibTorch "
                      "(2.11 or later), or build the runtime alone with -DULP_WITH_TORCH=OFF.")
endif()
message(STATUS "LibTorch: ${TORCH_INSTALL_PREFIX}")

add_library(ulp_torch INTERFACE)
target_link_libraries(ulp_torch INTERFACE torch)
target_include_directories(ulp_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
if(TARGET torch_cuda)  # then LibTorch's headers of CUDA need those of the toolkit, which it has found
  target_compile_definitions(ulp_torch INTERFACE ULP_TORCH_HAS_CUDA)
endif()

# Code on LibTorch steers; what computes is in LibTorch and in our kernels. It compiles in two thirds of the time without
# the costly optimizations and runs no slower for it. At -O1 clang inlines nothing by itself; accessors of containers should be.
add_library(ulp_host_flags INTERFACE)
add_library(ulp_test_flags INTERFACE)
foreach(flags ulp_host_flags ulp_test_flags)  # GCC 12 then sees bounds overrun in sums of strings that do not.
  target_compile_options(${flags} INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>)
endforeach()
target_compile_options(ulp_host_flags INTERFACE $<$<CONFIG:Release>:-O1> $<$<CXX_COMPILER_ID:Clang>:-finline-hint-functions>)
# Tests on LibTorch call it and us, and compute little: unoptimized, clang compiles them in half of the time. GCC takes
# longer without optimization than with it.
target_compile_options(ulp_test_flags INTERFACE
                       $<$<CONFIG:Release>:$<IF:$<CXX_COMPILER_ID:Clang>,-O0,-O1>>)

# ulp_torch_header(name flags header...): a precompiled header that targets reuse; they need the same flags and definitions.
# A source file pays again for what a precompiled header leaves to be instantiated. In seconds of an empty file (clang 14,
# GCC 12): 0.4 and 0.4 for tensors alone, 1.1 and 3 with modules and optimizers, 4 and 5 for torch/torch.h.
function(ulp_torch_header name flags)
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(${name} PRIVATE ulp_flags ${flags} ulp_torch nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
set(ulp_common_headers <algorithm> <filesystem> <functional> <map> <optional> <set> <sstream> <string> <variant> <vector> <nlohmann/json.hpp>)
ulp_torch_header(ulp_torch_light_pch ulp_host_flags <ATen/core/Tensor.h> <ATen/core/ivalue.h> ${ulp_common_headers})
set(ulp_core_headers <torch/types.h> <torch/utils.h> <torch/nn/module.h> <torch/optim.h> <torch/library.h>
                     <torch/csrc/autograd/custom_function.h> <ATen/autocast_mode.h> ${ulp_common_headers})
ulp_torch_header(ulp_torch_core_pch ulp_host_flags ${ulp_core_headers})
