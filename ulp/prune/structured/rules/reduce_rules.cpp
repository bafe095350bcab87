#include <ATen/core/function_schema.h>

#include <algorithm>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

bool has_argument(const graph::Node& node, std::string_view name) {
  return std::ranges::any_of(node.schema().arguments(),
                             [&](const c10::Argument& arg) { return arg.name() == name; });
}

/// Dimensions that the argument `dim` names; all where it names none.
std::vector<char> named_dims(Visit& visit, const Layout& of) {
  std::vector<char> named(of.dims.size());
  if (has_argument(visit.node, "dim") && !visit.node.arg("dim").is_none()) {
    for (const int64_t dim : visit.integers("dim")) named.at(of.dim(dim)) = true;
  }
  if (std::ranges::count(named, 1) == 0) named.assign(named.size(), true);
  return named;
}

enum class Over : uint8_t { sum, mean, order };

template <Over over>
void reduce(Visit& visit) {
  const Layout x = visit.in(visit.node.args.at(0));
  if (visit.node.args.size() > 1 && visit.node.args[1].is_value()) visit.refuse("it reads two tensors");
  const std::vector<char> named = named_dims(visit, x);
  const bool keep = has_argument(visit.node, "keepdim") && visit.node.arg("keepdim").literal.isBool() &&
                    visit.node.arg("keepdim").literal.toBool();
  Layout result;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (!named[d]) {
      result.add(x.dims[d], over != Over::order && x.zero[d]);
      continue;
    }
    if (keep) result.add(visit.fixed(1), false);
    visit.sum(x.dims[d], {visit.node.args.data()});
    if (over == Over::order) {
      visit.fix(x.dims[d]);
    } else if (over == Over::mean) {
      visit.inexact(x.dims[d], "it takes the mean over them");
    } else if (!x.zero[d]) {
      visit.inexact(x.dims[d], "it sums over them");
    }
  }
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) visit.out(result, i);
}

/// Computed along one dimension, which keeps its size: softmax, cumsum.
void along(Visit& visit) {
  Layout result = visit.in(visit.node.args.at(0));
  visit.fix(result.dims[visit.dim("dim", result)]);
  result.zero.assign(result.dims.size(), false);
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) visit.out(result, i);
}

/// The last `count` dimensions are places, which become others; the rest stays as it is.
void in_space(Visit& visit, size_t count, bool keeps_zero) {
  const Layout x = visit.in(visit.node.args.at(0));
  if (x.dims.size() < count) visit.refuse("its input has too few dimensions");
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) {
    Layout result = visit.like_meta(visit.node.output(i));
    for (size_t d = 0; d < result.dims.size(); ++d) {
      if (d + count >= result.dims.size()) {
        visit.fix(result.dims[d], "they are places");
        if (d < x.dims.size()) visit.fix(x.dims[d], "they are places");
        result.zero[d] = false;
      } else {
        result.dims[d] = x.dims.at(d);
        result.zero[d] = keeps_zero && x.zero[d];
      }
    }
    visit.out(std::move(result), i);
  }
}

template <size_t count>
void space(Visit& visit) {
  in_space(visit, count, true);
}

/// The list of pads goes from the last dimension to the first.
void pad(Visit& visit) {
  const size_t dims = visit.integers(has_argument(visit.node, "pad") ? "pad" : "padding").size() / 2;
  const bool zeros = !has_argument(visit.node, "value") || visit.node.arg("value").is_none() ||
                     graph::number(visit.node.arg("value")) == 0.0;
  in_space(visit, dims, zeros);
}

/// Corners of the last two dimensions.
void triangle(Visit& visit) {
  Layout result = visit.in(visit.node.args.at(0));
  for (int64_t d = 1; d <= 2; ++d) visit.fix(result.dims[result.dim(-d)], "they are places");
  visit.out(std::move(result));
}

constexpr Rule kReduceRules[] = {{"aten::sum", reduce<Over::sum>},
                                 {"aten::nansum", reduce<Over::sum>},
                                 {"aten::mean", reduce<Over::mean>},
                                 {"aten::amax", reduce<Over::order>},
                                 {"aten::amin", reduce<Over::order>},
                                 {"aten::max", reduce<Over::order>},
                                 {"aten::min", reduce<Over::order>},
                                 {"aten::argmax", reduce<Over::order>},
                                 {"aten::argmin", reduce<Over::order>},
                                 {"aten::prod", reduce<Over::order>},
                                 {"aten::var", reduce<Over::order>},
                                 {"aten::std", reduce<Over::order>},
                                 {"aten::norm", reduce<Over::order>},
                                 {"aten::linalg_vector_norm", reduce<Over::order>},
                                 {"aten::logsumexp", reduce<Over::order>},
                                 {"aten::all", reduce<Over::order>},
                                 {"aten::any", reduce<Over::order>},
                                 {"aten::median", reduce<Over::order>},
                                 {"aten::softmax", along},
                                 {"aten::_softmax", along},
                                 {"aten::log_softmax", along},
                                 {"aten::_log_softmax", along},
                                 {"aten::cumsum", along},
                                 {"aten::cumprod", along},
                                 {"aten::sort", along},
                                 {"aten::logcumsumexp", along},
                                 {"aten::avg_pool1d", space<1>},
                                 {"aten::avg_pool2d", space<2>},
                                 {"aten::avg_pool3d", space<3>},
                                 {"aten::max_pool1d", space<1>},
                                 {"aten::max_pool2d", space<2>},
                                 {"aten::max_pool3d", space<3>},
                                 {"aten::max_pool1d_with_indices", space<1>},
                                 {"aten::max_pool2d_with_indices", space<2>},
                                 {"aten::max_pool3d_with_indices", space<3>},
                                 {"aten::lp_pool2d", space<2>},
                                 {"aten::adaptive_avg_pool1d", space<1>},
                                 {"aten::adaptive_avg_pool2d", space<2>},
                                 {"aten::adaptive_avg_pool3d", space<3>},
                                 {"aten::_adaptive_avg_pool2d", space<2>},
                                 {"aten::_adaptive_avg_pool3d", space<3>},
                                 {"aten::adaptive_max_pool1d", space<1>},
                                 {"aten::adaptive_max_pool2d", space<2>},
                                 {"aten::adaptive_max_pool3d", space<3>},
                                 {"aten::upsample_nearest1d", space<1>},
                                 {"aten::upsample_nearest2d", space<2>},
                                 {"aten::upsample_nearest3d", space<3>},
                                 {"aten::upsample_linear1d", space<1>},
                                 {"aten::upsample_bilinear2d", space<2>},
                                 {"aten::upsample_bicubic2d", space<2>},
                                 {"aten::upsample_trilinear3d", space<3>},
                                 {"aten::_upsample_nearest_exact2d", space<2>},
                                 {"aten::_upsample_bilinear2d_aa", space<2>},
                                 {"aten::_pad_enum", pad},
                                 {"aten::pad", pad},
                                 {"aten::constant_pad_nd", pad},
                                 {"aten::reflection_pad1d", pad},
                                 {"aten::reflection_pad2d", pad},
                                 {"aten::reflection_pad3d", pad},
                                 {"aten::replication_pad1d", pad},
                                 {"aten::replication_pad2d", pad},
                                 {"aten::replication_pad3d", pad},
                                 {"aten::triu", triangle},
                                 {"aten::tril", triangle}};

}  // namespace

std::span<const Rule> reduce_rules() {
  return kReduceRules;
}

}  // namespace ulp::prune
