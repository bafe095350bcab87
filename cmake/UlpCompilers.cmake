# Two compilers in one build. Kernels and the runtime are compiled by GCC, whose code for them is measured; all that reads
# LibTorch's headers by clang where it is there: clang instantiates the templates of a precompiled header once
# (-fpch-instantiate-templates, CMake's default), GCC in every file again (bench/notes/build-time.md). Both use libstdc++, so
# that their objects link. scripts/build.sh chooses clang as the compiler of the project and sets ULP_KERNEL_CXX.
set(ULP_KERNEL_CXX "" CACHE FILEPATH "GCC for kernels and the runtime; empty: the project's compiler")
if(ULP_KERNEL_CXX)
  execute_process(COMMAND ${ULP_KERNEL_CXX} -dumpfullversion OUTPUT_VARIABLE ULP_KERNEL_CXX_VERSION
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed OR ULP_KERNEL_CXX_VERSION VERSION_LESS 11)
    message(FATAL_ERROR "ULP_KERNEL_CXX has to be GCC 11 or later, found '${ULP_KERNEL_CXX}' of version '${ULP_KERNEL_CXX_VERSION}'.")
  endif()
endif()

# ulp_use_kernel_compiler(): the targets of the calling folder are compiled by ULP_KERNEL_CXX. Called before they are made.
# CMake takes compiler and conditions on it ($<CXX_COMPILER_ID:GNU>) from the variables of a target's folder.
macro(ulp_use_kernel_compiler)
  if(ULP_KERNEL_CXX)
    set(CMAKE_CXX_COMPILER ${ULP_KERNEL_CXX})
    set(CMAKE_CXX_COMPILER_ID GNU)
    set(CMAKE_CXX_COMPILER_VERSION ${ULP_KERNEL_CXX_VERSION})
  endif()
endmacro()
