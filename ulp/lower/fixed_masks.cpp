#include "ulp/lower/fixed_masks.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/shapes.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// True for an argument of which a call reads the sizes and the type and nothing else.
bool reads_sizes_only(const Node& node, size_t argument) {
  if (argument == 0) {
    return graph::is_any(node, {"aten::empty_like", "aten::zeros_like", "aten::ones_like", "aten::full_like",
                                "aten::new_empty", "aten::new_zeros", "aten::new_ones", "aten::new_full",
                                "aten::fill", "aten::zero"});
  }
  return argument == 1 &&
         graph::is_any(node, {"aten::expand_as", "aten::view_as", "aten::reshape_as", "aten::type_as"});
}

/// What a call writes into all of its result, where it is one number.
std::optional<double> filled_with(const Node& node) {
  for (const auto& [op, name] : {std::pair{"aten::full", "fill_value"},
                                 {"aten::full_like", "fill_value"},
                                 {"aten::new_full", "fill_value"},
                                 {"aten::fill", "value"},
                                 {"aten::scalar_tensor", "s"}}) {
    if (node.is(op)) return graph::number(node.arg(name));
  }
  return std::nullopt;
}

/// True where the argument, or one of its list, is the value.
bool reads_value(const Argument& argument, const Value* value) {
  if (argument.is_value()) return argument.value == value;
  return argument.kind != Argument::Kind::dtype &&
         std::ranges::any_of(argument.items, [&](const Argument& item) { return reads_value(item, value); });
}

/// The matrix of a tensor that is the same for every index of the other dimensions.
at::Tensor only_matrix(const at::Tensor& held) {
  if (!held.defined() || held.dim() < 2) return {};
  at::Tensor matrix = held;
  while (matrix.dim() > 2) {
    if (matrix.size(0) == 0) return {};
    for (int64_t i = 1; i < matrix.size(0); ++i) {
      if (matrix.stride(0) != 0 && !matrix[i].equal(matrix[0])) return {};
    }
    matrix = matrix[0];
  }
  return matrix.detach();
}

/// What a value of sizes and constants holds at a batch. Values of which only the sizes are read are not
/// computed.
at::Tensor evaluate_at(const Graph& graph, const Value& value, int64_t batch) {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<Graph> copy = graph.clone();
  Value* wanted = nullptr;
  for (const auto& node : copy->nodes()) {
    for (const auto& made : node->outputs()) {
      if (made->name == value.name) wanted = made.get();
    }
    for (size_t i = 0; i < node->args.size(); ++i) {
      Argument& argument = node->args[i];
      if (!reads_sizes_only(*node, i) || !argument.is_value() || !argument.value->meta) continue;
      if (argument.value->producer->kind() == Node::Kind::attribute) continue;
      std::vector<int64_t> sizes;
      for (const graph::SizeExpr& size : argument.value->meta->sizes) sizes.push_back(size.at(batch));
      const std::string name = copy->unique_name(argument.value->name + ".sizes");
      const at::Tensor zeros = torch::zeros({}, argument.value->meta->dtype).expand(sizes);
      copy->set_attribute(name, {graph::Attribute::Kind::constant, zeros});
      argument = copy->attribute(name);
    }
  }
  copy->set_output(Argument::tuple({wanted}));
  copy->remove_dead();
  graph::GraphModule probe(copy);
  probe.eval();
  return probe.forward_all(zeros_of(graph, batch)).at(0);
}

/// How many keys the last query sees, where it sees fewer than all and where `open` is true at so many keys
/// up to each query's own and nowhere else; 0 for another matrix.
int64_t window_of(const at::Tensor& open, const at::Tensor& later) {
  const int64_t size = open.size(0), seen = size > 0 ? open[size - 1].sum().item<int64_t>() : 0;
  if (seen == 0 || seen == size) return 0;
  return open.equal(later.logical_not().triu(1 - seen)) ? seen : 0;
}

Triangle triangle_of(const at::Tensor& mask) {
  Triangle found{.size = mask.size(0)};
  at::Tensor later = torch::ones(mask.sizes(), torch::kBool).triu(1);
  const bool truth = mask.scalar_type() == at::kBool;
  for (const at::Tensor& open : {truth ? mask : mask != 0, truth ? mask.logical_not() : mask == 0}) {
    if (found.window == 0) found.window = window_of(open, later);
  }
  if (found.window > 0) later = later | torch::ones(mask.sizes(), torch::kBool).tril(-found.window);
  if (mask.scalar_type() == at::kBool) {
    found.hides = mask.equal(later);
    found.shows = mask.logical_not().equal(later);
    found.keeps = found.shows;
    return found;
  }
  found.keeps = (mask == later.logical_not()).all().item<bool>();
  if (at::isFloatingType(mask.scalar_type()) && ((mask == 0) | later).all().item<bool>()) {
    const at::Tensor hidden = mask.masked_select(later);
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    found.adds = hidden.numel() == 0 ? kNothing : hidden.max().item<double>();
    found.takes = hidden.numel() == 0 ? kNothing : -hidden.min().item<double>();
  }
  return found;
}

}  // namespace

FixedMasks::FixedMasks(const Graph& graph) : graph_(graph), written_(graph) {
  for (const auto& node : graph.nodes()) {
    bool fixed = node->kind() == Node::Kind::attribute;
    if (node->kind() == Node::Kind::call && !node->has_effect() && !written_.touches(*node)) {
      fixed = true;
      for (size_t i = 0; i < node->args.size(); ++i)
        fixed = fixed && (reads_sizes_only(*node, i) || is_fixed(node->args[i]));
    }
    if (!fixed) continue;
    for (const auto& value : node->outputs()) fixed_.insert(value.get());
  }
}

bool FixedMasks::is_fixed(const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Kind::literal:
    case Argument::Kind::batch:
    case Argument::Kind::dtype:
      return true;
    case Argument::Kind::value:
      return fixed_.contains(argument.value);
    case Argument::Kind::list:
      return std::ranges::all_of(argument.items, [&](const Argument& item) { return is_fixed(item); });
    default:
      return false;
  }
}

bool FixedMasks::read_by_one(const Value* value, const Node& reader) const {
  return std::ranges::all_of(graph_.users(value), [&](const Node* user) {
    if (user == &reader) return true;
    if (user->kind() != Node::Kind::call) return false;
    for (size_t i = 0; i < user->args.size(); ++i) {
      const bool only_sizes = user->args[i].is_value() && reads_sizes_only(*user, i);
      if (reads_value(user->args[i], value) && !only_sizes) return false;
    }
    return true;
  });
}

at::Tensor FixedMasks::matrix(const Argument& argument) {
  if (!argument.is_value() || !fixed_.contains(argument.value)) return {};
  const auto [at, fresh] = matrices_.try_emplace(argument.value);
  if (!fresh) return at->second;
  if (const at::Tensor held = graph_.attribute_tensor(argument.value); held.defined())
    return at->second = only_matrix(held);
  // What follows the size of the batch differs.
  const int64_t batch = graph_.batch_range.example(1);
  const at::Tensor two = only_matrix(evaluate_at(graph_, *argument.value, batch));
  const at::Tensor three = only_matrix(evaluate_at(graph_, *argument.value, batch + 1));
  if (two.defined() && three.defined() && two.equal(three)) at->second = two;
  return at->second;
}

std::optional<double> FixedMasks::number(const Argument& argument) {
  if (const std::optional<double> literal = graph::number(argument)) return literal;
  if (!argument.is_value()) return std::nullopt;
  if (const Node& made = *argument.value->producer; made.kind() == Node::Kind::call) {
    if (const std::optional<double> filled = filled_with(made)) return filled;
  }
  at::Tensor held = graph_.attribute_tensor(argument.value);
  if (!held.defined() || held.numel() != 1) held = matrix(argument);
  if (!held.defined() || held.numel() == 0 || held.is_complex()) return std::nullopt;
  const at::Tensor first = held.reshape({-1})[0];
  if (held.numel() > 1 && !(held == first).all().item<bool>()) return std::nullopt;
  return first.item().toDouble();
}

std::optional<Triangle> FixedMasks::triangle(const Argument& argument) {
  if (!argument.is_value()) return std::nullopt;
  const auto [at, fresh] = triangles_.try_emplace(argument.value);
  if (!fresh) return at->second;
  const at::Tensor mask = matrix(argument);
  if (mask.defined() && mask.size(0) == mask.size(1) && !mask.is_complex()) at->second = triangle_of(mask);
  return at->second;
}

}  // namespace ulp::lowering
