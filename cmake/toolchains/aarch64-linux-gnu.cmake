# 64-bit Arm Linux by Debian's cross compiler (scripts/setup.sh arm64 installs it). Programs run under qemu-user: CTest and
# the build start them by CMAKE_CROSSCOMPILING_EMULATOR. ULP_QEMU_CPU names the processor it plays.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(ulp_triple aarch64-linux-gnu)
set(CMAKE_C_COMPILER ${ulp_triple}-gcc)
set(CMAKE_CXX_COMPILER ${ulp_triple}-g++)

# Libraries of the machine that compiles do not serve; packages of headers alone do.
set(CMAKE_FIND_ROOT_PATH /usr/${ulp_triple})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(CMAKE_LIBRARY_ARCHITECTURE ${ulp_triple})

set(ULP_QEMU_CPU max CACHE STRING "The processor that qemu-user plays: max, cortex-a72, neoverse-n1, ...")
find_program(ULP_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(ULP_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${ULP_QEMU} -cpu ${ULP_QEMU_CPU} -L /usr/${ulp_triple})
endif()
