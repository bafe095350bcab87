# ulp_isa_files(): each file <name>_<instruction set>.cpp below the calling folder, of a room of kernels, is compiled for
# its instruction set. ulp_isa_flags(family flag...): further flags of the files <family>_<instruction set>.cpp.
#
# One instruction set a file: such a file must not include the standard library beyond <cstdint>, so that no inline
# function compiled for a wide machine can be picked by the linker for all (tests/kernels/no_weak_symbols.cmake).
# Contraction is off everywhere else: the integer layers promise the same bits on every machine.

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
set(ULP_ISA_SUFFIXES portable avx2 avx512 avx512_vnni avx512_bf16 avx512_vbmi2 avx512_vpopcntdq amx
                       amx_emulated)

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
