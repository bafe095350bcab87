#include "ulp/kernels/pointwise/pointwise.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/elementwise/small_ops_table.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/pointwise/pointwise_ops.h"

namespace ulp::kernels {
namespace {

/// Elements of a block: what a program touches for one stays in the nearest cache.
constexpr int64_t kBlock = 256;

constexpr Variant<const PointwiseOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kPointwiseOpsAvx512)},
                                                    {Isa::avx2, ULP_ON_X86(&kPointwiseOpsAvx2)},
                                                    {Isa::portable, &kPointwiseOpsPortable}};

ElementwiseArgs to_float(Affine q) {
  ElementwiseArgs args;
  args.a_zero = static_cast<float>(q.zero_point);
  args.a_multiplier = q.scale;
  return args;
}

ElementwiseArgs to_codes(Affine q) {
  ElementwiseArgs args = u8_args(Activation::none, q, q, q);
  args.a_multiplier = 1.0F / q.scale;
  return args;
}

template <typename T, typename Convert>
void gather(const T* from, int64_t stride, int64_t n, float* to, Convert convert) {
  if (stride == 0) {  // one number for all
    std::fill_n(to, n, convert(*from));
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = convert(from[i * stride]);
}

/// n elements that lie `stride` apart, as floats.
void load_run(const PointwiseInput& input, const void* data, int64_t offset, int64_t stride, int64_t n,
              float* to, const SmallOps& ops) {
  switch (input.type) {
    case DataType::f32: {
      const float* from = static_cast<const float*>(data) + offset;
      if (stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
      } else {
        gather(from, stride, n, to, [](float v) { return v; });
      }
      break;
    }
    case DataType::bf16: {
      const uint16_t* from = static_cast<const uint16_t*>(data) + offset;
      if (stride == 1) {
        ops.bf16_to_f32(from, to, n);
      } else {
        gather(from, stride, n, to, [](uint16_t v) { return bf16_to_float(v); });
      }
      break;
    }
    case DataType::u8: {
      const uint8_t* from = static_cast<const uint8_t*>(data) + offset;
      if (stride == 1) {
        ops.dequantize(from, to, n, to_float(input.affine));
      } else {
        const float zero = static_cast<float>(input.affine.zero_point), scale = input.affine.scale;
        gather(from, stride, n, to, [=](uint8_t v) { return (static_cast<float>(v) - zero) * scale; });
      }
      break;
    }
    case DataType::i32:
      gather(static_cast<const int32_t*>(data) + offset, stride, n, to,
             [](int32_t v) { return static_cast<float>(v); });
      break;
    default:
      gather(static_cast<const int64_t*>(data) + offset, stride, n, to,
             [](int64_t v) { return static_cast<float>(v); });
  }
}

/// Keeps the first element of a range at which a number is none that f32 surely holds as an integer. `at`:
/// where the numbers stand in the output.
void look_at_integers(const float* x, int64_t n, int64_t at, InexactInteger& inexact) {
  const int64_t last = inexact.element < 0 ? n : std::min(n, inexact.element - at);
  for (int64_t i = 0; i < last; ++i) {
    if (!may_be_inexact(x[i])) continue;
    inexact = {at + i, x[i]};
    return;
  }
}

/// The first one of all ranges, whichever thread reports it.
class FirstInexact {
 public:
  void report(const InexactInteger& one) {
    if (one.element < 0) return;
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
    if (first_.element < 0 || one.element < first_.element) first_ = one;
    busy_.clear(std::memory_order_release);
  }
  /// For when all ranges have ended.
  std::optional<InexactInteger> found() const {
    return first_.element < 0 ? std::nullopt : std::optional(first_);
  }

 private:
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  InexactInteger first_;
};

void check_program(const PointwiseProgram& program) {
  const auto fail_at = [](const char* what, int64_t most, int64_t got) {
    fail("kernels.pointwise", "expected 1 to ", most, " ", what, ", got ", got);
  };
  const auto literals = static_cast<int64_t>(program.literals.size());
  const auto steps = static_cast<int64_t>(program.steps.size());
  if (program.inputs < 1 || program.inputs > kMaxPointwiseInputs)
    fail_at("inputs", kMaxPointwiseInputs, program.inputs);
  if (literals > kMaxPointwiseLiterals) fail_at("literals", kMaxPointwiseLiterals, literals);
  if (steps < 1 || steps > kMaxPointwiseSteps) fail_at("functions", kMaxPointwiseSteps, steps);
  int registers = program.inputs + static_cast<int>(literals);
  for (const PointwiseStep& step : program.steps) {
    if (static_cast<int>(step.op) >= kPointwiseCount)
      fail("kernels.pointwise", "expected a function of the list");
    for (int i = 0; i < operand_count(step.op); ++i) {
      const int operand = step.operands[static_cast<size_t>(i)];
      if (operand < 0 || operand >= registers) {
        fail("kernels.pointwise", "expected an operand below ", registers, ", got ", operand);
      }
    }
    ++registers;
  }
}

/// Makes one dimension of two neighbours where every input's memory allows it, and drops sizes of 1.
void merge_dims(std::vector<int64_t>& sizes, std::vector<PointwiseInput>& inputs) {
  const auto erase = [&](size_t d) {
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
    for (PointwiseInput& input : inputs) {
      std::copy(input.strides.begin() + static_cast<std::ptrdiff_t>(d) + 1, input.strides.end(),
                input.strides.begin() + static_cast<std::ptrdiff_t>(d));
    }
  };
  for (size_t d = sizes.size() - 1; d > 0; --d) {
    if (sizes[d] == 1) erase(d);
  }
  for (size_t d = sizes.size() - 1; d > 0; --d) {
    const bool together = std::ranges::all_of(inputs, [&](const PointwiseInput& input) {
      return input.strides[d - 1] == sizes[d] * input.strides[d];
    });
    if (!together) continue;
    sizes[d - 1] *= sizes[d];
    for (PointwiseInput& input : inputs) input.strides[d - 1] = input.strides[d];
    erase(d);
  }
}

}  // namespace

/// Registers of one block, on the stack.
struct Pointwise::Block {
  alignas(64) float data[kMaxPointwiseInputs + kMaxPointwiseLiterals + kMaxPointwiseSteps][kBlock];
};

Pointwise::Pointwise(PointwiseProgram program, std::vector<PointwiseInput> inputs,
                     std::span<const int64_t> sizes, DataType result, Affine result_affine, Isa isa)
    : program_(std::move(program)),
      inputs_(std::move(inputs)),
      sizes_(sizes.begin(), sizes.end()),
      result_(result),
      affine_(result_affine),
      isa_(isa) {
  check_program(program_);
  check_small_type("kernels.pointwise", result);
  if (inputs_.size() != static_cast<size_t>(program_.inputs)) {
    fail("kernels.pointwise", "expected ", program_.inputs, " inputs, got ", inputs_.size());
  }
  if (sizes_.empty() || sizes_.size() > kPointwiseDims) {
    fail("kernels.pointwise", "expected 1 to ", kPointwiseDims, " dimensions, got ", sizes_.size());
  }
  for (const PointwiseInput& input : inputs_) {
    if (input.type == DataType::i32 || input.type == DataType::i64) continue;
    check_small_type("kernels.pointwise", input.type);
  }
  item_ = std::accumulate(sizes_.begin() + 1, sizes_.end(), int64_t{1}, std::multiplies<>());
  merge_dims(sizes_, inputs_);
  for (const PointwiseInput& input : inputs_) dense_.push_back(is_dense(input));
  make_table();
}

bool Pointwise::is_dense(const PointwiseInput& input) const {
  int64_t dense = 1;
  for (size_t d = sizes_.size(); d-- > 0; dense *= sizes_[d]) {
    if (input.strides[d] != dense) return false;
  }
  return true;
}

/// 256 codes in, 256 codes out: the program runs on them once.
void Pointwise::make_table() {
  if (result_ != DataType::u8 || inputs_.size() != 1 || inputs_[0].type != DataType::u8 || !dense_[0]) return;
  std::array<uint8_t, 256> codes;
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  std::vector<uint8_t> results(codes.size());
  const void* const input = codes.data();
  run_range({&input, 1}, results.data(), 0, static_cast<int64_t>(codes.size()));
  table_ = std::move(results);
}

void Pointwise::load(size_t index, const void* data, int64_t begin, int64_t count, float* block) const {
  const PointwiseInput& input = inputs_[index];
  const size_t last = sizes_.size() - 1;
  const int64_t stride = input.strides[last];
  const SmallOps& ops = small_ops(isa_);
  if (dense_[index]) return load_run(input, data, begin, 1, count, block, ops);
  if (last == 0) return load_run(input, data, begin * stride, stride, count, block, ops);
  std::array<int64_t, kPointwiseDims> at;  // where `begin` is
  int64_t rest = begin;
  for (size_t d = last; d > 0; --d) {
    at[d] = rest % sizes_[d];
    rest /= sizes_[d];
  }
  at[0] = rest;
  int64_t offset = 0;
  for (size_t d = 0; d <= last; ++d) offset += at[d] * input.strides[d];
  // Rows that repeat, such as a number for each channel of every pixel, are read once a block.
  const float* known = nullptr;
  int64_t known_offset = -1, known_count = 0;
  while (true) {
    const int64_t n = std::min(count, sizes_[last] - at[last]);
    if (offset == known_offset && n <= known_count) {
      std::memcpy(block, known, static_cast<size_t>(n) * sizeof(float));
    } else {
      load_run(input, data, offset, stride, n, block, ops);
      known = block;
      known_offset = offset;
      known_count = n;
    }
    block += n;
    count -= n;
    if (count == 0) return;
    offset -= at[last] * stride;
    at[last] = 0;
    for (size_t d = last - 1;; --d) {
      ++at[d];
      offset += input.strides[d];
      if (d == 0 || at[d] < sizes_[d]) break;
      offset -= at[d] * input.strides[d];
      at[d] = 0;
    }
  }
}

InexactInteger Pointwise::run_range(std::span<const void* const> inputs, void* output, int64_t begin,
                                    int64_t end) const {
  InexactInteger inexact;
  Block block;
  const float* registers[kMaxPointwiseInputs + kMaxPointwiseLiterals + kMaxPointwiseSteps];
  const auto literals = static_cast<size_t>(program_.inputs);
  for (size_t i = 0; i < program_.literals.size(); ++i) {
    std::fill_n(block.data[literals + i], kBlock, program_.literals[i]);
    registers[literals + i] = block.data[literals + i];
  }
  const size_t first = literals + program_.literals.size(), steps = program_.steps.size();
  const PointwiseOps& ops = *first_admitted(kTables, isa_);
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (dense_[i] && inputs_[i].type == DataType::f32) {
        registers[i] = static_cast<const float*>(inputs[i]) + at;
      } else {
        load(i, inputs[i], at, n, block.data[i]);
        registers[i] = block.data[i];
      }
    }
    for (size_t s = 0; s < steps; ++s) {
      const PointwiseStep& step = program_.steps[s];
      const bool direct = s + 1 == steps && result_ == DataType::f32;
      float* to = direct ? static_cast<float*>(output) + at : block.data[first + s];
      const auto operand = [&](size_t i) { return registers[static_cast<size_t>(step.operands[i])]; };
      ops.apply(step.op, operand(0), operand(1), operand(2), to, n);
      if (step.op == PointwiseOp::exact) look_at_integers(to, n, at, inexact);
      registers[first + s] = to;
    }
    const float* made = registers[first + steps - 1];
    if (result_ == DataType::bf16) small_ops(isa_).f32_to_bf16(made, static_cast<uint16_t*>(output) + at, n);
    if (result_ == DataType::u8) {
      small_ops(isa_).quantize(made, static_cast<uint8_t*>(output) + at, n, to_codes(affine_));
    }
  }
  return inexact;
}

std::optional<InexactInteger> Pointwise::run(std::span<const void* const> inputs, void* output,
                                             int64_t first_size, const Parallel& parallel) const {
  FirstInexact first;
  split(first_size * item_, parallel, [&](int64_t begin, int64_t count) {
    if (table_.empty()) return first.report(run_range(inputs, output, begin, begin + count));
    const uint8_t* from = static_cast<const uint8_t*>(inputs[0]) + begin;
    uint8_t* to = static_cast<uint8_t*>(output) + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = table_[from[i]];
  });
  return first.found();
}

}  // namespace ulp::kernels
