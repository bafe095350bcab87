// Norms, variances and what is divided by them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;
using Dims = std::vector<int64_t>;

constexpr const char *kSum = "aten::sum.dim_IntList", *kMean = "aten::mean.dim", *kMost = "aten::amax";

/// The result, whose reduced dimensions stay or go.
void finish(Formula& f, V made, const Dims& dims) {
  const bool stay = has_arg(f.node(), "keepdim") && bool_arg(f.node(), "keepdim");
  f.result(stay ? made : f.squeeze(made, dims));
}

/// The norm over dimensions, which stay.
V norm(Formula& f, V x, double order, const Dims& dims) {
  V size = f.abs(x);
  if (std::isinf(order)) return f.reduce(order > 0 ? kMost : "aten::amin", size, dims);
  if (order == 0) return f.reduce(kSum, f.spell().to(f.compare("aten::ne", x, 0.0), f.type()), dims);
  if (order == 1) return f.reduce(kSum, size, dims);
  if (order == 2) return f.sqrt(f.reduce(kSum, f.mul(x, x), dims));
  const auto power = [&](V of, double by) { return f.spell().with("aten::pow.Tensor_Scalar", of, by); };
  return power(f.reduce(kSum, power(size, order), dims), 1 / order);
}

void vector_norm(Formula& f) {
  V x = f.x();
  const Dims dims = reduced_dims(f.node(), *x);
  finish(f, norm(f, x, number_arg(f.node(), "ord"), dims), dims);
}

/// The norms of the differences of each row of x1 and each row of x2. LibTorch gets those of order 2 from the
/// rows' products where there are more than 25 rows: within its rounding these are the same.
void cdist(Formula& f) {
  V a = f.tensor("x1"), b = f.tensor("x2");
  V apart =
      f.sub(f.unsqueeze(a, std::ssize(a->meta->sizes) - 1), f.unsqueeze(b, std::ssize(b->meta->sizes) - 2));
  f.result(f.squeeze(norm(f, apart, number_arg(f.node(), "p"), {-1}), {-1}));
}

/// The mean square of what is off the mean, of n - correction elements.
V variance(Formula& f, V x, const Dims& dims, double correction) {
  V off = f.sub(x, f.reduce(kMean, x, dims));
  V mean = f.reduce(kMean, f.mul(off, off), dims);
  double count = 1;
  for (const int64_t dim : dims) count *= static_cast<double>(fixed_size(f.node(), *x, dim));
  if (correction == 0) return mean;
  return f.mul(mean,
               count > correction ? count / (count - correction) : std::numeric_limits<double>::infinity());
}

void var(Formula& f) {
  const graph::Node& node = f.node();
  V x = f.x();
  const Dims dims = reduced_dims(node, *x);
  const double correction = has_arg(node, "correction") ? optional_number(node, "correction").value_or(1)
                                                        : (bool_arg(node, "unbiased") ? 1 : 0);
  V made = variance(f, x, dims, correction);
  finish(f, f.node().is("aten::std") ? f.sqrt(made) : made, dims);
}

/// log(sum(exp(x))) from the largest x, which may be infinite.
void logsumexp(Formula& f) {
  V x = f.x();
  const Dims dims = reduced_dims(f.node(), *x);
  V most = f.reduce(kMost, x, dims);
  V base = f.where(f.compare("aten::eq", f.abs(most), std::numeric_limits<double>::infinity()), 0.0, most);
  V sum = f.reduce(kSum, f.exp(f.sub(x, base)), dims);
  finish(f, f.add(f.log(sum), base), dims);
}

/// Sums of products of rows over their lengths, which are `eps` at least.
void cosine_similarity(Formula& f) {
  V a = f.tensor("x1"), b = f.tensor("x2");
  if (a->meta->sizes.size() != b->meta->sizes.size()) return;
  const Dims dims = {dim_arg(f.node(), "dim", std::ssize(a->meta->sizes))};
  const auto at = static_cast<size_t>(dims[0]);
  if (!(a->meta->sizes[at] == b->meta->sizes[at])) return;
  const auto row = [&](V x) {
    V length = f.sqrt(f.reduce(kSum, f.mul(x, x), dims));
    return f.div(x, f.spell().with("aten::clamp_min", length, number_arg(f.node(), "eps")));
  };
  f.result(f.squeeze(f.reduce(kSum, f.mul(row(a), row(b)), dims), dims));
}

/// Times the weight and plus the bias of a channel, where there are any.
V scaled(Formula& f, V x) {
  Dims sizes(x->meta->sizes.size(), 1);
  sizes.at(1) = fixed_size(f.node(), *x, 1);
  for (const char* name : {"weight", "bias"}) {
    if (!f.is_tensor(name)) continue;
    const at::Tensor stored = f.spell().graph().attribute_tensor(f.node().arg(name).value);
    V by = stored.defined() ? f.constant(stored.detach().reshape(sizes), name)
                            : f.spell().view(f.tensor(name), sizes);
    x = name[0] == 'w' ? f.mul(x, by) : f.add(x, by);
  }
  return x;
}

/// (x - mean) / sqrt(variance + eps) over groups of channels.
void normed_groups(Formula& f, V x, int64_t groups) {
  const Speller::Sizes sizes = x->meta->sizes;
  int64_t count = 1;
  for (int64_t d = 1; d < std::ssize(sizes); ++d) count *= fixed_size(f.node(), *x, d);
  V rows = f.view(x, {sizes[0], fixed(groups), fixed(count / groups)});
  V off = f.sub(rows, f.reduce(kMean, rows, {2}));
  V spread = f.add(f.reduce(kMean, f.mul(off, off), {2}), number_arg(f.node(), "eps"));
  f.result(scaled(f, f.view(f.mul(off, f.map("aten::rsqrt", spread)), sizes)));
}

void group_norm(Formula& f) {
  normed_groups(f, f.tensor("input"), int_arg(f.node(), "num_groups"));
}

void instance_norm(Formula& f) {
  if (!bool_arg(f.node(), "use_input_stats")) return;
  V x = f.tensor("input");
  normed_groups(f, x, fixed_size(f.node(), *x, 1));
}

void rms_norm(Formula& f) {
  V x = f.tensor("input");
  Dims dims;
  for (int64_t d = std::ssize(ints_arg(f.node(), "normalized_shape")); d > 0; --d) dims.push_back(-d);
  const double eps = optional_number(f.node(), "eps").value_or(std::numeric_limits<float>::epsilon());
  V made = f.mul(x, f.map("aten::rsqrt", f.add(f.reduce(kMean, f.mul(x, x), dims), eps)));
  f.result(f.is_tensor("weight") ? f.mul(made, f.tensor("weight")) : made);
}

/// Over a dimension that is not the last, nor the channels of an image, which are last in the file.
void softmax(Formula& f) {
  V given = f.spell().tensor("self");
  const int64_t rank = std::ssize(given->meta->sizes), dim = dim_arg(f.node(), "dim", rank);
  if (given->meta->dtype == f.type() && (dim == rank - 1 || (dim == 1 && rank > 2))) return;
  const bool log = f.node().op().find("log") != std::string_view::npos;
  V x = f.x(), turned = dim == rank - 1 ? x : f.transpose(x, dim, rank - 1);
  V made =
      f.spell().map(log ? "aten::log_softmax.int" : "aten::softmax.int", {turned, c10::IValue(rank - 1)});
  f.result(dim == rank - 1 ? made : f.transpose(made, dim, rank - 1));
}

}  // namespace

SpelledTable spelled_norms() {
  static constexpr SpelledRow kTable[] = {{"aten::linalg_vector_norm", vector_norm},
                                          {"aten::cdist", cdist},
                                          {"aten::_cdist_forward", cdist},
                                          {"aten::var", var},
                                          {"aten::std", var},
                                          {"aten::logsumexp", logsumexp},
                                          {"aten::cosine_similarity", cosine_similarity},
                                          {"aten::group_norm", group_norm},
                                          {"aten::instance_norm", instance_norm},
                                          {"aten::rms_norm", rms_norm},
                                          {"aten::softmax", softmax},
                                          {"aten::_softmax", softmax},
                                          {"aten::log_softmax", softmax},
                                          {"aten::_log_softmax", softmax}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
