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

# Code on LibTorch steers; what computes is in LibTorch and in our kernels. It compiles in two thirds of the time without
# the costly optimizations and runs no slower for it.
add_library(ulp_host_flags INTERFACE)
# GCC 12 then sees bounds overrun in sums of strings that do not.
target_compile_options(ulp_host_flags INTERFACE $<$<CONFIG:Release>:-O1>
                                                $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>)

# ulp_torch_header(name header...): a precompiled header that targets reuse; they need the same flags and definitions.
# Every source file pays for the templates that a precompiled header leaves to be instantiated: 0.4 s of compile time for
# tensors alone, 3 s with modules and optimizers, 5 s for all of torch/torch.h. Tests and benchmarks have their own.
function(ulp_torch_header name)
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(${name} PRIVATE ulp_flags ulp_host_flags ulp_torch)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
ulp_torch_header(ulp_torch_light_pch <ATen/core/Tensor.h> <ATen/core/ivalue.h> <functional> <map> <sstream> <string> <vector>)
ulp_torch_header(ulp_torch_core_pch <torch/types.h> <torch/utils.h> <torch/nn/module.h> <torch/optim.h>)
