// Detection by CPUID and the saved register state, for x86-64.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/family.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {
namespace {

uint64_t enabled_register_state() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool request_amx_permission() {
#ifdef SYS_arch_prctl
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool bit(uint32_t word, int position) {
  return (word >> position & 1U) != 0;
}

}  // namespace

CpuFeatures detect_cpu() {
  CpuFeatures found;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return found;
  found.intel = b == signature_INTEL_ebx;
  const bool amd = b == signature_AMD_ebx;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return found;  // OSXSAVE
  const bool fma = bit(c, 12);
  const bool family_1a = amd && family_of(a) == 0x1A;
  const uint64_t state = enabled_register_state();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const uint32_t leaf7_b = b, leaf7_c = c, leaf7_d = d;
  uint32_t leaf71_a = 0;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf71_a = a;

  found.avx2 = (state & 0x6) == 0x6 && fma && bit(leaf7_b, 5);
  const bool avx512_bits = bit(leaf7_b, 16) && bit(leaf7_b, 17) && bit(leaf7_b, 30) && bit(leaf7_b, 31);
  found.avx512 = found.avx2 && (state & 0xe6) == 0xe6 && avx512_bits;
  found.amd_family_1a = found.avx512 && family_1a;
  found.avx512_vnni = found.avx512 && bit(leaf7_c, 11);
  found.avx512_vbmi2 = found.avx512_vnni && bit(leaf7_c, 6);
  found.avx512_vpopcntdq = found.avx512 && bit(leaf7_c, 14);
  found.avx512_bf16 = found.avx512 && bit(leaf71_a, 5);
  const bool amx_bits = bit(leaf7_d, 22) && bit(leaf7_d, 24) && bit(leaf7_d, 25);
  found.amx = found.avx512_vnni && amx_bits && (state & 0x60000) == 0x60000 && request_amx_permission();
  return found;
}

std::string processor_name() {
  constexpr uint32_t kFirstLeaf = 0x80000002, kLeaves = 3;
  std::string name;
  uint32_t words[4] = {};
  for (uint32_t leaf = 0; leaf < kLeaves; ++leaf) {
    if (!__get_cpuid(kFirstLeaf + leaf, &words[0], &words[1], &words[2], &words[3])) break;
    char text[sizeof(words)];
    std::memcpy(text, words, sizeof(words));
    for (const char c : text) {
      if (c >= ' ' && c <= '~') name += c;
    }
  }
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  char version[16] = "";
  if (__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]))
    std::snprintf(version, sizeof(version), " (%x)", words[0]);
  return name + version;
}

}  // namespace ulp::kernels
