#include "ulp/quant/static/annotation.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/backend.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

class Placer {
 public:
  Placer(const Graph& graph, const Recipe& recipe, const std::set<std::string>& untrained)
      : graph_(graph), recipe_(recipe), untrained_(untrained) {
    for (const Chain& chain : graph::find_chains(graph, policy()).chains) {
      chain.add && !sums_in_layers(recipe.backend) ? add_apart(chain) : add_chain(chain);
    }
  }

  Annotation run() {
    for (const auto& node : graph_.nodes()) visit(node.get());
    for (const Chain& chain : placement_.chains) {
      need(chain.op->args[0].value);
      if (ends_fixed(*chain.op)) need(chain.result());
      if (ends_in_integers(recipe_.backend)) need(joined(chain.result()));
      if (chain.op->is("aten::add")) need(chain.op->args[1].value);
      if (chain.add) need(chain.residual());
    }
    for (const Node* attention : attentions_) {
      for (Value* value : attention_sources(*attention)) need(value);
    }
    sort_sharing();
    for (const Chain& chain : placement_.chains)
      placement_.report.changes.push_back(chain.describe() + " quantized");
    for (const Node* attention : attentions_)
      placement_.report.changes.push_back(graph::label(*attention) + ": attention quantized");
    report_rest();
    placement_.report.pass = "quantize";
    return std::move(placement_);
  }

 private:
  void add_chain(const Chain& chain) { chains_.emplace(chain.op, chain); }
  /// The layer, whose result gets codes of its own, and the sum behind it, which takes clamps only.
  void add_apart(const Chain& chain) {
    add_chain({.op = chain.op});
    const bool clamp = chain.activation && !is_smooth_activation(chain.kind);
    add_chain(clamp ? Chain{.op = chain.add, .activation = chain.activation, .kind = chain.kind}
                    : Chain{.op = chain.add});
  }

  bool wants(const char* op) const {
    return std::find(recipe_.ops.begin(), recipe_.ops.end(), op) != recipe_.ops.end();
  }
  void refuse(const Node& node, const std::string& why) {
    placement_.report.near_misses.push_back(graph::label(node) + " (" + std::string(node.op()) +
                                            ") not quantized: " + why);
    reported_.insert(&node);
  }
  /// Why the op stays in float whatever it is; empty for nothing.
  std::string skip_reason(const Node& node) const {
    if (recipe_.skips(op_name(node))) return "the recipe skips it";
    return untrained_.contains(node.name()) ? "train mode does not call it" : "";
  }
  bool skips(const Node& node) const { return !skip_reason(node).empty(); }

  /// What the recipe lets run on integers. A curve belongs to the layer before it, unless it has codes of its
  /// own.
  graph::FusionPolicy policy() const {
    return {.is_layer = [this](const Node& node) { return has_weight(node) && layer_refusal(node).empty(); },
            .refuses_add = [this](const Node& node) { return add_refusal(node); },
            .takes_activation =
                [this](const Node& op, Activation kind) {
                  if (!is_smooth_activation(kind)) return true;
                  return fuses_activations(recipe_.backend) && has_weight(op) && !ends_fixed_by_recipe(kind);
                }};
  }
  bool ends_fixed_by_recipe(Activation kind) const {
    return (kind == Activation::sigmoid || kind == Activation::tanh) && wants(to_string(kind));
  }
  std::string layer_refusal(const Node& layer) const {
    if (!wants(op_name(layer).op.c_str())) return "the recipe leaves this op out";
    return skips(layer) ? skip_reason(layer) : layer_obstacle(graph_, layer);
  }
  std::string add_refusal(const Node& add) const {
    if (!wants("add")) return "the recipe leaves this op out";
    return skips(add) ? skip_reason(add) : add_obstacle(add);
  }

  void visit(Node* node) {
    if (has_weight(*node)) return visit_layer(node);
    if (node->is("aten::add") && !fused_.contains(node)) visit_add(node);
    if (node->is("aten::cat")) visit_cat(node);
    if (has_own_average(*node)) visit_average(node);
    if (ends_fixed(*node)) visit_fixed(node);
    if (is_code_pointwise(*node)) visit_pointwise(node);
    if (node->is("aten::scaled_dot_product_attention")) visit_attention(node);
  }

  void visit_layer(Node* node) {
    const std::string refusal = layer_refusal(*node);
    refusal.empty() ? accept(chains_.at(node)) : refuse(*node, refusal);
  }

  // An add that no layer could take: worth it only between tensors that are quantized anyway.
  void visit_add(Node* node) {
    if (!wants("add")) return;
    const std::string refusal = add_refusal(*node);
    if (!refusal.empty()) return refuse(*node, refusal);
    for (const Argument& operand : {node->args[0], node->args[1]}) {
      if (!results_.contains(source(operand.value))) {
        return refuse(*node, "operand '" + operand.value->name + "' is no result of a quantized op");
      }
    }
    accept(chains_.at(node));
  }

  // Its result is quantized whoever reads it: the bounds are the target's.
  void visit_fixed(Node* node) {
    if (!wants(op_name(*node).op.c_str())) return;
    if (skips(*node)) return refuse(*node, skip_reason(*node));
    if (!results_.contains(source(node->args[0].value))) {
      return refuse(*node, "operand '" + node->args[0].value->name + "' is no result of a quantized op");
    }
    accept({.op = node});
  }

  // Quantized only if a quantized op reads its result in the end; see need().
  void visit_cat(Node* node) {
    if (skips(*node)) return refuse(*node, skip_reason(*node));
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

  /// An average with a range of its own: it is narrower than that of what is averaged.
  bool has_own_average(const Node& node) const {
    return takes_average(node) && requantizes_averages(recipe_.backend);
  }
  // From codes to codes, as a cat; of a float the average is taken in float.
  void visit_average(Node* node) {
    if (skips(*node)) return refuse(*node, skip_reason(*node));
    if (!results_.contains(source(node->args[0].value))) {
      return refuse(*node, "operand '" + node->args[0].value->name + "' is no result of a quantized op");
    }
    averages_.insert(node);
    results_.insert(node->output());
  }

  // Its operands are quantized where layers make them; its own result is when an op that reads it is.
  void visit_attention(Node* node) {
    if (!wants(op_name(*node).op.c_str())) return refuse(*node, "the recipe leaves this op out");
    // Fields that a recipe does not name are those of x86_int8; what other backends run has float products
    // there.
    if (recipe_.backend != Backend::x86_int8) return refuse(*node, "only x86_int8 quantizes attention");
    if (skips(*node)) return refuse(*node, skip_reason(*node));
    if (const std::string obstacle = attention_obstacle(*node); !obstacle.empty())
      return refuse(*node, obstacle);
    for (const Value* value : attention_sources(*node)) {
      if (results_.contains(value)) continue;
      return refuse(*node, "operand '" + value->name + "' is no result of a quantized op");
    }
    attentions_.push_back(node);
    kept_.insert(node);
  }

  /// What the queries, keys and values are parts of.
  static std::vector<Value*> attention_sources(const Node& attention) {
    std::vector<Value*> sources;
    for (const char* name : {"query", "key", "value"}) {
      Value* value = attention.arg(name).value;
      while (value->producer->kind() == Node::Kind::call && is_view(*value->producer))
        value = value->producer->args[0].value;
      sources.push_back(value);
    }
    return sources;
  }

  /// A product of results, or a curve of one, such as the gates of squeeze and excitation: from codes to
  /// codes.
  void visit_pointwise(Node* node) {
    if (!wants("mul") || skips(*node) || fused_.contains(node) || results_.contains(node->output())) return;
    // A clamp by itself works on the codes of what it reads.
    if (graph::is_clamp(*node) && !is_inside(*node, node->args[0].value)) return;
    std::vector<Value*> sources;
    if (!gather_sources(node, *node, sources)) return;
    pointwise_.emplace(node, std::move(sources));
    results_.insert(node->output());
  }

  /// What a node and those that it alone reads are computed from, element by element; false where not all of
  /// that has codes.
  bool gather_sources(const Node* node, const Node& result, std::vector<Value*>& sources) const {
    for (const Argument& arg : node->args) {
      if (!arg.is_value()) continue;
      Value* value = arg.value;
      if (graph_.attribute_tensor(value).defined()) continue;
      const size_t before = sources.size();
      if (is_inside(result, value) && gather_sources(value->producer, result, sources)) continue;
      sources.resize(before);
      if (!results_.contains(source(value))) return false;
      sources.push_back(value);
    }
    return !sources.empty();
  }
  /// True for a value that one step computes on the way to the result: no layer makes it and nobody else
  /// reads it.
  bool is_inside(const Node& result, const Value* value) const {
    const auto &from = value->meta, &to = result.output()->meta;
    return is_code_pointwise(*value->producer) && !fused_.contains(value->producer) && from && to &&
           from->sizes == to->sizes && graph_.users(value).size() == 1;
  }

  void accept(const Chain& chain) {
    for (const Node* part : {chain.op, chain.add, chain.activation}) {
      if (part) fused_.insert(part);
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
    if (has_own_average(node) || pointwise_.contains(&node)) return false;
    if (keeps_parameters(node)) return !joins_heads(node);
    const bool is_relu = graph::activation_of(node) == Activation::relu;
    return (is_relu || moves_channels(node)) && results_.contains(source(node.args[0].value));
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
      need_sources(*value->producer, value);
      return;
    }
    Value* input = value->producer->args[0].value;
    need(input);
    placement_.sharing.emplace_back(value, input);
    kept_.insert(value->producer);
  }

  // What a result reads that stands on parameters which are its own, or those of `origin`.
  void need_sources(Node& node, Value* origin) {
    if (cats_.contains(&node)) need_operands(node, origin);
    if (const auto found = pointwise_.find(&node); found != pointwise_.end()) {
      kept_.insert(&node);
      for (Value* value : found->second) need(value);
    }
    if (!averages_.contains(&node)) return;
    kept_.insert(&node);
    need(node.args[0].value);
  }

  // What only the cat reads takes the parameters of its result, so that the cat copies codes; the rest keeps
  // its own.
  void need_operands(Node& cat, Value* origin) {
    kept_.insert(&cat);
    for (const Argument& operand : cat.args[0].items) {
      Value* value = operand.value;
      if (!results_.contains(value) || graph::only_reader(graph_, value) != &cat) {
        need(value);
        continue;
      }
      needed_.insert(value);
      placement_.sharing.emplace_back(value, origin);
      need_sources(*value->producer, origin);
    }
  }

  /// The value whose parameters this one has: what only a cat reads has those of its result.
  Value* joined(Value* value) const {
    for (const Node* reader = graph::only_reader(graph_, value); reader != nullptr && cats_.contains(reader);
         reader = graph::only_reader(graph_, value))
      value = reader->output();
    return value;
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
                    : graph::is_clamp(*node) ? "it follows no quantized op"
                    : is_recurrent(*node)    ? "recurrent layers are quantized dynamically only"
                                             : "it has no quantized form");
    }
  }

  const Graph& graph_;
  const Recipe& recipe_;
  const std::set<std::string>& untrained_;
  std::unordered_map<const Node*, Chain> chains_;  // by their ops
  Annotation placement_;
  std::unordered_set<const Node*> fused_;     // in a chain
  std::unordered_set<const Node*> kept_;      // quantized, with parameters of others or as a cat
  std::unordered_set<const Node*> reported_;  // refused with a reason
  std::unordered_set<const Node*> cats_;      // whose operands are all results
  std::vector<const Node*> attentions_;       // of results
  std::unordered_set<const Node*> averages_;  // with parameters of their own, of results
  std::unordered_map<const Node*, std::vector<Value*>> pointwise_;  // of codes, and where those are
  std::unordered_set<const Value*> results_;                        // of chains and cats
  std::unordered_set<const Value*> needed_;
};

}  // namespace

OpName op_name(const Node& node) {
  const bool is_call = node.kind() == Node::Kind::call;
  const std::string target(is_call ? node.op() : "input");
  const size_t scope = target.find("::");
  return {.op = scope == std::string::npos ? target : target.substr(scope + 2),
          .module = node.scope,
          .value = node.name()};
}

const Node& producer_of(const Value& value, const Annotation& placement) {
  for (const Chain& chain : placement.chains) {
    if (chain.result() == &value) return *chain.op;
  }
  return *value.producer;
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

Annotation annotate(const Graph& graph, const Recipe& recipe, const std::set<std::string>& untrained) {
  return Placer(graph, recipe, untrained).run();
}

}  // namespace ulp::quant
