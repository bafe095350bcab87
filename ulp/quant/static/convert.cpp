#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/static/annotation.h"
#include "ulp/quant/static/bias_quantization.h"
#include "ulp/quant/static/convert_graph.h"
#include "ulp/quant/static/quantized_average.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

// Where a value's parameters are kept in the graph, and what they are.
struct Quantized {
  QParams params;
  Value *scale = nullptr, *zero_point = nullptr;
};

Argument dtype_argument(at::ScalarType dtype) {
  return c10::IValue(static_cast<int64_t>(dtype));
}

class Converter {
 public:
  Converter(Graph& graph, const Recipe& recipe, const KnownQParams& known, graph::PassReport& report)
      : graph_(graph), recipe_(recipe), known_(known), report_(report) {}

  void run() {
    observers_ = take_observers(graph_);
    const Annotation placement = annotate(graph_, recipe_, known_.untrained);
    for (Value* value : placement.observed) quantized_[value] = store("quant." + value->name, find(*value));
    for (const auto& [value, origin] : placement.sharing) quantized_[value] = quantized_.at(origin);
    for (const Chain& chain : placement.chains) {
      if (has_weight(*chain.op)) quantize_layer(*chain.op);
    }
    for (Value* value : placement.observed) insert_pair(value);
    for (const auto& [value, origin] : placement.sharing) insert_pair(value);
    graph_.remove_dead(/*attributes=*/true);
  }

 private:
  QParams find(const Value& value) const {
    if (const auto known = known_.values.find(value.name); known != known_.values.end()) return known->second;
    const auto found = observers_.find(observer_name(value.name));
    if (found == observers_.end()) {
      fail("quant.convert", "expected the graph as prepare() made it, got no observer for '", value.name,
           "'");
    }
    const Observer& observer = *found->second;
    if (observer.nan_count() > 0) {
      fail("quant.convert", "expected finite calibration data, got ", observer.nan_count(),
           " NaN values at '", observer.label(), "'");
    }
    if (!observer.seen()) {
      fail("quant.convert", "expected every observer to have seen data, got ", observer.why_unseen(),
           " for '", observer.label(), "'");
    }
    if (observer.inf_count() > 0) {
      report_.near_misses.push_back(observer.label() + ": " + std::to_string(observer.inf_count()) +
                                    " infinite values were left out of calibration");
    }
    return observer.qparams();
  }

  Value* add_buffer(const std::string& name, const at::Tensor& tensor) {
    graph_.set_attribute(name, {Attribute::Kind::buffer, tensor});
    return graph_.attribute(name);
  }
  Quantized store(const std::string& prefix, const QParams& params) {
    return {params, add_buffer(prefix + ".scale", params.scale),
            add_buffer(prefix + ".zero_point", params.zero_point)};
  }

  void insert_pair(Value* value) {
    const Quantized& how = quantized_.at(value);
    const Scheme& scheme = how.params.scheme;
    Node* before = first_reader_place(graph_, value);
    Node* q =
        graph_.call("ulp::quantize",
                    {value, how.scale, how.zero_point, c10::IValue(int64_t{-1}), c10::IValue(scheme.qmin()),
                     c10::IValue(scheme.qmax()), dtype_argument(scheme.dtype())},
                    before, value->name + "_q");
    Node* dq =
        graph_.call("ulp::dequantize", {q->output(), how.scale, how.zero_point, c10::IValue(int64_t{-1})},
                    before, value->name + "_dq");
    q->scope = dq->scope = value->producer->scope;
    q->output()->meta = dq->output()->meta = value->meta;
    if (q->output()->meta) q->output()->meta->dtype = scheme.dtype();
    graph_.replace_uses(value, dq->output(), q);
  }

  // Replaces the layer's weight and bias by dequantized integers (rule 2 in quantize.h).
  void quantize_layer(Node& layer) {
    const at::NoGradGuard no_grad;
    const std::string weight_name = layer.arg("weight").value->producer->target();
    const at::Tensor weight = graph_.attribute_tensor(layer.arg("weight").value).detach();
    const Argument bias_argument = layer.arg("bias");
    const at::Tensor bias = bias_argument.is_none()
                                ? at::Tensor()
                                : graph_.attribute_tensor(bias_argument.value).detach().to(at::kFloat);
    const at::Tensor input_scale = quantized_.at(layer.args[0].value).params.scale;
    const auto known = known_.weights.find(layer.name());
    QParams params =
        known != known_.weights.end() ? known->second : weight_params(weight, weight_name, layer);
    if (bias.defined()) {
      if (!at::isfinite(bias).all().item<bool>()) {
        fail("quant.convert", "expected a finite bias beside '", weight_name,
             "', got NaN or infinite values");
      }
      params.scale =
          at::maximum(params.scale, smallest_weight_scale(bias, input_scale, params.scale.numel()));
    }
    layer.arg("weight") = stored_weight(weight, params, weight_name, layer);
    if (bias.defined()) {
      layer.arg("bias") =
          stored_bias(bias, input_scale * params.scale, bias_argument.value->producer->target(), layer);
    }
  }

  QParams weight_params(const at::Tensor& weight, const std::string& name, const Node& layer) const {
    const auto observer = make_observer(recipe_.weight_of(op_name(layer)), name);
    observer->forward(weight);
    if (observer->nan_count() + observer->inf_count() > 0) {
      fail("quant.convert", "expected finite weights, got ", observer->nan_count(), " NaN and ",
           observer->inf_count(), " infinite values in '", name, "'");
    }
    return observer->qparams();
  }

  Value* stored_weight(const at::Tensor& weight, const QParams& params, const std::string& name,
                       Node& layer) {
    const std::string prefix = free_prefix(name, ".int8", params.scale);
    if (!graph_.find_attribute(prefix + ".int8")) {
      add_buffer(prefix + ".int8", quantize(weight, params));
      store(prefix, params);
    }
    return dequantized(prefix, ".int8", params.axis(), layer);
  }

  Value* stored_bias(const at::Tensor& bias, const at::Tensor& scale, const std::string& name, Node& layer) {
    const at::Tensor scales = scale.expand({bias.numel()}).contiguous();
    const std::string prefix = free_prefix(name, ".int32", scales);
    if (!graph_.find_attribute(prefix + ".int32")) {
      const std::optional<at::Tensor> fitting = bias_codes(bias, scales);
      if (!fitting) {
        fail("quant.convert", "expected '", name, "' of ", graph::describe(layer),
             " to fit into int32 at the scale of its input and weight, got larger values");
      }
      const at::Tensor& codes = *fitting;
      add_buffer(prefix + ".int32", codes);
      add_buffer(prefix + ".scale", scales);
      add_buffer(prefix + ".zero_point", at::zeros_like(codes));
    }
    return dequantized(prefix, ".int32", 0, layer);
  }

  // The parameter's name if nothing is stored under it yet, or the same with these scales; else with a
  // number.
  std::string free_prefix(const std::string& name, const char* suffix, const at::Tensor& scale) const {
    std::string prefix = name;
    for (int i = 2;; ++i) {
      if (!graph_.find_attribute(prefix + suffix)) return prefix;
      if (graph_.find_attribute(prefix + ".scale")->tensor.equal(scale)) return prefix;
      prefix = name + "_" + std::to_string(i);
    }
  }

  Value* dequantized(const std::string& prefix, const char* codes, int64_t axis, Node& layer) {
    Node* node = graph_.call("ulp::dequantize",
                             {graph_.attribute(prefix + codes), graph_.attribute(prefix + ".scale"),
                              graph_.attribute(prefix + ".zero_point"), c10::IValue(axis)},
                             &layer);
    node->scope = layer.scope;
    node->output()->meta = graph_.attribute(prefix + codes)->meta;
    if (node->output()->meta) node->output()->meta->dtype = at::kFloat;
    return node->output();
  }

  Graph& graph_;
  const Recipe& recipe_;
  const KnownQParams& known_;
  graph::PassReport& report_;
  Observers observers_;
  std::unordered_map<const Value*, Quantized> quantized_;
};

}  // namespace

Observers take_observers(Graph& graph) {
  Observers observers;
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::module) nodes.push_back(node.get());
  }
  for (Node* node : nodes) {
    const auto observer = std::dynamic_pointer_cast<Observer>(graph.modules().at(node->target()));
    if (!observer) continue;
    observers[node->target()] = observer;
    graph.replace_uses(node->output(), node->args[0].value);
    graph.modules().erase(node->target());
    graph.erase(node);
  }
  return observers;
}

namespace {

std::shared_ptr<graph::GraphModule> wrapped(const std::shared_ptr<Graph>& graph) {
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  return module;
}

}  // namespace

std::shared_ptr<graph::GraphModule> convert_graph(const std::shared_ptr<Graph>& graph, const Recipe& recipe,
                                                  const KnownQParams& known, graph::PassReport& report) {
  Converter(*graph, recipe, known, report).run();
  return wrapped(graph);
}

std::shared_ptr<graph::GraphModule> convert(const std::shared_ptr<PreparedModule>& prepared,
                                            graph::PassReport* report) {
  if (!prepared) fail("quant.convert", "expected a prepared model, got null");
  graph::PassReport result = prepared->report();
  const std::shared_ptr<Graph> graph = prepared->graph().clone();
  Converter(*graph, prepared->recipe(), {}, result).run();
  const bool as_litert = prepared->recipe().backend == Backend::tflite_int8;
  average_on_codes(*graph, as_litert ? AverageRounding::half_away : AverageRounding::half_even);
  if (report) *report = std::move(result);
  return wrapped(graph);
}

}  // namespace ulp::quant
