#include "ulp/quant/static/placement.h"

#include <torch/types.h>

#include <algorithm>
#include <initializer_list>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

bool literal_equals(const Argument& arg, double value) {
  return arg.kind == Argument::Kind::literal && arg.literal.isScalar() &&
         arg.literal.toScalar().toDouble() == value;
}

bool is_activation(const Node& node) {
  if (node.is("aten::relu") || node.is("aten::relu6")) return true;
  return node.is("aten::hardtanh") && literal_equals(node.arg("min_val"), 0) &&
         literal_equals(node.arg("max_val"), 6);
}

// Ops whose results have bounds that do not depend on the data; quantized where a recipe asks for it.
bool ends_fixed(const Node& node) {
  return node.is("aten::softmax") || node.is("aten::sigmoid") || node.is("aten::tanh");
}

bool is_any(const Node& node, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* op) { return node.is(op); });
}

bool keeps_parameters(const Node& node) {
  return is_any(node, {"aten::max_pool2d", "aten::avg_pool2d", "aten::adaptive_avg_pool2d",
                       "aten::max_pool1d", "aten::avg_pool1d", "aten::adaptive_avg_pool1d", "aten::flatten",
                       "aten::view", "aten::reshape"});
}

// [N, S, heads, depth], swapped from attention's result, back to rows: an engine does all of that in
// attention's step, so codes can start behind it only.
bool joins_heads(const Node& node) {
  const Node& before = *node.args[0].value->producer;
  return before.is("aten::transpose") || before.is("aten::permute");
}

// These keep the parameters too, but are worth it only between quantized ops.
bool moves_channels(const Node& node) {
  return is_any(
      node, {"aten::channel_shuffle", "aten::chunk", "aten::split", "aten::split_with_sizes", "aten::slice",
             "aten::narrow", "ulp::depth_to_space", "aten::upsample_nearest2d", "aten::upsample_bilinear2d"});
}

// Empty when the values can stand side by side as integers, else the reason why not.
std::string cat_obstacle(const Node& node) {
  const Argument& tensors = node.args[0];
  const auto& meta = node.output()->meta;
  if (tensors.kind != Argument::Kind::list || !meta) return "it does not read a list of known tensors";
  const size_t rank = meta->sizes.size();
  const auto dim = rank == 4 ? 1.0 : static_cast<double>(rank) - 1;
  if (!literal_equals(node.arg("dim"), dim) &&
      !literal_equals(node.arg("dim"), dim - static_cast<double>(rank)))
    return "it does not join channels";
  for (const Argument& tensor : tensors.items) {
    if (!tensor.is_value() || !tensor.value->meta || tensor.value->meta->dtype != at::kFloat)
      return "its operands are not float32";
  }
  return "";
}

// Empty when the add can run on integers, else the reason why not.
std::string add_obstacle(const Node& node) {
  if (node.target() != "aten::add.Tensor") return "it is not a sum of two tensors";
  if (!node.args[0].is_value() || !node.args[1].is_value()) return "it is not a sum of two tensors";
  if (!literal_equals(node.arg("alpha"), 1)) return "its alpha is not 1";
  const auto &a = node.args[0].value->meta, &b = node.args[1].value->meta;
  if (!a || !b || a->sizes != b->sizes) return "its operands differ in shape";
  if (a->dtype != at::kFloat || b->dtype != at::kFloat) return "its operands are not float32";
  return "";
}

std::string layer_obstacle(const Graph& graph, const Node& node) {
  if (node.target() != node.op()) return "its padding is given as a word";
  const Argument &weight = node.arg("weight"), &bias = node.arg("bias");
  const at::Tensor values = weight.is_value() ? graph.attribute_tensor(weight.value) : at::Tensor();
  if (!values.defined()) return "its weight is computed, not stored";
  if (values.scalar_type() != at::kFloat) return "its weight is not float32";
  const auto& meta = node.args[0].value->meta;
  if (meta && meta->dtype != at::kFloat) return "its input is not float32";
  if (!bias.is_none() && !graph.attribute_tensor(bias.value).defined())
    return "its bias is computed, not stored";
  return "";
}

class Placer {
 public:
  Placer(const Graph& graph, const Recipe& recipe) : graph_(graph), recipe_(recipe) {}

  Placement run() {
    for (const auto& node : graph_.nodes()) visit(node.get());
    for (const Chain& chain : placement_.chains) {
      need(chain.op->args[0].value);
      if (ends_fixed(*chain.op)) need(chain.result());
      if (chain.op->is("aten::add")) need(chain.op->args[1].value);
      if (chain.add) need(other_operand(*chain.add, chain.op->output()));
    }
    sort_sharing();
    for (const Chain& chain : placement_.chains)
      placement_.report.changes.push_back(chain.describe() + " quantized");
    report_rest();
    placement_.report.pass = "quantize";
    return std::move(placement_);
  }

 private:
  bool wants(const char* op) const {
    return std::find(recipe_.ops.begin(), recipe_.ops.end(), op) != recipe_.ops.end();
  }
  void refuse(const Node& node, const std::string& why) {
    placement_.report.near_misses.push_back(describe(node) + " (" + std::string(node.op()) +
                                            ") not quantized: " + why);
    reported_.insert(&node);
  }
  bool skips(const Node& node) const { return recipe_.skips(op_name(node)); }
  static Value* other_operand(const Node& add, const Value* one) {
    return add.args[0].value == one ? add.args[1].value : add.args[0].value;
  }
  // The one node that reads the value, once; null when there are more.
  Node* only_reader(const Value* value) const {
    const std::vector<Node*> readers = graph_.users(value);
    if (readers.size() != 1) return nullptr;
    const std::vector<Value*> reads = readers[0]->reads();
    return std::count(reads.begin(), reads.end(), value) == 1 ? readers[0] : nullptr;
  }

  void visit(Node* node) {
    if (has_weight(*node)) return visit_layer(node);
    if (node->is("aten::add") && !fused_.contains(node)) visit_add(node);
    if (node->is("aten::cat")) visit_cat(node);
    if (ends_fixed(*node)) visit_fixed(node);
  }

  void visit_layer(Node* node) {
    const std::string obstacle = layer_obstacle(graph_, *node);
    if (!wants(op_name(*node).op.c_str())) return refuse(*node, "the recipe leaves this op out");
    if (skips(*node)) return refuse(*node, "the recipe skips it");
    if (!obstacle.empty()) return refuse(*node, obstacle);
    Chain chain{node, nullptr, nullptr};
    fused_.insert(node);
    Node* next = only_reader(node->output());
    if (next && next->is("aten::add") && wants("add") && !fused_.contains(next) && !skips(*next)) {
      const std::string why = add_obstacle(*next);
      if (why.empty()) {
        chain.add = next;
        fused_.insert(next);
        next = only_reader(next->output());
      } else {
        refuse(*next, why);
      }
    }
    finish(chain, next);
  }

  // An add that no layer could take: worth it only between tensors that are quantized anyway.
  void visit_add(Node* node) {
    if (!wants("add") || reported_.contains(node)) return;
    if (skips(*node)) return refuse(*node, "the recipe skips it");
    const std::string obstacle = add_obstacle(*node);
    if (!obstacle.empty()) return refuse(*node, obstacle);
    for (const Argument& operand : {node->args[0], node->args[1]}) {
      if (!results_.contains(source(operand.value))) {
        return refuse(*node, "operand '" + operand.value->name + "' is no result of a quantized op");
      }
    }
    fused_.insert(node);
    finish({node, nullptr, nullptr}, only_reader(node->output()));
  }

  // Its result is quantized whoever reads it: the bounds are the target's.
  void visit_fixed(Node* node) {
    if (!wants(op_name(*node).op.c_str())) return;
    if (skips(*node)) return refuse(*node, "the recipe skips it");
    if (!results_.contains(source(node->args[0].value))) {
      return refuse(*node, "operand '" + node->args[0].value->name + "' is no result of a quantized op");
    }
    fused_.insert(node);
    results_.insert(node->output());
    placement_.chains.push_back({node, nullptr, nullptr});
  }

  // Quantized only if a quantized op reads its result in the end; see need().
  void visit_cat(Node* node) {
    if (skips(*node)) return refuse(*node, "the recipe skips it");
    const std::string obstacle = cat_obstacle(*node);
    if (!obstacle.empty()) return refuse(*node, obstacle);
    for (const Argument& operand : node->args[0].items) {
      if (!results_.contains(source(operand.value))) {
        return refuse(*node, "operand '" + operand.value->name + "' is no result of a quantized op");
      }
    }
    cats_.insert(node);
    results_.insert(node->output());
  }

  void finish(Chain chain, Node* next) {
    if (next && is_activation(*next)) {
      chain.activation = next;
      fused_.insert(next);
    }
    results_.insert(chain.result());
    placement_.chains.push_back(chain);
  }

  // A relu behind a value that has other readers too works on that value's codes.
  bool shares(const Value* value) const {
    const Node& node = *value->producer;
    if (node.kind() != Node::Kind::call || node.args.empty() || !node.args[0].is_value() ||
        fused_.contains(&node)) {
      return false;
    }
    if (keeps_parameters(node)) return !joins_heads(node);
    return (node.is("aten::relu") || moves_channels(node)) && results_.contains(source(node.args[0].value));
  }
  // The value whose parameters this one would have.
  Value* source(Value* value) const {
    while (shares(value)) value = value->producer->args[0].value;
    return value;
  }

  void need(Value* value) {
    if (!needed_.insert(value).second) return;
    if (!shares(value)) {
      placement_.observed.push_back(value);
      if (cats_.contains(value->producer)) need_operands(*value->producer, value);
      return;
    }
    Value* input = value->producer->args[0].value;
    need(input);
    placement_.sharing.emplace_back(value, input);
    kept_.insert(value->producer);
  }

  // What only the cat reads takes the parameters of its result, so that the cat copies codes; the rest keeps
  // its own.
  void need_operands(Node& cat, Value* origin) {
    kept_.insert(&cat);
    for (const Argument& operand : cat.args[0].items) {
      Value* value = operand.value;
      if (!results_.contains(value) || only_reader(value) != &cat) {
        need(value);
        continue;
      }
      needed_.insert(value);
      placement_.sharing.emplace_back(value, origin);
      if (cats_.contains(value->producer)) need_operands(*value->producer, origin);
    }
  }

  void sort_sharing() {
    std::unordered_map<const Node*, int> order;
    for (const auto& node : graph_.nodes()) order.emplace(node.get(), static_cast<int>(order.size()));
    const auto place_of = [&](const Value* value) {
      return std::pair(order.at(value->producer), value->index);
    };
    const auto earlier = [&](const Value* a, const Value* b) { return place_of(a) < place_of(b); };
    std::sort(placement_.observed.begin(), placement_.observed.end(), earlier);
    std::sort(placement_.sharing.begin(), placement_.sharing.end(),
              [&](const auto& a, const auto& b) { return earlier(a.first, b.first); });
  }

  void report_rest() {
    for (const auto& node : graph_.nodes()) {
      const Node* one = node.get();
      if (one->kind() != Node::Kind::call || fused_.contains(one) || kept_.contains(one) ||
          reported_.contains(one))
        continue;
      refuse(*node, keeps_parameters(*node) || moves_channels(*node) || cats_.contains(node.get())
                        ? "no quantized op reads its result"
                    : is_activation(*node) ? "it follows no quantized op"
                    : is_recurrent(*node)  ? "recurrent layers are quantized dynamically only"
                                           : "it has no quantized form");
    }
  }

  const Graph& graph_;
  const Recipe& recipe_;
  Placement placement_;
  std::unordered_set<const Node*> fused_;     // in a chain
  std::unordered_set<const Node*> kept_;      // quantized, with parameters of others or as a cat
  std::unordered_set<const Node*> reported_;  // refused with a reason
  std::unordered_set<const Node*> cats_;      // whose operands are all results
  std::unordered_set<const Value*> results_;  // of chains and cats
  std::unordered_set<const Value*> needed_;
};

}  // namespace

Value* Chain::result() const {
  return (activation ? activation : add ? add : op)->output();
}

std::string Chain::describe() const {
  std::string text = quant::describe(*op);
  if (add) text += " + add";
  if (activation) text += activation->is("aten::relu") ? " + relu" : " + relu6";
  return text;
}

std::string describe(const Node& node) {
  const bool layer = has_weight(node) || is_recurrent(node);
  return layer && !node.scope.empty() ? node.scope : node.name();
}

bool is_recurrent(const Node& node) {
  return node.is("aten::lstm") || node.is("aten::gru");
}

OpName op_name(const Node& node) {
  const bool is_call = node.kind() == Node::Kind::call;
  const std::string target(is_call ? node.op() : "input");
  const size_t scope = target.find("::");
  return {.op = scope == std::string::npos ? target : target.substr(scope + 2),
          .module = node.scope,
          .value = node.name()};
}

const Node& producer_of(const Value& value, const Placement& placement) {
  for (const Chain& chain : placement.chains) {
    if (chain.result() == &value) return *chain.op;
  }
  return *value.producer;
}

bool has_weight(const Node& node) {
  return is_any(node, {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::linear"});
}

std::string observer_name(const std::string& value) {
  std::string name = "observer_" + value;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

Node* first_reader_place(const Graph& graph, const Value* value) {
  const auto& nodes = graph.nodes();
  const auto is_producer = [&](const auto& node) { return node.get() == value->producer; };
  const auto stands_first = [](const auto& node) {
    return node->kind() == Node::Kind::input || node->kind() == Node::Kind::attribute;
  };
  auto place = std::find_if(nodes.begin(), nodes.end(), is_producer);
  if (place != nodes.end()) ++place;
  return std::find_if_not(place, nodes.end(), stands_first)->get();
}

Placement place(const Graph& graph, const Recipe& recipe) {
  return Placer(graph, recipe).run();
}

}  // namespace ulp::quant
