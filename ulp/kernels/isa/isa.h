// Which instruction set the kernels use: detected once, forced by ULP_ISA for tests; and the name of the processor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::kernels {

/// Kernel families: plain C++, those of x86-64 and those of 64-bit Arm, each from the plainest to the best.
/// amx_emulated runs the AMX kernels with the tile instructions done in software, so that their logic is tested on
/// machines without AMX; it is never chosen by itself.
enum class Isa : uint8_t {
  portable,
  avx2,
  avx512,
  avx512_vnni,
  amx,
  amx_emulated,
  neon,          ///< Advanced SIMD, which every 64-bit Arm processor has
  neon_dotprod,  ///< and dot products of bytes (Armv8.2)
  neon_i8mm,     ///< and products of matrices of bytes (Armv8.6)
  neon_bf16      ///< and products of bf16 (Armv8.6)
};

/// Whether kernels compiled for `needed` may serve where `isa` was chosen: when `isa` is or includes it
/// (avx512 includes avx2 and portable) and this machine runs `needed`. A layer made for an `isa` that the machine lacks
/// takes the best of what it includes instead.
ULP_API bool admits(Isa isa, Isa needed);

/// "portable", "avx2", ...
ULP_API const char* to_string(Isa isa);
/// Throws ulp::Error naming the accepted words.
ULP_API Isa isa_from_string(const std::string& name);
/// The best family this machine can run (asks the kernel for AMX permission once).
ULP_API Isa best_isa();
/// Every family this machine can run, best first, portable last; amx_emulated where AVX-512 is present.
ULP_API std::vector<Isa> available_isas();
/// Chooses by the value of ULP_ISA, as selected_isa() does (null or empty: not set).
ULP_API Isa choose_isa(const char* forced);
/// ULP_ISA if set (an error if this machine cannot run it), else best_isa(). Read once per process.
ULP_API Isa selected_isa();

/// True on AMD's family 1Ah (Zen 5) with AVX-512, whatever ULP_ISA says: its units are 512 bits wide.
ULP_API bool is_amd_family_1a();

/// Whether kernels of that instruction set take vdpbf16ps, which is a part of avx512_vnni here: the processor has it, and
/// computes so at twice the rate of floats or more.
ULP_API bool has_fast_bf16_pairs(Isa isa);

/// The name of the processor, and its family, model and stepping as CPUID has them:
/// "Intel(R) Xeon(R) Gold 6430 (806f8)". Printable ASCII. The first part is empty on one without a name. Arm processors
/// have none: "Arm (413fd0c1)", with the register MIDR_EL1, or "Arm" alone where the system keeps it to itself.
ULP_API std::string processor_name();

}  // namespace ulp::kernels
