#include "ulp/kernels/isa/isa.h"

#include <cpuid.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {
namespace {

/// What there is to say about one instruction set.
struct IsaRow {
  Isa isa;
  const char* name;
  bool CpuFeatures::*needs;  ///< null: nothing
  Isa includes;              ///< the next one whose kernels it runs, too; itself: none
  bool automatic;            ///< best_isa() may choose it
};

// Best first; the last one always runs.
constexpr IsaRow kRows[] = {
    {Isa::amx, "amx", &CpuFeatures::amx, Isa::avx512_vnni, true},
    {Isa::avx512_vnni, "avx512_vnni", &CpuFeatures::avx512_vnni, Isa::avx512, true},
    {Isa::avx512, "avx512", &CpuFeatures::avx512, Isa::avx2, true},
    {Isa::avx2, "avx2", &CpuFeatures::avx2, Isa::portable, true},
    {Isa::amx_emulated, "amx_emulated", &CpuFeatures::avx512, Isa::avx512_vnni, false},
    {Isa::portable, "portable", nullptr, Isa::portable, true},
};
constexpr size_t kIsas = std::size(kRows);

const IsaRow& row_of(Isa isa) {
  for (const IsaRow& row : kRows) {
    if (row.isa == isa) return row;
  }
  fail("kernels.isa", "expected an instruction set, got number ", static_cast<int>(isa));
}

bool can_run(Isa isa) {
  const IsaRow& row = row_of(isa);
  return row.needs == nullptr || cpu_features().*row.needs;
}

/// A bit for each one that `isa` admits.
uint32_t admitted_by(Isa isa) {
  uint32_t admitted = 0;
  while (true) {
    if (can_run(isa)) admitted |= 1U << static_cast<unsigned>(isa);
    const Isa next = row_of(isa).includes;
    if (next == isa) return admitted;
    isa = next;
  }
}

std::array<uint32_t, kIsas> all_admitted() {
  std::array<uint32_t, kIsas> out{};
  for (const IsaRow& row : kRows) out[static_cast<size_t>(row.isa)] = admitted_by(row.isa);
  return out;
}

std::string words(const std::vector<Isa>& isas) {
  std::string out;
  for (Isa isa : isas) out += (out.empty() ? "" : ", ") + std::string(to_string(isa));
  return out;
}

}  // namespace

bool admits(Isa isa, Isa needed) {
  static const std::array<uint32_t, kIsas> kAdmitted = all_admitted();
  return (kAdmitted[static_cast<size_t>(isa)] >> static_cast<unsigned>(needed) & 1U) != 0;
}

const char* to_string(Isa isa) {
  return row_of(isa).name;
}

Isa isa_from_string(const std::string& name) {
  std::vector<Isa> all;
  for (const IsaRow& row : kRows) {
    if (name == row.name) return row.isa;
    all.push_back(row.isa);
  }
  fail("kernels.isa_from_string", "expected one of ", words(all), "; got '", name, "'");
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (const IsaRow& row : kRows) {
    if (can_run(row.isa)) out.push_back(row.isa);
  }
  return out;
}

Isa best_isa() {
  for (const IsaRow& row : kRows) {
    if (row.automatic && can_run(row.isa)) return row.isa;
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
