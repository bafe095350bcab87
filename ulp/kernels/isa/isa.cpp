#include "ulp/kernels/isa/isa.h"

#include <array>
#include <cstdlib>

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
    {Isa::neon_bf16, "neon_bf16", &CpuFeatures::neon_bf16, Isa::neon_i8mm, true},
    {Isa::neon_i8mm, "neon_i8mm", &CpuFeatures::neon_i8mm, Isa::neon_dotprod, true},
    {Isa::neon_dotprod, "neon_dotprod", &CpuFeatures::neon_dotprod, Isa::neon, true},
    {Isa::neon, "neon", &CpuFeatures::neon, Isa::portable, true},
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
  fail(ErrorCode::bad_option, "kernels.isa_from_string", "expected one of ", words(all), "; got '", name,
       "'");
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

bool is_amd_family_1a() {
  return cpu_features().amd_family_1a;
}

bool has_fast_bf16_pairs(Isa isa) {
  return admits(isa, Isa::avx512_vnni) && cpu_features().avx512_bf16 && !cpu_features().intel;
}

}  // namespace ulp::kernels
