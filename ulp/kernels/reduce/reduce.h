// Sums, extremes and the like over some dimensions of a tensor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp {
namespace kernels {

/// The reduction. The norms are those of order 1, 2 and infinity; argmax and argmin give the first index
/// as a number; any and all give 1 or 0.
enum class ReduceKind : uint8_t {
  sum,
  mean,
  max,
  min,
  prod,
  var,
  std,
  norm1,
  norm2,
  norm_inf,
  argmax,
  argmin,
  any,
  all,
  logsumexp
};

/// One dimension of the source as it lies in memory, the outermost first.
struct ReduceDimension {
  int64_t size = 1;
  bool reduced = false;
};

struct ReduceOps;

/// A reduction of items of one shape.
class ULP_API Reduce {
 public:
  /// The source holds elements of `type` (f32, bf16 or u8 with the quantizer `q`). `correction` is of var and
  /// std: the sum of squares is divided by max(0, count - correction). argmax and argmin take one reduced
  /// dimension.
  Reduce(ReduceKind kind, DataType type, Affine q, const std::vector<ReduceDimension>& dimensions,
         float correction, Isa isa);
  /// y: f32, the dimensions that stay in the order of memory. Sums are taken in double, so that results are
  /// within a rounding or two of the exact ones; the same bits for any number of threads and on every
  /// instruction set. `workspace` is 64-byte aligned, workspace_bytes() long.
  void run(const void* x, float* y, int64_t batch, void* workspace, const Parallel& parallel) const;
  /// Bytes of scratch for so many workers.
  size_t workspace_bytes(int workers) const;

 private:
  struct Loop {
    int64_t size = 1, stride = 0;
  };
  struct Block;
  const float* floats(const void* x, int64_t from, int64_t count, float* scratch) const;
  template <typename F>
  void each_run(const void* x, int64_t from, float* scratch, F f) const;
  template <typename F>
  void each_rows(const void* x, int64_t from, int64_t n, float* scratch, F f) const;
  float one(const void* x, int64_t from, float* scratch) const;
  float argument(const void* x, int64_t from, float* scratch) const;
  void block(const void* x, int64_t from, int64_t n, float* y, float* scratch) const;
  void block_arguments(const void* x, int64_t from, int64_t n, float* y, float* scratch) const;
  float finished(double value, double largest) const;

  ReduceKind kind_;
  DataType type_;
  Affine q_;
  float correction_;
  const ReduceOps* ops_;
  Isa isa_;
  std::vector<Loop> kept_, reduced_;  ///< outside of the innermost dimension
  bool rows_ = true;                  ///< the innermost dimension is reduced
  int64_t width_ = 1;                 ///< of the innermost dimension
  int64_t item_ = 1, outer_ = 1;      ///< elements of an item, and results of the kept loops
  int64_t count_ = 1;                 ///< elements that make one result
};

/// y = the sums of x along a dimension up to each element: `outer` matrices of `size` rows of `inner` numbers
/// are summed down their rows, in double. y may be x.
ULP_API void cumulative_sum(const float* x, float* y, int64_t outer, int64_t size, int64_t inner,
                            const Parallel& parallel);
/// The products instead.
ULP_API void cumulative_product(const float* x, float* y, int64_t outer, int64_t size, int64_t inner,
                                const Parallel& parallel);

/// y = log(softmax(x)) over each of `rows` rows of `columns` numbers, with sums in double; y may be x.
ULP_API void log_softmax(const float* x, float* y, int64_t rows, int64_t columns, Isa isa,
                         const Parallel& parallel);

}  // namespace kernels

/// The words of engine files.
template <>
struct EnumNames<kernels::ReduceKind> {
  using enum kernels::ReduceKind;
  static constexpr std::array<Word<kernels::ReduceKind>, 15> list = {{{sum, "sum"},
                                                                      {mean, "mean"},
                                                                      {max, "max"},
                                                                      {min, "min"},
                                                                      {prod, "prod"},
                                                                      {var, "var"},
                                                                      {std, "std"},
                                                                      {norm1, "norm1"},
                                                                      {norm2, "norm2"},
                                                                      {norm_inf, "norm_inf"},
                                                                      {argmax, "argmax"},
                                                                      {argmin, "argmin"},
                                                                      {any, "any"},
                                                                      {all, "all"},
                                                                      {logsumexp, "logsumexp"}}};
};

}  // namespace ulp
