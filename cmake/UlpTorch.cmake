# Finds LibTorch: one given by CMAKE_PREFIX_PATH or Torch_DIR, else the one `make setup` placed in .deps.
# Defines the target ulp_torch (LibTorch without its Python library) and a shared precompiled header.
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

add_library(ulp_torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_link_libraries(ulp_torch_pch PRIVATE ulp_flags ulp_torch)
target_precompile_headers(ulp_torch_pch PRIVATE <torch/torch.h>)
set_target_properties(ulp_torch_pch PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
