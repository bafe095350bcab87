#include "ulp/distributed/layer_splitter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ulp/distributed/rank_modules.h"
#include "ulp/distributed/tensor_parallel_ops.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::distributed {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

Node* behind(const Graph& graph, const Node* node) {
  const auto at = std::ranges::find(graph.nodes(), node, [](const auto& one) { return one.get(); });
  return std::next(at)->get();  // a call is never the last node: that is the output
}

/// The sizes of a value of which a rank has a part.
void scale_meta(Value& value, const SplitFlow& flow, const Split& split) {
  graph::SizeExpr& size = value.meta->sizes[static_cast<size_t>(split.dim)];
  size.numerator = flow.own(size.numerator, split);
  size.offset = flow.own(size.offset, split);
}

}  // namespace

LayerSplitter::LayerSplitter(Graph& graph, std::shared_ptr<ProcessGroup> group, graph::PassReport& report)
    : graph_(graph), group_(std::move(group)), report_(report) {}

Value* LayerSplitter::insert(std::shared_ptr<libtorch::TensorModule> module, Value* input, Node* before) {
  const std::string name = "tensor_parallel." + std::to_string(modules_++);
  graph_.modules()[name] = std::move(module);
  Value* output = graph_.call_module(name, input, before)->output();
  output->meta = input->meta;
  return output;
}

void LayerSplitter::split_attribute(const std::string& name, const Split& split) {
  graph::Attribute attribute = *graph_.find_attribute(name);
  const bool trained = attribute.tensor.requires_grad();
  attribute.tensor = split.part_of(attribute.tensor.detach(), group_->rank(), group_->size());
  attribute.tensor.requires_grad_(trained);
  graph_.set_attribute(name, std::move(attribute));
  splits_.push_back({name, split});
}

void LayerSplitter::split_column(const Layer& layer, std::vector<std::pair<Value*, Value*>>& entered) {
  Value* input = layer.node->args[0].value;
  auto found = std::ranges::find(entered, input, &std::pair<Value*, Value*>::first);
  if (found == entered.end()) {
    const auto enter = [group = group_](const at::Tensor& x) { return enter_ranks(x, group); };
    entered.emplace_back(input, insert(std::make_shared<RankModule>(enter), input, layer.node));
    found = std::prev(entered.end());
  }
  layer.node->args[0] = found->second;
  Split split = layer.split;
  split.dim = layer.weight.out_dim;
  split_attribute(layer.weight.name, split);
  split.dim = 0;
  const Argument& bias = layer.node->arg("bias");
  if (bias.is_value()) split_attribute(bias.value->producer->target(), split);
}

void LayerSplitter::split_row(const Layer& layer) {
  Split split = layer.split;
  split.dim = 1 - layer.weight.out_dim;
  split_attribute(layer.weight.name, split);
  Argument& bias_argument = layer.node->arg("bias");
  const Argument bias = std::exchange(bias_argument, Argument(c10::IValue()));
  Value* part = layer.node->output();
  const auto sum = [group = group_](const at::Tensor& x) { return sum_over_ranks(x, group); };
  Node* next = behind(graph_, layer.node);
  Value* whole = insert(std::make_shared<RankModule>(sum), part, next);
  const Node* summing = whole->producer;
  if (bias.is_value()) {
    // In the type of the sum, as a linear layer's result is under autocast.
    Value* biased = graph_.call("aten::add.Tensor", {whole, bias}, next)->output();
    Value* cast = graph_.call("aten::type_as", {biased, whole}, next)->output();
    biased->meta = cast->meta = part->meta;
    whole = cast;
  }
  graph_.replace_uses(part, whole, summing);
}

void LayerSplitter::apply(Region& region) {
  for (const auto& edit : region.flow.edits) edit();
  for (const auto& [value, split] : region.flow.splits)
    scale_meta(*value->producer->output(static_cast<size_t>(value->index)), region.flow, split);
  for (Node* node : region.random) {
    const RankRandom random = rank_random(group_->rank());
    node->args[0] = insert(random.before, node->args[0].value, node);
    Value* drawn = node->output();
    Value* output = insert(random.behind, drawn, behind(graph_, node));
    graph_.replace_uses(drawn, output, output->producer);
  }
  std::vector<std::pair<Value*, Value*>> entered;
  std::string names;
  for (const Layer& layer : region.columns) {
    split_column(layer, entered);
    names += graph::label(*layer.node) + ", ";
    done_.insert(layer.node);
  }
  for (const Layer& layer : region.rows) {
    split_row(layer);
    names += graph::label(*layer.node) + ", ";
    done_.insert(layer.node);
  }
  names.resize(names.size() - 2);
  report_.changes.push_back(names + " split by " + std::to_string(region.columns.front().split.units) +
                            " units");
}

void LayerSplitter::split_embedding(Node* node, const Split& rows) {
  const int64_t begin = rows.begin(group_->rank(), group_->size());
  const int64_t own = rows.units_of(group_->rank(), group_->size());
  const auto call = [&](const char* op, std::vector<Argument> args, Node* before) {
    return graph_.call(op, std::move(args), before)->output();
  };
  const auto number = [](int64_t value) { return c10::IValue(value); };
  // Ids of other ranks' rows read row 0, and their result is zeros.
  Value* ids = call("aten::sub.Scalar", {node->arg("indices").value, number(begin)}, node);
  Value* below = call("aten::lt.Scalar", {ids, number(0)}, node);
  Value* above = call("aten::ge.Scalar", {ids, number(own)}, node);
  Value* elsewhere = call("aten::logical_or", {below, above}, node);
  node->arg("indices") = call("aten::masked_fill.Scalar", {ids, elsewhere, number(0)}, node);
  Argument& padding = node->arg("padding_idx");
  const int64_t padded = graph::integer(padding).value_or(-1) - begin;
  padding = c10::IValue(padded >= 0 && padded < own ? padded : int64_t{-1});
  Value* read = node->output();
  Node* next = behind(graph_, node);
  Value* rest = call("aten::unsqueeze", {elsewhere, number(-1)}, next);
  Value* part = call("aten::masked_fill.Scalar", {read, rest, number(0)}, next);
  part->meta = read->meta;
  const auto sum = [group = group_](const at::Tensor& x) { return sum_over_ranks(x, group); };
  Value* whole = insert(std::make_shared<RankModule>(sum), part, next);
  graph_.replace_uses(read, whole, part->producer);
}

std::optional<Split> LayerSplitter::split_vocabulary(const std::set<const Node*>& skipped, int64_t least,
                                                     bool gather) {
  const Argument& result = graph_.output_node()->args[0];
  Node* head =
      result.is_value() && result.value->producer->is("aten::linear") ? result.value->producer : nullptr;
  if (head != nullptr && (done_.contains(head) || skipped.contains(head))) head = nullptr;
  std::optional<Matrix> of_head = head != nullptr ? matrix_of(*head) : std::nullopt;
  const auto attributes = graph_.attributes();  // a copy: parts take their places
  for (const auto& [name, attribute] : attributes) {
    std::vector<Node*> tables;
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::embedding") &&
          graph_.attribute_tensor(node->arg("weight").value).is_same(attribute.tensor))
        tables.push_back(node.get());
    }
    if (tables.empty() || attribute.tensor.size(0) < std::max<int64_t>(least, group_->size())) continue;
    std::vector<Node*> users = graph_.users(tables.front()->arg("weight").value);
    const bool tied = head != nullptr && std::erase(users, head) > 0;
    const auto is_skipped = [&](const Node* node) { return skipped.contains(node); };
    if (users != tables || std::ranges::any_of(tables, is_skipped)) {
      report_.near_misses.push_back(name +
                                    " stays whole: it is skipped by name, or read by others than embeddings");
      continue;
    }
    const Split rows{0, 1, attribute.tensor.size(0), 1};
    for (Node* table : tables) split_embedding(table, rows);
    if (tied)
      of_head = Matrix{name, 0};
    else
      split_attribute(name, rows);
    report_.changes.push_back(name + " split by its " + std::to_string(rows.units) + " rows");
  }
  if (!of_head) return std::nullopt;
  const int64_t outputs = graph_.find_attribute(of_head->name)->tensor.size(of_head->out_dim);
  if (outputs < std::max<int64_t>(least, group_->size())) return std::nullopt;
  Value* part = head->output();
  const Split split{static_cast<int64_t>(sizes_of(part).size()) - 1, 1, outputs, 1};
  std::vector<std::pair<Value*, Value*>> entered;
  split_column({head, *of_head, split}, entered);
  done_.insert(head);
  report_.changes.push_back(graph::label(*head) + " split by its " + std::to_string(outputs) + " outputs");
  if (!gather) return split;
  const auto join = [group = group_, split](const at::Tensor& x) {
    return gather_from_ranks(x, split, group);
  };
  Value* whole = insert(std::make_shared<RankModule>(join), part, behind(graph_, head));
  graph_.replace_uses(part, whole, whole->producer);
  return std::nullopt;
}

}  // namespace ulp::distributed
