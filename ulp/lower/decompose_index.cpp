#include "ulp/lower/decompose_index.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/writer.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;

namespace {

/// The length of the bags whose offsets are torch.arange(0, batch * length, length); nothing for others.
std::optional<int64_t> bag_length(const Node& node) {
  const Node* offsets = graph::producer(node.arg("offsets"), "aten::arange");
  if (offsets == nullptr || !has_arg(*offsets, "step") || bool_arg(node, "include_last_offset")) return {};
  const std::optional<int64_t> start = graph::integer(offsets->arg("start")),
                               step = graph::integer(offsets->arg("step"));
  const Argument& end = offsets->arg("end");
  const bool whole = end.kind == Argument::Kind::batch && step && end.batch == SizeExpr{*step, 1, 0};
  return start == 0 && whole ? step : std::nullopt;
}

/// [batch * length] -> [batch, length].
Argument in_bags(const Writer& write, const Argument& x, int64_t length) {
  return write("aten::view", {x, Argument::list({SizeExpr{1, 1, 0}, c10::IValue(length)})});
}

/// The rows of all bags [batch, length, width] joined, without those whose id is `padding`.
Argument joined_bags(const Writer& write, const Argument& rows, const Argument& ids, int64_t mode,
                     int64_t padding) {
  const Argument bag = ints({1});
  const auto sum = [&](const Argument& x) { return write("aten::sum.dim_IntList", {x, bag}); };
  const Argument kept = write.unsqueezed(write("aten::ne.Scalar", {ids, c10::IValue(padding)}));
  const Argument count = sum(kept);
  if (mode == 2) {
    const Argument left_out = write("aten::logical_not", {kept});
    const double lowest = -std::numeric_limits<double>::infinity();
    const Argument largest =
        write("aten::amax", {write("aten::masked_fill.Scalar", {rows, left_out, c10::IValue(lowest)}), bag});
    const Argument empty = write("aten::eq.Scalar", {count, c10::IValue(int64_t{0})});
    return write("aten::masked_fill.Scalar", {largest, empty, c10::IValue(0.0)});
  }
  const Argument total = sum(write("aten::mul.Tensor", {rows, kept}));
  if (mode == 0) return total;
  return write("aten::div.Tensor", {total, write("aten::clamp_min", {count, c10::IValue(int64_t{1})})});
}

void embedding_bag(Graph& graph, Node& node) {
  const std::optional<int64_t> length = bag_length(node), mode = graph::integer(node.arg("mode"));
  if (!length || !mode || *mode < 0 || *mode > 2) return;
  const Writer write(graph, node);
  if (write.reads_further_results()) return;
  const Argument ids = in_bags(write, node.arg("indices"), *length);
  Argument rows = write("aten::embedding", {node.arg("weight"), ids});
  if (!node.arg("per_sample_weights").is_none()) {
    const Argument shares = in_bags(write, node.arg("per_sample_weights"), *length);
    rows = write("aten::mul.Tensor", {rows, write.unsqueezed(shares)});
  }
  const std::optional<int64_t> given =
      has_arg(node, "padding_idx") ? graph::integer(node.arg("padding_idx")) : std::nullopt;
  const graph::Value* table = node.arg("weight").value;
  int64_t padding = given.value_or(-1);
  if (given && padding < 0 && table != nullptr && table->meta) padding += table->meta->sizes[0].offset;
  constexpr const char* kJoin[] = {"aten::sum.dim_IntList", "aten::mean.dim", "aten::amax"};
  const Argument bags =
      padding >= 0 ? joined_bags(write, rows, ids, *mode, padding) : write(kJoin[*mode], {rows, ints({1})});
  write.replace(bags);
}

/// Zeros with a 1 where each id says, as PyTorch makes it.
void one_hot(Graph& graph, Node& node) {
  const std::optional<int64_t> classes = graph::integer(node.arg("num_classes"));
  if (!classes || *classes < 1) return;
  const Writer write(graph, node);
  const Argument ids = write.unsqueezed(node.arg("self"));
  const Argument none = write.constant(".none", torch::zeros({*classes}, at::kLong));
  const Argument last = c10::IValue(int64_t{-1}), one = c10::IValue(int64_t{1});
  graph.retarget(&node, "aten::scatter.value", {write("aten::mul.Tensor", {ids, none}), last, ids, one});
}

/// The part of the source that there are ids for.
void scatter_source(Graph& graph, Node& node) {
  const Argument &source = node.arg("src"), &ids = node.arg("index");
  if (!source.is_value() || !ids.is_value() || !source.value->meta || !ids.value->meta) return;
  const std::vector<SizeExpr> from = source.value->meta->sizes, to = ids.value->meta->sizes;
  const Writer write(graph, node);
  Argument part = source;
  for (size_t d = 0; d < to.size() && to.size() == from.size(); ++d) {
    if (from[d] == to[d] || !to[d].constant()) continue;
    part = write("aten::narrow", {part, c10::IValue(static_cast<int64_t>(d)), c10::IValue(int64_t{0}),
                                  c10::IValue(to[d].offset)});
  }
  node.arg("src") = part;
}

/// What gives every element back as it is.
double identity_of(const std::string& reduce) {
  if (reduce == "amax") return -std::numeric_limits<double>::infinity();
  if (reduce == "amin") return std::numeric_limits<double>::infinity();
  return reduce == "prod" ? 1 : 0;
}

/// Without the elements that were there: those that ids point to are replaced first. Sums are scatter_add,
/// means those over the counts.
void scatter_reduce(Graph& graph, Node& node) {
  const Argument &self = node.arg("self"), &dim = node.arg("dim"), &ids = node.arg("index"),
                 &source = node.arg("src");
  const std::string reduce = node.arg("reduce").literal.toStringRef();
  if (!self.is_value() || !source.is_value()) return;
  const Writer write(graph, node);
  const bool itself = bool_arg(node, "include_self");
  const auto without = [&](const Argument& x, double value) {
    return itself ? x : write("aten::scatter.value", {x, dim, ids, c10::IValue(value)});
  };
  const Argument x = without(self, identity_of(reduce));
  if (reduce == "sum") return graph.retarget(&node, "aten::scatter_add", {x, dim, ids, source});
  if (reduce != "mean") {
    return graph.retarget(&node, "aten::scatter_reduce.two",
                          {x, dim, ids, source, node.arg("reduce"), c10::IValue(true)});
  }
  const auto ones = [&](const Argument& like) { return write("aten::ones_like", {like}); };
  const Argument count = write("aten::scatter_add", {without(ones(self), 0), dim, ids, ones(source)});
  const Argument total = write("aten::scatter_add", {x, dim, ids, source});
  graph.retarget(&node, "aten::div.Tensor", {total, write("aten::clamp_min", {count, literal(1)})});
}

}  // namespace

void spell_out_index(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::embedding_bag")) embedding_bag(graph, *node);
    if (node->is("aten::one_hot")) one_hot(graph, *node);
    if (node->is("aten::scatter.src") || node->is("aten::scatter_add") || node->is("aten::scatter_reduce"))
      scatter_source(graph, *node);
    if (node->is("aten::scatter_reduce")) scatter_reduce(graph, *node);
  }
}

}  // namespace ulp::lowering
