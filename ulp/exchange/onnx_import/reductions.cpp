// Sums, means and extremes over dimensions.
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

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

/// Reductions that leave single elements as they are.
constexpr std::string_view kPlain[] = {"ReduceSum", "ReduceMean", "ReduceMax",
                                       "ReduceMin", "ReduceProd", "ReduceLogSumExp"};

using Reduction = Tensor (*)(const Tensor&, const Dims&, bool keep);

/// Where nothing is reduced, what stands before and behind the sum is computed all the same: of groups of one
/// element.
template <Reduction function>
void reduce(Call& call) {
  const Tensor x = call.x(0);
  const std::optional<Dims> dims = dims_of(call, x.dim());
  const bool some = dims && !dims->empty();
  if (call.node().op == "ReduceLogSumExp" && !at::isFloatingType(x.scalar_type()))
    call.refuse(
        "expected floats, since runtimes round the exponentials of whole numbers before they add them, got ",
        type_name(data_type(x.scalar_type())));
  if (!some && std::ranges::find(kPlain, call.node().op) != std::end(kPlain)) return call.set(x);
  if (!some) return call.set(function(at::unsqueeze(x, -1), {-1}, /*keep=*/false));
  call.set(function(x, *dims, call.attribute("keepdims", int64_t{1}) != 0));
}

Tensor sum(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(x, dims, keep, x.scalar_type());
}
/// Of whole numbers, cut off towards 0.
Tensor mean(const Tensor& x, const Dims& dims, bool keep) {
  if (at::isFloatingType(x.scalar_type())) return at::mean(x, dims, keep);
  int64_t count = 1;
  for (const int64_t dim : dims) count *= x.size(dim);
  return at::div(at::sum(x, dims, keep, x.scalar_type()), count, "trunc");
}
/// Whether no element is left to reduce; LibTorch has no extreme of none.
bool is_empty_over(const Tensor& x, const Dims& dims) {
  return std::ranges::any_of(dims, [&](int64_t dim) { return x.size(dim) == 0; });
}
/// The largest of no elements is the lowest number of the type, the smallest the highest one.
Tensor extreme_of_none(const Tensor& x, const Dims& dims, bool keep, bool lowest) {
  Dims sizes;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    const bool reduced = std::ranges::find(dims, dim) != dims.end();
    if (!reduced || keep) sizes.push_back(reduced ? 1 : x.size(dim));
  }
  const at::ScalarType type = x.scalar_type();
  const auto options = at::TensorOptions(type);
  if (type == at::kBool) return at::full(sizes, !lowest, options);
  if (!at::isFloatingType(type)) {
    const auto bits = static_cast<int>(8 * c10::elementSize(type));
    const bool has_sign = type != at::kByte;
    const int64_t highest = has_sign ? static_cast<int64_t>(~uint64_t{0} >> (65 - bits)) : 255;
    return at::full(sizes, lowest ? (has_sign ? -highest - 1 : 0) : highest, options);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::full(sizes, lowest ? -kInfinity : kInfinity, options);
}

Tensor largest(const Tensor& x, const Dims& dims, bool keep) {
  return is_empty_over(x, dims) ? extreme_of_none(x, dims, keep, /*lowest=*/true) : at::amax(x, dims, keep);
}
Tensor smallest(const Tensor& x, const Dims& dims, bool keep) {
  return is_empty_over(x, dims) ? extreme_of_none(x, dims, keep, /*lowest=*/false) : at::amin(x, dims, keep);
}
Tensor squares(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(at::mul(x, x), dims, keep, x.scalar_type());
}
Tensor l1(const Tensor& x, const Dims& dims, bool keep) {
  return at::sum(at::abs(x), dims, keep, x.scalar_type());
}
/// In floats, for what has none of whole numbers.
template <Reduction function>
Tensor in_floats(const Tensor& x, const Dims& dims, bool keep) {
  if (at::isFloatingType(x.scalar_type())) return function(x, dims, keep);
  return function(x.to(at::kDouble), dims, keep).to(x.scalar_type());
}
Tensor l2(const Tensor& x, const Dims& dims, bool keep) {
  return at::linalg_vector_norm(x, 2, dims, keep);
}
Tensor log_sum_exp(const Tensor& x, const Dims& dims, bool keep) {
  return at::logsumexp(x, dims, keep);
}
Tensor log_sum(const Tensor& x, const Dims& dims, bool keep) {
  return at::log(at::sum(x, dims, keep));
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
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  const bool keep = call.attribute("keepdims", int64_t{1}) != 0;
  if (call.attribute("select_last_index", int64_t{0}) == 0) return call.set(function(x, dim, keep));
  call.set(at::rsub(function(at::flip(x, {dim}), dim, keep), x.size(dim) - 1));
}

/// Of equal ones the first come first: topk of LibTorch takes any.
void top(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{-1}), x.dim());
  const int64_t count = call.has(1) ? call.integer(1) : call.attribute("k", int64_t{0});
  if (count < 1 || count > x.size(dim)) call.refuse("expected k from 1 to ", x.size(dim), ", got ", count);
  const bool largest_ones = call.attribute("largest", int64_t{1}) != 0;
  const auto [values, places] = at::sort(x, /*stable=*/true, dim, largest_ones);
  if (call.wants(0)) call.set(at::slice(values, dim, 0, count), 0);
  if (call.wants(1)) call.set(at::slice(places, dim, 0, count), 1);
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
                                         {"ReduceL2", reduce<in_floats<l2>>, first_input},
                                         {"ReduceLogSum", reduce<in_floats<log_sum>>, first_input},
                                         {"ReduceLogSumExp", reduce<log_sum_exp>, first_input},
                                         {"ArgMax", place<at::argmax>, first_input},
                                         {"ArgMin", place<at::argmin>, first_input},
                                         {"TopK", top, twice}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
