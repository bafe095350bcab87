// Sums, means and extremes over dimensions.
#include <torch/types.h>

#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Dims = std::vector<int64_t>;

/// The dimensions that a node names; nothing where it leaves its input as it is.
std::optional<Dims> dims_of(Call& call, int64_t rank) {
  Dims dims = call.list("axes", 1).value_or(Dims());
  if (dims.empty()) {
    if (call.attribute("noop_with_empty_axes", int64_t{0}) != 0) return std::nullopt;
    dims.resize(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (int64_t& dim : dims) dim = call.dim(dim, rank);
  return dims;
}

using Reduction = Tensor (*)(const Tensor&, const Dims&, bool keep);

template <Reduction function>
void reduce(Call& call) {
  const Tensor x = call.x(0);
  const std::optional<Dims> dims = dims_of(call, x.dim());
  call.set(dims ? function(x, *dims, call.attribute("keepdims", int64_t{1}) != 0) : x);
}

Tensor sum(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(x, dims, keep, x.scalar_type());
}
Tensor mean(const Tensor& x, const Dims& dims, bool keep) {
  return at::mean(x, dims, keep);
}
Tensor largest(const Tensor& x, const Dims& dims, bool keep) {
  return at::amax(x, dims, keep);
}
Tensor smallest(const Tensor& x, const Dims& dims, bool keep) {
  return at::amin(x, dims, keep);
}
Tensor squares(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(at::mul(x, x), dims, keep, x.scalar_type());
}
Tensor l1(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(at::abs(x), dims, keep, x.scalar_type());
}
Tensor l2(const Tensor& x, const Dims& dims, bool keep) {
  return at::linalg_vector_norm(x, 2, dims, keep);
}
Tensor log_sum_exp(const Tensor& x, const Dims& dims, bool keep) {
  return at::logsumexp(x, dims, keep);
}
/// One dimension after the other, the last first.
Tensor product(const Tensor& x, const Dims& dims, bool keep) {
  Dims sorted = dims;
  std::sort(sorted.rbegin(), sorted.rend());
  Tensor result = x;
  for (const int64_t dim : sorted) result = at::prod(result, dim, keep, x.scalar_type());
  return result;
}

template <Tensor (*function)(const Tensor&, std::optional<int64_t>, bool)>
void place(Call& call) {
  if (call.attribute("select_last_index", int64_t{0}) != 0) call.refuse("expected the first of equal ones");
  const Tensor x = call.x(0);
  call.set(function(x, call.dim(call.attribute("axis", int64_t{0}), x.dim()),
                    call.attribute("keepdims", int64_t{1}) != 0));
}

void top(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{-1}), x.dim());
  const bool largest_ones = call.attribute("largest", int64_t{1}) != 0;
  const auto [values, places] =
      at::topk(x, call.integer(1), dim, largest_ones, call.attribute("sorted", int64_t{1}) != 0);
  call.set(values, 0);
  call.set(places, 1);
}

}  // namespace

ConverterTable reduce_table() {
  static constexpr Converter kTable[] = {{"ReduceSum", reduce<sum>, first_input},
                                         {"ReduceMean", reduce<mean>, first_input},
                                         {"ReduceMax", reduce<largest>, first_input},
                                         {"ReduceMin", reduce<smallest>, first_input},
                                         {"ReduceProd", reduce<product>, first_input},
                                         {"ReduceSumSquare", reduce<squares>, first_input},
                                         {"ReduceL1", reduce<l1>, first_input},
                                         {"ReduceL2", reduce<l2>, first_input},
                                         {"ReduceLogSumExp", reduce<log_sum_exp>, first_input},
                                         {"ArgMax", place<at::argmax>, first_input},
                                         {"ArgMin", place<at::argmin>, first_input},
                                         {"TopK", top, twice}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
