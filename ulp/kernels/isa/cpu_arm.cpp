// Detection by what the Linux kernel says of the processor, for 64-bit Arm.
#include <sys/auxv.h>

#include <cstdint>
#include <cstdio>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {
namespace {

// Bits of AT_HWCAP and AT_HWCAP2 (Documentation/arm64/elf_hwcaps of the Linux kernel). <asm/hwcap.h> of older systems lacks
// the later ones.
constexpr unsigned long kAdvancedSimd = 1UL << 1, kCpuId = 1UL << 11, kDotProduct = 1UL << 20;
constexpr unsigned long kInt8Matrices = 1UL << 13, kBf16 = 1UL << 14;  // of AT_HWCAP2

}  // namespace

CpuFeatures detect_cpu() {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  CpuFeatures found;
  found.neon = (first & kAdvancedSimd) != 0;
  found.neon_dotprod = found.neon && (first & kDotProduct) != 0;
  found.neon_i8mm = found.neon_dotprod && (second & kInt8Matrices) != 0;
  found.neon_bf16 = found.neon_i8mm && (second & kBf16) != 0;
  return found;
}

std::string processor_name() {
  if ((getauxval(AT_HWCAP) & kCpuId) == 0) return "Arm";
  uint64_t id = 0;
  __asm__("mrs %0, midr_el1" : "=r"(id));  // the kernel answers for the processor
  char name[24];
  std::snprintf(name, sizeof(name), "Arm (%x)", static_cast<unsigned>(id));
  return name;
}

}  // namespace ulp::kernels
