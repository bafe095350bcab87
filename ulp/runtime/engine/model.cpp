#include "ulp/runtime/engine/model.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

constexpr int64_t kLargestSlice = 256;

size_t read_physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size)
                               : std::numeric_limits<size_t>::max();
}

/// Bytes. Asked once: the system opens files for the answer.
size_t physical_memory() {
  static const size_t bytes = read_physical_memory();
  return bytes;
}

kernels::Isa choose_isa(const std::string& name) {
  if (name.empty()) return kernels::selected_isa();
  const kernels::Isa isa = kernels::isa_from_string(name);
  const std::vector<kernels::Isa> all = kernels::available_isas();
  if (std::ranges::find(all, isa) == all.end()) {
    fail("runtime.Engine", "expected an instruction set of this machine, got '", name, "'");
  }
  return isa;
}

size_t cache_budget() {
  const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (bytes > 0 ? static_cast<size_t>(bytes) : size_t{1} << 20) / 4 * 3;
}

int64_t largest_slice_of(const Program& program) {
  const size_t budget = cache_budget();
  int64_t items = kSmallestSlice;
  while (items < kLargestSlice && program.region_bytes(2 * items, 1) <= budget) items *= 2;
  return items;
}

}  // namespace

Model::Model(const VerifiedPlan& plan, const EngineOptions& options)
    : isa_(choose_isa(options.isa)),
      arena_limit_(options.max_arena_bytes > 0 ? std::min(options.max_arena_bytes, physical_memory())
                                               : physical_memory()),
      program_(plan, isa_, options.max_constant_bytes),
      largest_slice_(largest_slice_of(program_)) {
  for (const auto& [name, constant] : plan->constants) constant_bytes_ += constant.bytes.size();
}

void Model::check_batch(int64_t batch) const {
  const size_t per_item = program_.bytes_per_item();
  if (static_cast<size_t>(batch) <= physical_memory() / per_item) return;
  fail("runtime.Engine", "expected a batch whose intermediates fit the memory of this machine, got batch ",
       batch, " with ", per_item, " bytes per item");
}

}  // namespace ulp::runtime
