#include <algorithm>
#include <limits>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

std::vector<Layout> listed(Visit& visit) {
  std::vector<Layout> pieces;
  for (const Argument& item : visit.node.args.at(0).items) pieces.push_back(visit.in(item));
  if (pieces.empty()) visit.refuse("it joins nothing");
  return pieces;
}

void cat(Visit& visit) {
  const std::vector<Layout> pieces = listed(visit);
  Layout result = pieces[0];
  const size_t dim = visit.dim("dim", result);
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].dims.size() != result.dims.size()) visit.refuse("its pieces have different dimensions");
    for (size_t d = 0; d < result.dims.size(); ++d) {
      if (d == dim) {
        result.dims[d].insert(result.dims[d].end(), pieces[i].dims[d].begin(), pieces[i].dims[d].end());
      } else {
        visit.unite(result.dims[d], pieces[i].dims[d]);
      }
      result.zero[d] = result.zero[d] && pieces[i].zero[d];
    }
  }
  // Along a size that follows the batch the pieces are not joined item by item.
  const Extent joined = extent_of(visit.meta(visit.node.output()).sizes.at(dim));
  if (joined.opaque || !joined.powers.empty()) {
    visit.fix(result.dims[dim], "it joins what follows the batch");
    result.dims[dim] = visit.fixed(static_cast<size_t>(joined.count));
  }
  visit.out(std::move(result));
}

void stack(Visit& visit) {
  const std::vector<Layout> pieces = listed(visit);
  Layout result = pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) {
    for (size_t d = 0; d < result.dims.size(); ++d) {
      visit.unite(result.dims[d], pieces[i].dims.at(d));
      result.zero[d] = result.zero[d] && pieces[i].zero[d];
    }
  }
  const int64_t dim = visit.integer("dim");
  const auto at = dim < 0 ? dim + result.rank() + 1 : dim;
  result.dims.insert(result.dims.begin() + at, visit.fixed(pieces.size()));
  result.zero.insert(result.zero.begin() + at, false);
  visit.out(std::move(result));
}

/// Puts a split into these sizes in the place of the node.
void resplit(graph::Graph& graph, graph::Node& node, const std::vector<int64_t>& sizes, int64_t dim) {
  graph::Node* made = graph.call("aten::split_with_sizes",
                                 {node.args.at(0), c10::IValue(sizes), c10::IValue(dim)}, &node, node.name());
  graph.set_output_count(made, node.outputs().size());
  made->scope = node.scope;
  made->train_only = node.train_only;
  made->eval_only = node.eval_only;
  made->no_grad = node.no_grad;
  made->autocast = node.autocast;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    made->output(i)->meta = node.output(i)->meta;
    graph.replace_uses(node.output(i), made->output(i));
  }
  graph.erase(&node);
}

/// chunk, split and split_with_sizes: after a cut the pieces may have any sizes.
void split(Visit& visit) {
  const Layout x = visit.in(visit.node.args.at(0));
  const size_t dim = visit.dim("dim", x);
  std::vector<Axis> pieces;
  size_t start = 0;
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) {
    const Extent extent = extent_of(visit.meta(visit.node.output(i)).sizes.at(dim));
    if (!extent.powers.empty() || extent.opaque) visit.refuse("it splits what follows the batch");
    const auto end = start + static_cast<size_t>(extent.count);
    if (end > x.dims[dim].size()) visit.refuse("its pieces are larger than what it splits");
    pieces.emplace_back(x.dims[dim].begin() + start, x.dims[dim].begin() + end);
    Layout result = x;
    result.dims[dim] = pieces.back();
    visit.out(std::move(result), i);
    start = end;
  }
  visit.rewrite([pieces, dim](graph::Graph& graph, graph::Node& node, const Survivors& left) {
    if (std::ranges::all_of(pieces, [&](const Axis& piece) { return left.whole(piece); })) return;
    std::vector<int64_t> sizes;
    for (const Axis& piece : pieces) sizes.push_back(left.count(piece));
    resplit(graph, node, sizes, static_cast<int64_t>(dim));
  });
}

void unbind(Visit& visit) {
  Layout result = visit.in("self");
  const size_t dim = visit.dim("dim", result);
  visit.fix(result.dims[dim], "they are taken one by one");
  result.dims.erase(result.dims.begin() + static_cast<int64_t>(dim));
  result.zero.erase(result.zero.begin() + static_cast<int64_t>(dim));
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) visit.out(result, i);
}

/// How many of the first `count` positions are left.
int64_t left_before(const Axis& axis, size_t count, const Survivors& left) {
  return left.count(Axis(axis.begin(), axis.begin() + static_cast<int64_t>(count)));
}

void select(Visit& visit) {
  Layout result = visit.in("self");
  const size_t dim = visit.dim("dim", result);
  const Axis axis = result.dims[dim];
  if (axis.size() > 1) {
    if (!extent_of(visit.meta(visit.node.args[0].value).sizes.at(dim)).powers.empty())
      visit.fix(axis, "it takes one of what follows the batch");
    const int64_t index = visit.integer("index");
    const auto at = static_cast<size_t>(index < 0 ? index + static_cast<int64_t>(axis.size()) : index);
    visit.fix({axis.at(at)}, "it takes one of them");
    visit.rewrite([axis, at](graph::Graph&, graph::Node& node, const Survivors& left) {
      if (!left.whole(axis)) node.arg("index").literal = left_before(axis, at, left);
    });
  }
  result.dims.erase(result.dims.begin() + static_cast<int64_t>(dim));
  result.zero.erase(result.zero.begin() + static_cast<int64_t>(dim));
  visit.out(std::move(result));
}

/// slice and narrow with step 1.
void slice(Visit& visit) {
  Layout result = visit.in("self");
  const size_t dim = visit.dim("dim", result);
  const Axis axis = result.dims[dim];
  const bool narrow = visit.node.is("aten::narrow");
  const graph::TensorMeta& seen = visit.meta(visit.node.output());
  const Extent to = extent_of(seen.sizes.at(dim));
  const bool same_size = to.count == static_cast<int64_t>(axis.size());
  const std::optional<int64_t> step = narrow ? 1 : visit.integer_if("step");
  if (!to.powers.empty() || to.opaque || step != 1) {
    visit.fix(axis, "it takes a part of them");
    result.dims[dim] = visit.fixed(static_cast<size_t>(to.count));
    return visit.out(std::move(result));
  }
  const Argument& start_arg = visit.node.arg("start");
  int64_t start = start_arg.is_none() ? 0 : visit.integer_if("start").value_or(-1);
  if (!start_arg.is_none() && !visit.integer_if("start")) {
    if (!same_size) {
      visit.fix(axis, "it takes a part of them that follows the batch");
      result.dims[dim] = visit.fixed(static_cast<size_t>(to.count));
      return visit.out(std::move(result));
    }
    start = 0;
  }
  const auto size = static_cast<int64_t>(axis.size());
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  const int64_t end = start + to.count;
  if (end > size) visit.refuse("it takes more than there is");
  result.dims[dim] = Axis(axis.begin() + start, axis.begin() + end);
  visit.rewrite([axis, start, end, narrow](graph::Graph&, graph::Node& node, const Survivors& left) {
    if (left.whole(axis)) return;
    const int64_t first = left_before(axis, static_cast<size_t>(start), left),
                  last = left_before(axis, static_cast<size_t>(end), left);
    node.arg("start") = Argument(c10::IValue(first));
    node.arg(narrow ? "length" : "end") = Argument(c10::IValue(narrow ? last - first : last));
  });
  visit.out(std::move(result));
}

constexpr Rule kPieceRules[] = {{"aten::cat", cat},
                                {"aten::stack", stack},
                                {"aten::chunk", split},
                                {"aten::unsafe_chunk", split},
                                {"aten::split", split},
                                {"aten::unsafe_split", split},
                                {"aten::split_with_sizes", split},
                                {"aten::tensor_split", split},
                                {"aten::unbind", unbind},
                                {"aten::select", select},
                                {"aten::slice", slice},
                                {"aten::narrow", slice}};

}  // namespace

std::span<const Rule> piece_rules() {
  return kPieceRules;
}

}  // namespace ulp::prune
