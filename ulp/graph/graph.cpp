#include "ulp/graph/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/conditions.h"

namespace ulp::graph {

Argument Argument::training_flag(bool inverted) {
  Argument result;
  result.kind = Kind::training;
  result.inverted = inverted;
  return result;
}

Argument Argument::by_mode(c10::IValue eval, c10::IValue train) {
  Argument result;
  result.kind = Kind::by_mode;
  result.items = {std::move(eval), std::move(train)};
  return result;
}

Argument Argument::dtype_of(Value* value, c10::IValue at_capture) {
  Argument result(std::move(at_capture));
  result.kind = Kind::dtype;
  result.items = {value};
  return result;
}

Argument Argument::list(std::vector<Argument> items) {
  Argument result;
  result.kind = Kind::list;
  result.items = std::move(items);
  return result;
}

Argument Argument::tuple(std::vector<Argument> items) {
  Argument result;
  result.kind = Kind::tuple;
  result.items = std::move(items);
  return result;
}

namespace {

template <typename Visit>
void for_each_value(const std::vector<Argument>& args, const Visit& visit) {
  for (const Argument& arg : args) {
    if (arg.is_value()) visit(arg.value);
    for_each_value(arg.items, visit);
  }
}

/// Replaces the values for which `map` gives another one.
template <typename Map>
void map_values(std::vector<Argument>& args, const Map& map) {
  for (Argument& arg : args) {
    if (arg.is_value()) arg.value = map(arg.value);
    map_values(arg.items, map);
  }
}

}  // namespace

std::string_view Node::op() const {
  return std::string_view(target_).substr(0, target_.find('.'));
}

bool Node::is(std::string_view op_or_target) const {
  return kind_ == Kind::call && (target_ == op_or_target || op() == op_or_target);
}

const c10::FunctionSchema& Node::schema() const {
  if (!schema_) fail("graph.node", "expected a call, got '", name_, "' (", target_, "), which has no schema");
  return *schema_;
}

const Argument& Node::arg(std::string_view name) const {
  const std::vector<c10::Argument>& arguments = schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return args.at(i);
  }
  fail("graph.node", "expected an argument of ", target_, ", got '", name, "' at node '", name_, "'");
}

Argument& Node::arg(std::string_view name) {
  return const_cast<Argument&>(std::as_const(*this).arg(name));
}

std::vector<Value*> Node::reads() const {
  std::vector<Value*> result;
  for_each_value(args, [&](Value* value) { result.push_back(value); });
  return result;
}

bool Node::has_effect() const {
  if (kind_ != Kind::call) return kind_ == Kind::module || kind_ == Kind::output;
  if (schema_->is_mutable() || is_random(*schema_)) return true;
  // Batch norms write their running statistics in train mode although their schemas do not say so.
  if (!is("aten::batch_norm") && !is("aten::native_batch_norm") && !is("aten::instance_norm")) return false;
  const Argument& training = args.at(5);
  return training.kind == Argument::Kind::training || !training.literal.isBool() || training.literal.toBool();
}

Graph::Graph() = default;
Graph::~Graph() = default;

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  copy->batch_dims = batch_dims;
  copy->batch_range = batch_range;
  copy->free = free;
  copy->attributes_ = attributes_;
  copy->modules_ = modules_;
  std::unordered_map<const Value*, Value*> values;
  for (const auto& node : nodes_) {
    auto twin = std::make_unique<Node>();
    twin->kind_ = node->kind_;
    twin->target_ = node->target_;
    twin->name_ = node->name_;
    twin->schema_ = node->schema_;
    twin->scope = node->scope;
    twin->train_only = node->train_only;
    twin->in_place = node->in_place;
    twin->no_grad = node->no_grad;
    twin->eval_only = node->eval_only;
    twin->autocast = node->autocast;
    twin->args = node->args;
    map_values(twin->args, [&](Value* value) { return values.at(value); });
    for (const auto& output : node->outputs_) {
      auto value = std::make_unique<Value>(*output);
      value->producer = twin.get();
      values[output.get()] = value.get();
      twin->outputs_.push_back(std::move(value));
    }
    copy->nodes_.push_back(std::move(twin));
  }
  return copy;
}

std::vector<Value*> Graph::inputs() const {
  std::vector<Value*> result;
  for (const auto& node : nodes_) {
    if (node->kind() == Node::Kind::input) result.push_back(node->output());
  }
  return result;
}

Node* Graph::output_node() const {
  if (nodes_.empty() || nodes_.back()->kind() != Node::Kind::output) return nullptr;
  return nodes_.back().get();
}

std::string Graph::unique_name(const std::string& wish) const {
  const auto has_it = [&](const auto& node) {
    return node->name_ == wish ||
           std::ranges::any_of(node->outputs_, [&](const auto& output) { return output->name == wish; });
  };
  if (std::ranges::none_of(nodes_, has_it)) return wish;  // without a table of all names
  std::unordered_set<std::string_view> taken;
  for (const auto& node : nodes_) {
    taken.insert(node->name_);
    for (const auto& output : node->outputs_) taken.insert(output->name);
  }
  std::string name = wish;
  for (int i = 1; taken.count(name); ++i) name = wish + "_" + std::to_string(i);
  return name;
}

Node* Graph::insert(std::unique_ptr<Node> node, Node* before) {
  if (!before) before = output_node();
  auto place = nodes_.end();
  if (before) {
    place = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.get() == before; });
    if (place == nodes_.end())
      fail("graph.insert", "expected an insertion point in this graph, got a node of another");
  }
  return nodes_.insert(place, std::move(node))->get();
}

Value* Graph::add_input(const std::string& name, int64_t batch_dim) {
  auto node = std::make_unique<Node>();
  node->kind_ = Node::Kind::input;
  node->target_ = name;
  node->name_ = unique_name(name);
  auto place = std::find_if(nodes_.begin(), nodes_.end(),
                            [](const auto& n) { return n->kind() != Node::Kind::input; });
  Node* before = place == nodes_.end() ? nullptr : place->get();
  batch_dims.push_back(batch_dim);
  set_output_count(node.get(), 1);
  return insert(std::move(node), before)->output();
}

Value* Graph::attribute(const std::string& name) {
  for (const auto& node : nodes_) {
    if (node->kind() == Node::Kind::attribute && node->target() == name) return node->output();
  }
  const Attribute* found = find_attribute(name);
  if (!found) fail("graph.attribute", "expected the name of an attribute, got '", name, "'");
  auto node = std::make_unique<Node>();
  node->kind_ = Node::Kind::attribute;
  node->target_ = name;
  node->name_ = unique_name(name);
  set_output_count(node.get(), 1);
  node->output()->meta = meta_of(found->tensor);
  auto place = std::find_if(nodes_.begin(), nodes_.end(), [](const auto& n) {
    return n->kind() != Node::Kind::input && n->kind() != Node::Kind::attribute;
  });
  Node* before = place == nodes_.end() ? nullptr : place->get();
  return insert(std::move(node), before)->output();
}

void Graph::set_output_count(Node* node, size_t count) {
  for (size_t i = count; i < node->outputs_.size(); ++i) {
    if (!users(node->output(i)).empty()) {
      fail("graph.set_output_count", "expected at least ", i + 1, " outputs of '", node->name(),
           "', which are read, got ", count);
    }
  }
  bool several = count > 1;
  node->outputs_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (!node->outputs_[i]) {
      node->outputs_[i] = std::make_unique<Value>();
      node->outputs_[i]->producer = node;
      node->outputs_[i]->index = static_cast<int32_t>(i);
    }
    node->outputs_[i]->name = several ? node->name_ + "." + std::to_string(i) : node->name_;
  }
}

Node* Graph::call(const std::string& target, std::vector<Argument> args, Node* before,
                  const std::string& name) {
  const c10::FunctionSchema& schema = find_schema(target);
  auto node = std::make_unique<Node>();
  node->kind_ = Node::Kind::call;
  node->target_ = target;
  node->schema_ = &schema;
  node->args = complete_arguments(schema, target, std::move(args));
  node->name_ = unique_name(name.empty() ? short_name(target) : name);
  set_output_count(node.get(), schema.returns().size());
  return insert(std::move(node), before);
}

Node* Graph::call_module(const std::string& target, Value* input, Node* before, const std::string& name) {
  auto node = std::make_unique<Node>();
  node->kind_ = Node::Kind::module;
  node->target_ = target;
  node->args = {input};
  std::string wish = name.empty() ? target : name;
  std::replace(wish.begin(), wish.end(), '.', '_');
  node->name_ = unique_name(wish);
  set_output_count(node.get(), 1);
  node->output()->meta = input->meta;
  return insert(std::move(node), before);
}

void Graph::set_output(Argument result) {
  if (Node* node = output_node()) {
    node->args = {std::move(result)};
    return;
  }
  auto node = std::make_unique<Node>();
  node->kind_ = Node::Kind::output;
  node->target_ = "output";
  node->name_ = unique_name("output");
  node->args = {std::move(result)};
  nodes_.push_back(std::move(node));
}

void Graph::retarget(Node* node, const std::string& target, std::vector<Argument> args) {
  const c10::FunctionSchema& schema = find_schema(target);
  if (node->kind() != Node::Kind::call || schema.returns().size() != node->outputs_.size()) {
    fail("graph.retarget", "expected a call with ", schema.returns().size(), " outputs for ", target,
         ", got '", node->name(), "' (", node->target(), ") with ", node->outputs_.size());
  }
  node->args = complete_arguments(schema, target, std::move(args));
  node->target_ = target;
  node->schema_ = &schema;
  node->in_place = false;
}

void Graph::erase(Node* node) {
  for (const auto& output : node->outputs_) {
    std::vector<Node*> readers = users(output.get());
    if (!readers.empty()) {
      fail("graph.erase", "expected a node that nobody reads, got '", node->name(), "', read by '",
           readers.front()->name(), "'");
    }
  }
  nodes_.remove_if([&](const auto& n) { return n.get() == node; });
}

void Graph::move_before(Node* node, Node* before) {
  auto find = [&](Node* wanted) {
    return std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.get() == wanted; });
  };
  auto from = find(node), to = find(before ? before : output_node());
  if (from == nodes_.end())
    fail("graph.move_before", "expected a node of this graph, got one of another graph");
  nodes_.splice(to, nodes_, from);
}

void Graph::replace_uses(Value* from, Value* to, const Node* keep) {
  for (const auto& node : nodes_) {
    if (node.get() == keep) continue;
    map_values(node->args, [&](Value* value) { return value == from ? to : value; });
  }
}

std::vector<Node*> Graph::users(const Value* value) const {
  std::vector<Node*> result;
  for (const auto& node : nodes_) {
    bool reads = false;
    for_each_value(node->args, [&](Value* read) { reads |= read == value; });
    if (reads) result.push_back(node.get());
  }
  return result;
}

int Graph::remove_dead(bool attributes) {
  std::unordered_set<const Value*> read;
  int removed = 0;
  for (auto it = nodes_.end(); it != nodes_.begin();) {
    Node& node = **--it;
    bool used =
        std::any_of(node.outputs_.begin(), node.outputs_.end(), [&](auto& o) { return read.count(o.get()); });
    if (!used && !node.has_effect() && node.kind() != Node::Kind::input) {
      it = nodes_.erase(it);
      ++removed;
      continue;
    }
    for_each_value(node.args, [&](Value* value) { read.insert(value); });
  }
  if (!attributes) return removed;
  std::unordered_set<const void*> tensors;  // by address: a shared tensor stays under all its names
  for (const auto& node : nodes_) {
    if (node->kind() != Node::Kind::attribute) continue;
    if (const Attribute* found = find_attribute(node->target()))
      tensors.insert(found->tensor.unsafeGetTensorImpl());
  }
  for (const Condition& one : conditions_of(*this)) {
    tensors.insert(one.now.unsafeGetTensorImpl());
    tensors.insert(one.held.unsafeGetTensorImpl());
  }
  removed += static_cast<int>(std::erase_if(attributes_, [&](const auto& entry) {
    return !tensors.count(entry.second.tensor.unsafeGetTensorImpl());
  }));
  return removed;
}

const Attribute* Graph::find_attribute(const std::string& name) const {
  for (const auto& [key, attribute] : attributes_) {
    if (key == name) return &attribute;
  }
  return nullptr;
}

Attribute* Graph::find_attribute(const std::string& name) {
  return const_cast<Attribute*>(std::as_const(*this).find_attribute(name));
}

void Graph::set_attribute(const std::string& name, Attribute attribute) {
  if (Attribute* found = find_attribute(name)) {
    *found = std::move(attribute);
    for (const auto& node : nodes_) {
      if (node->kind() == Node::Kind::attribute && node->target() == name)
        node->output()->meta = meta_of(found->tensor);
    }
    return;
  }
  attributes_.emplace_back(name, std::move(attribute));
}

void Graph::erase_attribute(const std::string& name) {
  for (const auto& node : nodes_) {
    if (node->kind() == Node::Kind::attribute && node->target() == name) {
      erase(node.get());
      break;
    }
  }
  std::erase_if(attributes_, [&](const auto& entry) { return entry.first == name; });
}

at::Tensor Graph::attribute_tensor(const Value* value) const {
  if (!value || !value->producer || value->producer->kind() != Node::Kind::attribute) return {};
  const Attribute* found = find_attribute(value->producer->target());
  return found ? found->tensor : at::Tensor();
}

}  // namespace ulp::graph
