#include "ulp/kernels/isa/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {
namespace {

constexpr Isa kAll[] = {Isa::amx, Isa::avx512_vnni, Isa::avx512, Isa::avx2, Isa::amx_emulated, Isa::portable};

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

CpuFeatures detect() {
  CpuFeatures found;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return found;
  found.intel = b == signature_INTEL_ebx;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return found;  // OSXSAVE
  const bool fma = bit(c, 12);
  const uint64_t state = enabled_register_state();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const uint32_t leaf7_b = b, leaf7_c = c, leaf7_d = d;
  uint32_t leaf71_a = 0;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf71_a = a;

  found.avx2 = (state & 0x6) == 0x6 && fma && bit(leaf7_b, 5);
  const bool avx512_bits = bit(leaf7_b, 16) && bit(leaf7_b, 17) && bit(leaf7_b, 30) && bit(leaf7_b, 31);
  found.avx512 = found.avx2 && (state & 0xe6) == 0xe6 && avx512_bits;
  found.avx512_vnni = found.avx512 && bit(leaf7_c, 11);
  found.avx512_bf16 = found.avx512 && bit(leaf71_a, 5);
  const bool amx_bits = bit(leaf7_d, 22) && bit(leaf7_d, 24) && bit(leaf7_d, 25);
  found.amx = found.avx512_vnni && amx_bits && (state & 0x60000) == 0x60000 && request_amx_permission();
  return found;
}

bool can_run(Isa isa) {
  const CpuFeatures& cpu = cpu_features();
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return cpu.avx2;
    case Isa::avx512:
      return cpu.avx512;
    case Isa::avx512_vnni:
      return cpu.avx512_vnni;
    case Isa::amx:
      return cpu.amx;
    case Isa::amx_emulated:
      return cpu.avx512;
  }
  return false;
}

std::string words(const std::vector<Isa>& isas) {
  std::string out;
  for (Isa isa : isas) out += (out.empty() ? "" : ", ") + std::string(to_string(isa));
  return out;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = detect();
  return found;
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_vnni:
      return "avx512_vnni";
    case Isa::amx:
      return "amx";
    case Isa::amx_emulated:
      return "amx_emulated";
  }
  return "?";
}

Isa isa_from_string(const std::string& name) {
  for (Isa isa : kAll) {
    if (name == to_string(isa)) return isa;
  }
  fail("kernels.isa_from_string", "expected one of ", words({std::begin(kAll), std::end(kAll)}), "; got '",
       name, "'");
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (Isa isa : kAll) {
    if (can_run(isa)) out.push_back(isa);
  }
  return out;
}

Isa best_isa() {
  // kAll is best first, and its last entry always runs; the emulation is for tests only.
  for (Isa isa : kAll) {
    if (isa != Isa::amx_emulated && can_run(isa)) return isa;
  }
  return Isa::portable;
}

Isa choose_isa(const char* forced) {
  if (forced == nullptr || *forced == '\0') return best_isa();
  const Isa isa = isa_from_string(forced);
  if (!can_run(isa)) {
    fail("kernels.choose_isa", "expected ULP_ISA to name what this machine can run (",
         words(available_isas()), "), got '", forced, "'");
  }
  return isa;
}

Isa selected_isa() {
  static const Isa isa = choose_isa(std::getenv("ULP_ISA"));
  return isa;
}

}  // namespace ulp::kernels
