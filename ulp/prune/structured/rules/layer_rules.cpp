#include <algorithm>

#include "ulp/graph/describe.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

/// Positions in space: padding and windows know their places.
void keep_space(Visit& visit, const Layout& layout, size_t first) {
  for (size_t d = first; d < layout.dims.size(); ++d) visit.fix(layout.dims[d], "they are places");
}

void grouped_channels(Visit& visit, const Axis& x, const Axis& result, const Layout& weight, int64_t groups,
                      bool transposed) {
  const std::string reason = visit.reason("its groups are cut otherwise");
  const Axis group = visit.axes().make(groups);
  const auto split = [&](const Axis& whole, const Axis& within) {
    if (whole.size() != within.size() * group.size()) visit.refuse("its groups do not divide its channels");
    visit.axes().product(whole, {group, within}, Preference::largest, reason);
  };
  const auto within = [&](const Axis& whole) {
    return visit.axes().make(static_cast<int64_t>(whole.size()) / groups);
  };
  visit.unite(transposed ? x : result, weight.dims[0]);
  split(transposed ? result : x, weight.dims[1]);
  split(weight.dims[0], within(weight.dims[0]));
  visit.rewrite([group](graph::Graph&, graph::Node& node, const Survivors& left) {
    set_integer(node.arg("groups"), left.count(group));
  });
}

void convolve(Visit& visit, bool transposed) {
  const Layout x = visit.in("input"), weight = visit.in("weight");
  if (x.rank() != weight.rank() || x.rank() < 3) visit.refuse("its input has no batch");
  const int64_t groups = visit.integer("groups");
  const size_t in = transposed ? 0 : 1, out = transposed ? 1 : 0;
  keep_space(visit, x, 2);
  keep_space(visit, weight, 2);
  visit.mark(weight.dims[out], Role::row);
  visit.mark(weight.dims[in], Role::column);
  Layout result = visit.like_meta(visit.node.output());
  result.dims[0] = x.dims[0];
  if (groups == 1) {
    visit.contract(x, 1, weight, in);
    visit.sum(weight.dims[in], {&visit.node.arg("weight")});
    result.dims[1] = weight.dims[out];
  } else {
    grouped_channels(visit, x.dims[1], result.dims[1], weight, groups, transposed);
    if (!x.zero[1] && !weight.zero[in]) visit.inexact(x.dims[1], "it sums over them");
  }
  keep_space(visit, result, 2);
  result.zero[1] = weight.zero[out] && (!visit.has("bias") || visit.in("bias").zero.at(0));
  if (visit.has("bias")) visit.unite(result.dims[1], visit.in("bias").dims.at(0));
  visit.out(std::move(result));
}

void conv(Visit& visit) {
  convolve(visit, false);
}

void conv_transpose(Visit& visit) {
  convolve(visit, true);
}

void convolution(Visit& visit) {
  const Argument& transposed = visit.node.arg("transposed");
  if (!transposed.literal.isBool()) visit.refuse("transposed is not fixed");
  convolve(visit, transposed.literal.toBool());
}

/// The operand that is made of parameters says which of its axes are rows and which are columns.
void mark_weight(Visit& visit, const Argument& arg, const Axis& rows, const Axis& columns) {
  if (!graph::from_attributes(*arg.value->producer)) return;
  visit.mark(rows, Role::row);
  visit.mark(columns, Role::column);
}

void linear(Visit& visit) {
  const Layout x = visit.in("input"), weight = visit.in("weight");
  if (weight.rank() != 2 || x.rank() < 1) visit.refuse("its weight is no matrix");
  mark_weight(visit, visit.node.arg("weight"), weight.dims[0], weight.dims[1]);
  visit.contract(x, x.dim(-1), weight, 1);
  visit.sum(weight.dims[1], {&visit.node.arg("input"), &visit.node.arg("weight")});
  Layout result = x;
  result.dims.back() = weight.dims[0];
  result.zero.assign(result.dims.size(), false);
  result.zero.back() = weight.zero[0] && (!visit.has("bias") || visit.in("bias").zero.back());
  if (visit.has("bias")) visit.unite(weight.dims[0], visit.in("bias").dims.back());
  visit.out(std::move(result));
}

/// Dimensions of two operands that broadcast: of one size, or one of them is 1.
void broadcast_dim(Visit& visit, const Layout& a, size_t ad, const Layout& b, size_t bd, Layout& result) {
  const bool from_a = a.dims[ad].size() >= b.dims[bd].size();
  if (a.dims[ad].size() > 1 && b.dims[bd].size() > 1) visit.unite(a.dims[ad], b.dims[bd]);
  result.add(from_a ? a.dims[ad] : b.dims[bd],
             (a.dims[ad].size() > 1 && a.zero[ad]) || (b.dims[bd].size() > 1 && b.zero[bd]));
}

Layout product(Visit& visit, const Argument& left, const Argument& right) {
  const Layout a = visit.in(left), b = visit.in(right);
  if (a.rank() < 1 || b.rank() < 1) visit.refuse("an operand has no dimensions");
  const size_t a_sum = a.dim(-1), b_sum = b.rank() == 1 ? 0 : b.dim(-2);
  visit.contract(a, a_sum, b, b_sum);
  visit.sum(a.dims[a_sum], {&left, &right});
  if (b.rank() > 1) mark_weight(visit, right, b.dims[b.dim(-1)], b.dims[b_sum]);
  if (b.rank() == 1) mark_weight(visit, right, {}, b.dims[b_sum]);
  mark_weight(visit, left, a.rank() > 1 ? a.dims[a.dim(-2)] : Axis{}, a.dims[a_sum]);
  Layout result;
  const int64_t a_batch = std::max<int64_t>(a.rank() - 2, 0), b_batch = std::max<int64_t>(b.rank() - 2, 0);
  const int64_t batch = std::max(a_batch, b_batch);
  for (int64_t d = 0; d < batch; ++d) {
    const int64_t ad = d - (batch - a_batch), bd = d - (batch - b_batch);
    if (ad < 0) {
      result.add(b.dims[bd], b.zero[bd]);
    } else if (bd < 0) {
      result.add(a.dims[ad], a.zero[ad]);
    } else {
      broadcast_dim(visit, a, static_cast<size_t>(ad), b, static_cast<size_t>(bd), result);
    }
  }
  if (a.rank() > 1) result.add(a.dims[a.dim(-2)], a.zero[a.dim(-2)]);
  if (b.rank() > 1) result.add(b.dims[b.dim(-1)], b.zero[b.dim(-1)]);
  return result;
}

/// beta * added + alpha * a b.
void added_product(Visit& visit, const char* left, const char* right) {
  Layout result = product(visit, visit.node.arg(left), visit.node.arg(right));
  const Layout added = visit.in("self");
  for (int64_t d = 1; d <= result.rank(); ++d) {
    const size_t at = result.dim(-d);
    // What is added to all positions of a dimension is added to the removed ones, too.
    const bool along = d <= added.rank() && added.dims[added.dim(-d)].size() == result.dims[at].size();
    if (along) visit.unite(result.dims[at], added.dims[added.dim(-d)]);
    result.zero[at] = result.zero[at] && along && added.zero[added.dim(-d)];
  }
  visit.out(std::move(result));
}

void matmul(Visit& visit) {
  visit.out(product(visit, visit.node.args.at(0), visit.node.args.at(1)));
}

void addmm(Visit& visit) {
  added_product(visit, "mat1", "mat2");
}

void baddbmm(Visit& visit) {
  added_product(visit, "batch1", "batch2");
}

/// The result of looking rows up: the sizes of the indices, then those of a row.
void embedding(Visit& visit) {
  const Layout table = visit.in("weight"), ids = visit.in("indices");
  visit.fix(table.dims.at(0), "its rows are found by number");
  visit.mark(table.dims.at(1), Role::row);
  Layout result = ids;
  result.zero.assign(result.dims.size(), false);
  result.add(table.dims[1], table.zero[1]);
  visit.out(std::move(result));
}

void embedding_bag(Visit& visit) {
  const Layout table = visit.in("weight");
  visit.fix(table.dims.at(0), "its rows are found by number");
  visit.mark(table.dims.at(1), Role::row);
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) {
    Layout result;
    if (visit.node.output(i)->meta) {
      for (const auto& size : visit.node.output(i)->meta->sizes)
        result.add(visit.fixed(static_cast<size_t>(extent_of(size).count)), false);
    } else {
      result.known = false;
    }
    if (i == 0 && result.known) {
      result.dims.back() = table.dims[1];
      result.zero.back() = table.zero[1];
    }
    visit.out(std::move(result), i);
  }
}

constexpr Rule kLayerRules[] = {{"aten::conv1d", conv},
                                {"aten::conv2d", conv},
                                {"aten::conv3d", conv},
                                {"aten::convolution", convolution},
                                {"aten::_convolution", convolution},
                                {"aten::conv_transpose1d", conv_transpose},
                                {"aten::conv_transpose2d", conv_transpose},
                                {"aten::conv_transpose3d", conv_transpose},
                                {"aten::linear", linear},
                                {"aten::matmul", matmul},
                                {"aten::mm", matmul},
                                {"aten::bmm", matmul},
                                {"aten::mv", matmul},
                                {"aten::addmm", addmm},
                                {"aten::baddbmm", baddbmm},
                                {"aten::embedding", embedding},
                                {"aten::embedding_bag", embedding_bag}};

}  // namespace

std::span<const Rule> layer_rules() {
  return kLayerRules;
}

}  // namespace ulp::prune
