// Small programs on tensors, element by element: any number of arithmetic functions in one pass over memory, with
// inputs that repeat along some dimensions (broadcasting) and of several types. Values between the functions
// stay in cache, a block at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/pointwise/pointwise_list.h"

namespace ulp::kernels {

/// The most dimensions that the output of a program may have.
inline constexpr int kPointwiseDims = 8;

/// One function of a program. Operands are registers: first the inputs, then the literals, then the results of the
/// functions before. Those beyond the function's count are not read.
struct PointwiseStep {
  PointwiseOp op = PointwiseOp::add;
  std::array<int, 3> operands{};
  bool operator==(const PointwiseStep&) const = default;
};

/// Functions in order; the last one's value is the result.
struct PointwiseProgram {
  int inputs = 0;
  std::vector<float> literals;
  std::vector<PointwiseStep> steps;
  bool operator==(const PointwiseProgram&) const = default;
};

/// How an input lies: f32, bf16, u8 with its quantizer, i32 or i64 (taken as floats), and its strides in elements
/// along the output's dimensions, 0 where it repeats.
struct PointwiseInput {
  DataType type = DataType::f32;
  Affine affine;
  std::array<int64_t, kPointwiseDims> strides{};
};

/// A number that PointwiseOp::exact met and that f32 may have rounded.
struct InexactInteger {
  int64_t element = -1;  ///< of the output
  float value = 0;
};

/// A program made ready for tensors that lie in one way.
class ULP_API Pointwise {
 public:
  /// `sizes`: the output's dimensions in the order in which its elements lie, dense; the first one is open until
  /// run(). The result is f32, bf16, or u8 with the quantizer `result_affine` (rounded half to even). Throws
  /// ulp::Error for a program beyond the limits above or with registers that are not there, for other types,
  /// and for another number of inputs than the program's.
  Pointwise(PointwiseProgram program, std::vector<PointwiseInput> inputs, std::span<const int64_t> sizes,
            DataType result, Affine result_affine, Isa isa);

  /// Computes `first_size` times the product of the other sizes. `output` may be an input that is dense and
  /// of the output's type. Returns the first element, if any, at which PointwiseOp::exact met a number of
  /// magnitude 2^24 or more, or a NaN. Neither allocates nor throws. u8 results are the same bits on every
  /// instruction set where the program calls no function of the C library.
  std::optional<InexactInteger> run(std::span<const void* const> inputs, void* output, int64_t first_size,
                                    const Parallel& parallel) const;

  /// How it computes: "table" where one u8 input alone decides a u8 result, else "blocks".
  const char* kind() const { return table_.empty() ? "blocks" : "table"; }

 private:
  struct Block;
  void make_table();
  /// The first inexact integer of the range; an element of -1 for none.
  InexactInteger run_range(std::span<const void* const> inputs, void* output, int64_t begin,
                           int64_t end) const;
  void load(size_t input, const void* data, int64_t begin, int64_t count, float* block) const;
  bool is_dense(const PointwiseInput& input) const;

  PointwiseProgram program_;
  std::vector<PointwiseInput> inputs_;
  std::vector<bool> dense_;     ///< the input's element i belongs to the output's element i
  std::vector<int64_t> sizes_;  ///< merged where all inputs allow it; [0] is not read
  int64_t item_ = 1;            ///< elements for each of the first size
  DataType result_;
  Affine affine_;
  Isa isa_;
  std::vector<uint8_t> table_;  ///< the result's code for each code of the input
};

}  // namespace ulp::kernels
