# ulp_isa_files(): each file <name>_<instruction set>.cpp below the calling folder, of a room of kernels, is compiled for
# its instruction set. ulp_isa_flags(family flag...): further flags of the files <family>_<instruction set>.cpp.
#
# One instruction set a file: such a file must not include the standard library beyond <cstdint>, so that no inline
# function compiled for a wide machine can be picked by the linker for all (tests/kernels/no_weak_symbols.cmake).
# Contraction is off everywhere else: the integer layers promise the same bits on every machine.

# Files of one architecture alone: those of its instruction sets, and <name>_x86.cpp or <name>_arm.cpp.
# ulp_drop_other_architecture(list) takes those of the other one out of a list of sources.

# GCC 12's intrinsics start from `__Y = __Y`, which it then warns about in the callers (GCC bug 105593).
set(ulp_isa_avx2 -mavx2 -mfma -Wno-unused-function)
set(ulp_isa_avx512 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Wno-uninitialized -Wno-unused-function -mavx2
                   -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(ulp_isa_avx512_vnni ${ulp_isa_avx512} -mavx512vnni)
set(ulp_isa_avx512_bf16 ${ulp_isa_avx512} -mavx512bf16)
set(ulp_isa_avx512_vbmi2 ${ulp_isa_avx512_vnni} -mavx512vbmi2 -mpopcnt)
set(ulp_isa_avx512_vpopcntdq ${ulp_isa_avx512} -mavx512vpopcntdq)
set(ulp_isa_amx ${ulp_isa_avx512})
set(ulp_isa_amx_emulated ${ulp_isa_avx512})
set(ulp_isa_portable)
# On Arm GCC schedules before it gives out registers: loads of several steps come first, and sums are spilled.
set(ulp_isa_neon $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
set(ulp_isa_neon_dotprod ${ulp_isa_neon} -march=armv8.2-a+dotprod)
set(ulp_isa_neon_i8mm ${ulp_isa_neon} -march=armv8.2-a+dotprod+i8mm)
set(ulp_isa_neon_bf16 ${ulp_isa_neon} -march=armv8.2-a+dotprod+i8mm+bf16)
set(ulp_isas_x86 avx2 avx512 avx512_vnni avx512_bf16 avx512_vbmi2 avx512_vpopcntdq amx amx_emulated)
set(ulp_isas_arm neon neon_dotprod neon_i8mm neon_bf16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(ulp_architecture x86)
  set(ulp_other_architecture arm)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(ulp_architecture arm)
  set(ulp_other_architecture x86)
else()
  message(FATAL_ERROR "ulp runs on x86-64 and on 64-bit Arm, found the processor ${CMAKE_SYSTEM_PROCESSOR}.")
endif()
set(ULP_ISA_SUFFIXES portable ${ulp_isas_${ulp_architecture}})

function(ulp_drop_other_architecture list)
  list(JOIN ulp_isas_${ulp_other_architecture} "|" suffixes)
  list(FILTER ${list} EXCLUDE REGEX "_(${ulp_other_architecture}|${suffixes})\\.cpp$")
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

function(ulp_isa_files)
  foreach(isa ${ULP_ISA_SUFFIXES})
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_${isa}.cpp)
    set_property(SOURCE ${files} APPEND PROPERTY COMPILE_OPTIONS ${ulp_isa_${isa}})
  endforeach()
endfunction()

function(ulp_isa_flags family)
  foreach(isa ${ULP_ISA_SUFFIXES})
    set(file ${CMAKE_CURRENT_SOURCE_DIR}/${family}_${isa}.cpp)
    if(EXISTS ${file})
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS ${ARGN})
    endif()
  endforeach()
endfunction()
