#include "ulp/kernels/peak/peak.h"

#include <iterator>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/peak/peak_tables.h"

namespace ulp::kernels {
namespace {

struct TableRow {
  Isa needs;
  bool CpuFeatures::*also;  ///< beside the family; null: nothing
  const PeakTable* table;
};

// Plainest first. Kernels with vdpbf16ps are chosen within the family avx512_vnni.
const TableRow kTables[] = {
    {Isa::portable, nullptr, &kPeakPortable},
    {Isa::avx2, nullptr, ULP_ON_X86(&kPeakAvx2)},
    {Isa::avx512, nullptr, ULP_ON_X86(&kPeakAvx512)},
    {Isa::avx512, &CpuFeatures::avx512_vpopcntdq, ULP_ON_X86(&kPeakAvx512Vpopcntdq)},
    {Isa::avx512_vnni, nullptr, ULP_ON_X86(&kPeakAvx512Vnni)},
    {Isa::avx512_vnni, &CpuFeatures::avx512_bf16, ULP_ON_X86(&kPeakAvx512Bf16)},
    {Isa::amx, nullptr, ULP_ON_X86(&kPeakAmx)},
    {Isa::neon, nullptr, ULP_ON_ARM(&kPeakNeon)},
    {Isa::neon_dotprod, nullptr, ULP_ON_ARM(&kPeakNeonDotprod)},
    {Isa::neon_i8mm, nullptr, ULP_ON_ARM(&kPeakNeonI8mm)},
    {Isa::neon_bf16, nullptr, ULP_ON_ARM(&kPeakNeonBf16)},
};

constexpr Variant<const MemoryTable*> kMemory[] = {{Isa::avx512, ULP_ON_X86(&kMemoryAvx512)},
                                                   {Isa::avx2, ULP_ON_X86(&kMemoryAvx2)},
                                                   {Isa::portable, &kMemoryPortable}};

constexpr const char* kTypeNames[] = {"f32", "bf16", "int8", "binary"};
static_assert(std::size(kTypeNames) == kMathTypeCount);
constexpr const char* kPassNames[] = {"read", "copy", "scale", "add", "triad"};
static_assert(std::size(kPassNames) == kMemoryPassCount);

}  // namespace

const char* to_string(MathType type) {
  return kTypeNames[static_cast<size_t>(type)];
}

const char* to_string(MemoryPass pass) {
  return kPassNames[static_cast<size_t>(pass)];
}

std::vector<PeakChoice> peak_loops(Isa isa) {
  std::vector<PeakChoice> found;
  for (const TableRow& row : kTables) {
    if (!admits(isa, row.needs) || (row.also != nullptr && !(cpu_features().*row.also))) continue;
    for (int i = 0; i < row.table->count; ++i) found.push_back({row.table->isa, row.table->loops[i]});
  }
  return found;
}

double memory_pass(MemoryPass pass, double* a, double* b, double* c, int64_t count, Isa isa) {
  if (count < 0 || count % 64 != 0)
    fail("kernels.memory_pass", "expected a multiple of 64 doubles, got ", count);
  return first_admitted(kMemory, isa)->pass[static_cast<size_t>(pass)](a, b, c, count);
}

}  // namespace ulp::kernels
