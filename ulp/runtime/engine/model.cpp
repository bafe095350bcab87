#include "ulp/runtime/engine/model.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/cpu.h"

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
    fail(ErrorCode::unavailable, "runtime.Engine", "expected an instruction set of this machine, got '", name,
         "'");
  }
  return isa;
}

size_t cache_budget() {
  return static_cast<size_t>(kernels::second_level_cache()) / 4 * 3;
}

int64_t largest_slice_of(const Program& program) {
  const size_t budget = cache_budget();
  int64_t items = kSmallestSlice;
  while (items < kLargestSlice && program.region_bytes(2 * items, 1) <= budget) items *= 2;
  return items;
}

size_t constant_bytes_of(const Plan& plan) {
  size_t bytes = 0;
  for (const auto& [name, constant] : plan.constants) bytes += constant.bytes.size();
  return bytes;
}

/// The options, of which none is no number or out of range.
const EngineOptions& checked(const EngineOptions& options) {
  if (!(options.error_budget >= 0 && options.error_budget <= 1))
    fail(ErrorCode::bad_option, "runtime.Engine", "expected an error_budget from 0 to 1, got ",
         options.error_budget);
  if (!(options.max_measuring_seconds >= 0))
    fail(ErrorCode::bad_option, "runtime.Engine", "expected max_measuring_seconds of at least 0, got ",
         options.max_measuring_seconds);
  return options;
}

/// What a plan may take that is as large as it looks. Packing takes up to twice its constants.
size_t default_budget(const Plan& plan) {
  constexpr size_t kSmall = size_t{256} << 20;
  return 4 * constant_bytes_of(plan) + kSmall;
}

}  // namespace

SizedProgram::SizedProgram(const VerifiedPlan& plan, Prepacker& preparer, int64_t rows)
    : program(plan, preparer), rows(rows), largest_slice(largest_slice_of(program)) {}

Model::Model(const VerifiedPlan& plan, const EngineOptions& options)
    : isa_(choose_isa(checked(options).isa)),
      arena_limit_(options.max_arena_bytes > 0 ? std::min(options.max_arena_bytes, physical_memory())
                                               : physical_memory()),
      batch_range_(plan->batch_range),
      free_(plan->following.free),
      continued_(plan->continued),
      constant_bytes_(constant_bytes_of(*plan)),
      measured_(
          std::make_shared<TimingCache>(options.sparse_table, arena_limit_, options.max_measuring_seconds)),
      preparer_(isa_, options.max_constant_bytes > 0 ? options.max_constant_bytes : default_budget(*plan),
                {options.sparse, options.blocks, options.error_budget, !free_.empty(), constant_bytes_,
                 measured_}) {
  if (free_.empty()) {
    made_.push_back({{}, std::make_shared<const SizedProgram>(plan, preparer_, 0)});
    measured_->save();
    expect_continued(*made_.front().program);
    return;
  }
  find_places(*plan);
  for (const auto& [name, sizes] : plan->following.corners) preparer_.packs().leave_out(name);
  plan_ = std::make_unique<const Plan>(*plan);
  family_ = std::make_unique<const PlanSpecializer>(*plan_);
  std::vector<int64_t> largest;
  const auto along = std::ranges::find(free_, continued_, &DynamicDimension::name);
  if (along != free_.end()) longest_ = along->max;
  for (const DynamicDimension& dimension : free_) largest.push_back(dimension.max);
  made_.push_back({largest, make(largest)});
  measured_->save();
  expect_continued(*made_.front().program);
}

void Model::find_places(const Plan& plan) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    inputs_.push_back(plan.tensors[static_cast<size_t>(plan.inputs[i])]);
    const std::string shape = "/tensors/" + std::to_string(plan.inputs[i]) + "/shape/";
    for (const SymbolicNumber& number : plan.following.numbers) {
      if (!number.path.starts_with(shape) || number.value.terms.size() != 1) continue;
      const Polynomial::Term& term = number.value.terms[0];
      const auto dim = static_cast<size_t>(std::strtoul(number.path.c_str() + shape.size(), nullptr, 10));
      const bool itself = !term.powers.empty() && term.numerator == 1 && term.denominator == 1 &&
                          term.powers.back() == 1 &&
                          std::ranges::count(term.powers, 0) + 1 == static_cast<int64_t>(term.powers.size());
      if (itself) places_.push_back({term.powers.size() - 1, i, dim});
    }
  }
}

std::map<std::string, int64_t> Model::sizes_for(std::span<const std::vector<int64_t>> shapes) const {
  constexpr const char* kWhere = "runtime.Engine.sizes_for";
  std::map<std::string, int64_t> sizes;
  if (free_.empty()) return sizes;
  if (shapes.size() != inputs_.size())
    fail(ErrorCode::bad_shape, kWhere, "expected ", inputs_.size(), " inputs, got ", shapes.size());
  for (const Place& place : places_) {
    const std::vector<int64_t>& shape = shapes[place.input];
    const TensorInfo& input = inputs_[place.input];
    if (shape.size() != input.shape.size()) {
      fail(ErrorCode::bad_shape, kWhere, "expected '", input.name, "' with ", input.shape.size(),
           " dimensions, got ", shape_text(shape));
    }
    const DynamicDimension& free = free_[place.free];
    const int64_t size = shape[place.dim];
    free.check(size, kWhere);
    const int64_t first = sizes.try_emplace(free.name, size).first->second;
    if (first != size) {
      fail(ErrorCode::bad_shape, kWhere, "expected size ", first, " in dimension ", place.dim, " of '",
           input.name, "', as '", free.name, "' is in the inputs before it, got ", size);
    }
  }
  return sizes;
}

void Model::expect_continued(const SizedProgram& made) const {
  if (made.rows == 0 && made.program.keeps_rows())
    fail("runtime.Engine",
         "expected a free dimension along which the runs of this plan continue each other, got none");
}

std::shared_ptr<const SizedProgram> Model::make(const std::vector<int64_t>& sizes) const {
  try {
    const auto at = std::ranges::find(free_, continued_, &DynamicDimension::name);
    const int64_t rows = at == free_.end() ? 0 : sizes[static_cast<size_t>(at - free_.begin())];
    return std::make_shared<const SizedProgram>(VerifiedPlan::check(family_->at(sizes), facts_), preparer_,
                                                rows);
  } catch (const PlanProblem& found) {
    fail("runtime.Engine", found.text);
  }
}

std::shared_ptr<const SizedProgram> Model::at(const std::vector<int64_t>& sizes) const {
  constexpr size_t kMostPrograms = 64;
  const std::scoped_lock lock(lock_);
  const auto known = std::ranges::find(made_, sizes, &Made::sizes);
  if (known != made_.end()) {
    made_.splice(made_.begin(), made_, known);
    return known->program;
  }
  if (made_.size() >= kMostPrograms) {
    made_.pop_back();
    preparer_.forget_ended();
  }
  made_.push_front({sizes, make(sizes)});
  measured_->save();
  return made_.front().program;
}

void check_batch(const Program& program, int64_t batch) {
  const size_t per_item = program.bytes_per_item();
  if (static_cast<size_t>(batch) <= physical_memory() / per_item) return;
  fail(ErrorCode::out_of_memory, "runtime.Engine",
       "expected a batch whose intermediates fit the memory of this machine, got batch ", batch, " with ",
       per_item, " bytes per item");
}

}  // namespace ulp::runtime
