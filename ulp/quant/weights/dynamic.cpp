#include "ulp/quant/weights/dynamic.h"

#include <torch/utils.h>

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/base/recipe_file.h"
#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/static/annotation.h"
#include "ulp/quant/weights/layer_rewrite.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kQuantizeDynamicWhere = "quant.quantize_dynamic";
constexpr int kDynamicRecipeVersion = 1;
constexpr std::array<const char*, 3> kLayers = {"linear", "lstm", "gru"};

/// Why a weight cannot become codes; empty: it can.
std::string obstacle(const Graph& graph, const Argument& argument) {
  const at::Tensor weight = argument.is_value() ? graph.attribute_tensor(argument.value) : at::Tensor();
  if (!weight.defined()) return "a weight is computed";
  if (weight.dim() == 2 && weight.size(1) > kernels::kMaxDynamicFeatures) {
    return "more than " + std::to_string(kernels::kMaxDynamicFeatures) + " input features";
  }
  return "";
}

/// Why a layer stays in float; empty: it does not.
std::string refusal(const Graph& graph, const Node& layer) {
  if (!is_recurrent(layer)) return obstacle(graph, layer.arg("weight"));
  if (layer.target() != "aten::lstm.input" && layer.target() != "aten::gru.input") {
    return "its sequences are packed";
  }
  const Argument& params = layer.arg("params");
  const auto number = [&](const char* name) { return layer.arg(name).literal.toInt(); };
  const auto flag = [&](const char* name) { return layer.arg(name).literal.toBool(); };
  const int64_t expected =
      number("num_layers") * (flag("bidirectional") ? 2 : 1) * (flag("has_biases") ? 4 : 2);
  if (static_cast<int64_t>(params.items.size()) != expected) return "it has projections";
  for (const Argument& param : params.items) {
    if (std::string why = obstacle(graph, param); !why.empty()) return why;
  }
  return "";
}

struct Codes {
  Value *codes, *scale;
};

/// Stores a weight's codes and scales beside it, once for all layers that share it.
Codes store_codes(Graph& graph, const Value* weight) {
  const at::NoGradGuard no_grad;
  const std::string name = weight->producer->target();
  if (graph.find_attribute(name + ".int8") == nullptr) {
    const auto observer = make_observer(Recipe::x86_int8().weight, name);
    const at::Tensor values = graph.attribute_tensor(weight).detach();
    observer->forward(values);
    if (observer->nan_count() + observer->inf_count() > 0) {
      fail(kQuantizeDynamicWhere, "expected finite weights, got ", observer->nan_count(), " NaN and ",
           observer->inf_count(), " infinite values in '", name, "'");
    }
    const QParams params = observer->qparams();
    graph.set_attribute(name + ".int8", {Attribute::Kind::buffer, quantize(values, params)});
    graph.set_attribute(name + ".scale", {Attribute::Kind::buffer, params.scale});
  }
  return {graph.attribute(name + ".int8"), graph.attribute(name + ".scale")};
}

void quantize_linear(Graph& graph, Node* layer, bool per_tensor) {
  const Codes weight = store_codes(graph, layer->arg("weight").value);
  const Argument x = layer->arg("input"), bias = layer->arg("bias");
  graph.retarget(layer, "ulp::linear_dynamic",
                 {x, weight.codes, weight.scale, bias, c10::IValue(per_tensor)});
}

void quantize_recurrent(Graph& graph, Node* layer, bool per_tensor) {
  std::vector<Argument> params;
  for (const Argument& param : layer->arg("params").items) {
    // Two weights, then two biases, for each layer and direction.
    if (graph.attribute_tensor(param.value).dim() == 2) {
      const Codes weight = store_codes(graph, param.value);
      params.insert(params.end(), {weight.codes, weight.scale});
    } else {
      params.push_back(param);
    }
  }
  const std::vector<Argument> args = {layer->arg("input"),       layer->arg("hx"),
                                      Argument::list(params),    layer->arg("has_biases"),
                                      layer->arg("num_layers"),  layer->arg("bidirectional"),
                                      layer->arg("batch_first"), c10::IValue(per_tensor)};
  graph.retarget(layer, layer->is("aten::lstm") ? "ulp::lstm_dynamic" : "ulp::gru_dynamic", args);
}

}  // namespace

void DynamicRecipe::visit_fields(FieldVisitor& visit) {
  visit({"per_tensor", "One scale for all rows of an activation instead of one a row"}, per_tensor);
  visit({"ops", "Layers that are quantized"}, ops);
  visit({"skip_modules", "Module paths left in float; '*' matches any run of characters"}, skip_modules);
}

void DynamicRecipe::validate() const {
  for (const std::string& op : ops) {
    if (std::ranges::find(kLayers, op) == kLayers.end()) {
      fail("quant.DynamicRecipe", "expected ops of ", one_of(kLayers), ", got '", op, "'");
    }
  }
}

std::string DynamicRecipe::to_json() const {
  return write_recipe(*this, kDynamicRecipeVersion);
}

DynamicRecipe DynamicRecipe::from_json(const std::string& text) {
  DynamicRecipe recipe;
  read_recipe(text, recipe, kDynamicRecipeVersion);
  return recipe;
}

DynamicRecipe dynamic_recipe(const Recipe& recipe) {
  Recipe plain = Recipe::x86_int8();
  plain.skip_modules = recipe.skip_modules;
  Recipe before = plain;  // as it was saved before attention was among its ops
  std::erase(before.ops, "scaled_dot_product_attention");
  if (!(recipe == plain || recipe == before)) {
    fail("quant.DynamicRecipe",
         "expected a recipe of skip_modules alone for the mode dynamic, got other fields");
  }
  return {.skip_modules = recipe.skip_modules};
}

std::shared_ptr<graph::GraphModule> quantize_dynamic(const std::shared_ptr<graph::GraphModule>& captured,
                                                     const DynamicRecipe& recipe, graph::PassReport* report) {
  recipe.validate();
  std::vector<std::string> ops;
  for (const std::string& op : recipe.ops) ops.push_back("aten::" + op);
  return rewrite_layers(captured,
                        {.where = kQuantizeDynamicWhere,
                         .pass = "quantize_dynamic",
                         .wanted = "linear or recurrent layer",
                         .done = "quantizes its input as it runs",
                         .ops = ops,
                         .skip_modules = recipe.skip_modules,
                         .refusal = refusal,
                         .rewrite =
                             [&](Graph& graph, Node* layer) {
                               (is_recurrent(*layer) ? quantize_recurrent : quantize_linear)(
                                   graph, layer, recipe.per_tensor);
                             }},
                        report);
}

}  // namespace ulp::quant
