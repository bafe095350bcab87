#include "ulp/lower/spell_out_index.h"

#include <torch/types.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::BatchExpr;
using graph::Graph;
using graph::Node;

namespace {

/// Writes calls before a node, of the same module.
class Writer {
 public:
  Writer(Graph& graph, Node& node) : graph_(graph), node_(node) {}

  Argument operator()(const char* target, std::vector<Argument> args) const {
    Node* made = graph_.call(target, std::move(args), &node_);
    made->scope = node_.scope;
    return made->output();
  }
  Argument constant(const char* suffix, const at::Tensor& tensor) const {
    const std::string name = graph_.unique_name(node_.name() + suffix);
    graph_.set_attribute(name, {graph::Attribute::Kind::constant, tensor});
    return graph_.attribute(name);
  }
  Argument unsqueezed(const Argument& x) const {
    return (*this)("aten::unsqueeze", {x, c10::IValue(int64_t{-1})});
  }

 private:
  Graph& graph_;
  Node& node_;
};

Argument ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}

/// The length of the bags whose offsets are torch.arange(0, batch * length, length); nothing for others.
std::optional<int64_t> bag_length(const Node& node) {
  const Node* offsets = graph::producer(node.arg("offsets"), "aten::arange");
  if (offsets == nullptr || !has_arg(*offsets, "step") || bool_arg(node, "include_last_offset")) return {};
  const std::optional<int64_t> start = graph::integer(offsets->arg("start")),
                               step = graph::integer(offsets->arg("step"));
  const Argument& end = offsets->arg("end");
  const bool whole = end.kind == Argument::Kind::batch && step && end.batch == BatchExpr{*step, 1, 0};
  return start == 0 && whole ? step : std::nullopt;
}

/// [batch * length] -> [batch, length].
Argument in_bags(const Writer& write, const Argument& x, int64_t length) {
  return write("aten::view", {x, Argument::list({BatchExpr{1, 1, 0}, c10::IValue(length)})});
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
  for (size_t i = 1; i < node.outputs().size(); ++i) {
    if (!graph.users(node.output(i)).empty()) return;
  }
  const Writer write(graph, node);
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
  graph.replace_uses(node.output(), bags.value);
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

/// The constants of an index list, a mask as the indices of what is true in it, with the dimension of the first;
/// nothing where one is no constant or the dimensions are not neighbours.
struct ConstantIndices {
  int64_t first = -1;
  std::vector<at::Tensor> tensors;
  bool masks = false;
};
std::optional<ConstantIndices> constant_indices(const Graph& graph, const Argument& list) {
  ConstantIndices found;
  int64_t dim = 0;
  for (const Argument& item : list.items) {
    if (!item.is_value()) {
      ++dim;
      continue;
    }
    const at::Tensor tensor = graph.attribute_tensor(item.value);
    if (!tensor.defined()) return std::nullopt;
    if (found.first < 0) found.first = dim;
    if (found.first + static_cast<int64_t>(found.tensors.size()) != dim) return std::nullopt;
    const bool mask = tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    found.masks = found.masks || mask;
    for (const at::Tensor& one : mask ? tensor.nonzero().unbind(1) : std::vector<at::Tensor>{tensor}) {
      found.tensors.push_back(one.to(at::kLong));
      ++dim;
    }
  }
  if (found.first < 0) return std::nullopt;
  return found;
}

void index_by_constants(Graph& graph, Node& node) {
  const Argument &x = node.arg("self"), &list = node.arg("indices");
  if (list.kind != Argument::Kind::list || !x.is_value() || !x.value->meta) return;
  const std::optional<ConstantIndices> indices = constant_indices(graph, list);
  if (!indices || (indices->tensors.size() == 1 && !indices->masks)) return;
  at::Tensor ids = torch::zeros({}, at::kLong);
  for (size_t i = 0; i < indices->tensors.size(); ++i) {
    const BatchExpr& size = x.value->meta->sizes.at(static_cast<size_t>(indices->first) + i);
    if (!size.constant()) return;
    const at::Tensor& own = indices->tensors[i];
    ids = ids * size.offset + torch::where(own < 0, own + size.offset, own);
  }
  if (ids.numel() == 0) return;
  const Writer write(graph, node);
  const int64_t last = indices->first + static_cast<int64_t>(indices->tensors.size()) - 1;
  const Argument flat = last > indices->first ? write("aten::flatten.using_ints",
                                                      {x, c10::IValue(indices->first), c10::IValue(last)})
                                              : x;
  std::vector<Argument> items(static_cast<size_t>(indices->first), c10::IValue());
  items.push_back(write.constant(".ids", ids.contiguous()));
  graph.retarget(&node, "aten::index.Tensor", {flat, Argument::list(std::move(items))});
}

/// The part of the source that there are ids for.
void scatter_source(Graph& graph, Node& node) {
  const Argument &source = node.arg("src"), &ids = node.arg("index");
  if (!source.is_value() || !ids.is_value() || !source.value->meta || !ids.value->meta) return;
  const std::vector<BatchExpr> from = source.value->meta->sizes, to = ids.value->meta->sizes;
  const Writer write(graph, node);
  Argument part = source;
  for (size_t d = 0; d < to.size() && to.size() == from.size(); ++d) {
    if (from[d] == to[d] || !to[d].constant()) continue;
    part = write("aten::narrow", {part, c10::IValue(static_cast<int64_t>(d)), c10::IValue(int64_t{0}),
                                  c10::IValue(to[d].offset)});
  }
  node.arg("src") = part;
}

}  // namespace

void spell_out_index(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::embedding_bag")) embedding_bag(graph, *node);
    if (node->is("aten::one_hot")) one_hot(graph, *node);
    if (node->is("aten::index.Tensor")) index_by_constants(graph, *node);
    if (node->is("aten::scatter.src") || node->is("aten::scatter_add")) scatter_source(graph, *node);
  }
}

}  // namespace ulp::lowering
