#include "ulp/prune/structured/tracker.h"

#include <exception>

#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

using graph::Argument;
using graph::Attribute;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

namespace {

void each_value(const Argument& arg, const std::function<void(const Value*)>& visit) {
  if (arg.is_value()) visit(arg.value);
  for (const Argument& item : arg.items) each_value(item, visit);
}

/// Axes that stay, of the sizes seen at capture.
Layout fixed_layout(Axes& axes, const Value& value, const std::string& reason) {
  Layout layout;
  layout.known = value.meta.has_value();
  if (!value.meta) return layout;
  for (const SizeExpr& size : value.meta->sizes)
    layout.add(axes.make_fixed(extent_of(size).count, reason), false);
  return layout;
}

}  // namespace

Extent extent_of(const SizeExpr& size) {
  if (size.constant()) return {size.offset, {}, false};
  const Extent opaque{1, {}, true};
  if (size.offset != 0 || (size.numerator != 0) == !size.rest.terms.empty()) return opaque;
  if (size.rest.terms.empty()) {
    if (size.numerator % size.denominator != 0 || size.numerator <= 0) return opaque;
    return {size.numerator / size.denominator, {1}, false};
  }
  const Polynomial::Term& term = size.rest.terms[0];
  if (size.rest.terms.size() != 1 || term.numerator <= 0 || term.denominator != 1) return opaque;
  return {term.numerator, term.powers, false};
}

SizeExpr with_count(const SizeExpr& size, int64_t count) {
  SizeExpr result = size;
  if (size.constant()) {
    result.offset = count;
  } else if (size.rest.terms.empty()) {
    result.numerator = count;
    result.denominator = 1;
  } else {
    result.rest.terms[0].numerator = count;
  }
  return result;
}

std::vector<int64_t> Survivors::indices(const Axis& axis) const {
  std::vector<int64_t> found;
  for (size_t begin = 0, end = 0; begin < axis.size(); begin = end) {
    const auto unit = axes_->find(axis[begin]);
    for (end = begin + 1; end < axis.size() && axes_->find(axis[end]) == unit;) ++end;
    for (int copy = 0; copy < copies_[unit]; ++copy) {
      for (size_t i = begin; i < end; ++i) found.push_back(static_cast<int64_t>(i));
    }
  }
  return found;
}

std::string module_reason(const Node& node) {
  return "module '" + node.target() + "' keeps its channels";
}

Tracker::Tracker(const graph::Graph& graph, const GroupOptions& options) : graph_(graph), options_(options) {
  size_t place = 0;
  for (const auto& node : graph.nodes()) visit(*node, place++);
  axes_.settle();
}

const Role* Tracker::role(Position position) const {
  const auto found = roles_.find(position);
  return found == roles_.end() ? nullptr : &found->second;
}

void Tracker::visit_attribute(const Node& node) {
  const at::Tensor& tensor = graph_.find_attribute(node.target())->tensor;
  const void* memory = tensor.numel() > 0 && tensor.has_storage() ? tensor.data_ptr() : nullptr;
  const auto shared = first_name_.find(memory);
  Layout layout;
  const at::Tensor* first =
      memory && shared != first_name_.end() ? &graph_.find_attribute(shared->second)->tensor : nullptr;
  if (first && first->sizes() == tensor.sizes() && first->strides() == tensor.strides()) {
    layout = attributes_.at(shared->second);
  } else if (first) {
    const std::string why = "'" + node.target() + "' and '" + shared->second + "' share memory in two shapes";
    for (const Axis& axis : attributes_.at(shared->second).dims) axes_.fix(axis, why);
    for (const int64_t size : tensor.sizes()) layout.add(axes_.make_fixed(size, why), true);
  } else {
    for (const int64_t size : tensor.sizes())
      layout.add(size == 1 ? axes_.make_fixed(1, "it is a single one") : axes_.make(size), true);
    if (memory) first_name_.emplace(memory, node.target());
  }
  attributes_[node.target()] = layout;
  layouts_[node.output()] = std::move(layout);
}

void Tracker::refuse(const Node& node, const std::string& why) {
  for (const Argument& arg : node.args) {
    each_value(arg, [&](const Value* value) {
      for (const Axis& axis : layouts_.at(value).dims) axes_.fix(axis, why);
    });
  }
  for (const auto& value : node.outputs()) layouts_[value.get()] = fixed_layout(axes_, *value, why);
}

void Tracker::visit(const Node& node, size_t place) {
  switch (node.kind()) {
    case Node::Kind::input:
      layouts_[node.output()] = fixed_layout(axes_, *node.output(),
                                             "input '" + node.target() + "' of the model keeps its channels");
      return;
    case Node::Kind::attribute:
      return visit_attribute(node);
    case Node::Kind::output:
      return refuse(node, "a result of the model keeps its channels");
    case Node::Kind::module:
      return refuse(node, module_reason(node));
    case Node::Kind::call:
      break;
  }
  Visit visit(*this, node, place);
  const RuleFunction rule = find_rule(node.op());
  if (!rule) return refuse(node, visit.reason());
  try {
    rule(visit);
    for (const auto& value : node.outputs()) {
      if (!layouts_.contains(value.get())) visit.refuse("its result '" + value->name + "' is not followed");
    }
  } catch (const Refusal& refusal) {
    refuse(node, visit.reason(refusal.why));
  } catch (const std::exception&) {  // an argument that is not there, or of another kind
    refuse(node, visit.reason("its arguments are of an unknown form"));
  }
}

}  // namespace ulp::prune
