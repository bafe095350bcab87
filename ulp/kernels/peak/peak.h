// Loops that do nothing but arithmetic, or nothing but memory traffic: what the instruction sets of this
// machine reach at most. ulp/measure/peaks times them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/peak/math_type.h"

namespace ulp::kernels {

/// Independent chains of one instruction, as many as hide its latency.
struct PeakLoop {
  MathType type = MathType::f32;
  const char* instruction = "";  ///< "vfmadd231ps, 512 bits"
  double operations = 0;         ///< of one pass
  /// Does so many passes in registers; `sink` takes 64 bytes of results, so that they are computed.
  void (*run)(int64_t passes, void* sink) = nullptr;
};

/// A loop with the instruction set it needs.
struct PeakChoice {
  std::string
      isa;  ///< "avx512_vnni"; "avx512_bf16" and "avx512_vpopcntdq" are no families of kernels, but are said
  PeakLoop loop;
};

/// The loops that `isa` admits and this machine runs, the plainest first. A type may have several: its peak
/// is that of the fastest. Numbers of type bf16 are also multiplied as f32, and bits as int8, so that their
/// loops count for them, too.
ULP_API std::vector<PeakChoice> peak_loops(Isa isa);

/// Passes over arrays, as STREAM defines copy, scale, add and triad, and reading alone.
enum class MemoryPass : uint8_t {
  read,   ///< sum of a
  copy,   ///< c = a
  scale,  ///< b = s c
  add,    ///< c = a + b
  triad   ///< a = b + s c
};
/// How many there are.
inline constexpr int kMemoryPassCount = 5;
/// "read", "copy", "scale", "add", "triad".
ULP_API const char* to_string(MemoryPass pass);
/// The arrays that a pass touches: STREAM counts their bytes, and not what a cache reads before it is written
/// to.
constexpr int arrays_of(MemoryPass pass) {
  return pass == MemoryPass::read ? 1 : pass == MemoryPass::copy || pass == MemoryPass::scale ? 2 : 3;
}

/// One pass over `count` doubles of each array, in the widest vectors that `isa` admits. Returns the sum of
/// read, else 0. Arrays are 64-byte aligned, `count` is a multiple of 64.
ULP_API double memory_pass(MemoryPass pass, double* a, double* b, double* c, int64_t count, Isa isa);

}  // namespace ulp::kernels
