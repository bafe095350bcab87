#include "ulp/lora/merge_lora.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/quant/weights/quantized_weight.h"

namespace ulp::lora {

namespace {

using graph::Attribute;

const LoraLayer* layer_of(const LoraModel& model, const std::string& weight) {
  const auto found =
      std::ranges::find_if(model.layers(), [&](const LoraLayer& layer) { return layer.weight == weight; });
  return found == model.layers().end() ? nullptr : &*found;
}

/// scaling B A, [out, in], on the device of the frozen weight.
at::Tensor delta_of(const LoraModel& model, const LoraLayer& layer, at::Device device) {
  const auto whole = [&](const at::Tensor& tensor) { return tensor.detach().to(device, at::kFloat); };
  return at::mm(whole(model.b(layer)), whole(model.a(layer))).mul(model.options().scaling());
}

/// W + scaling B A, [out, in], of a layer with or without an adapter.
at::Tensor merged_matrix(const LoraModel& model, const std::string& weight, const LoraLayer* layer) {
  const auto frozen = model.base().frozen.find(weight);
  at::Tensor values;
  if (frozen != model.base().frozen.end()) {
    values = dequantize(frozen->second);
  } else {
    values = model.base().graph->find_attribute(weight)->tensor.detach();
    if (layer->transposed) values = values.t();
  }
  if (layer == nullptr) return values;
  at::Tensor merged = values + delta_of(model, *layer, values.device());
  if (!at::isfinite(merged).all().item<bool>())
    fail("lora.merge_lora", "expected finite merged weights of '", layer->path,
         "', got NaN or infinite values");
  return merged;
}

bool is_turned(const LoraModel& model, const std::string& weight, const LoraLayer* layer) {
  const auto found = model.base().transposed.find(weight);
  return found != model.base().transposed.end() ? found->second : layer->transposed;
}

}  // namespace

std::shared_ptr<graph::GraphModule> merge_lora(const LoraModel& model, graph::PassReport* report) {
  const at::NoGradGuard no_grad;
  graph::PassReport result{"merge_lora", {}, {}};
  const std::shared_ptr<graph::Graph> graph = model.base().graph->clone();
  const std::vector<std::pair<std::string, Attribute>> attributes = graph->attributes();
  for (const auto& [name, attribute] : attributes) {
    const LoraLayer* layer = layer_of(model, name);
    if (layer == nullptr && !model.base().frozen.contains(name)) continue;
    at::Tensor values = merged_matrix(model, name, layer);
    if (is_turned(model, name, layer)) values = values.t();
    values = values.contiguous();
    const bool trains = attribute.kind == Attribute::Kind::parameter;
    graph->set_attribute(name, {attribute.kind, values.set_requires_grad(trains)});
    result.changes.push_back(name +
                             (layer != nullptr ? " has its adapter merged" : " is rounded as the base was"));
  }
  auto merged = std::make_shared<graph::GraphModule>(graph, model.notes());
  merged->train(model.is_training());
  if (report != nullptr) *report = std::move(result);
  return merged;
}

std::shared_ptr<graph::GraphModule> merge_lora_quantized(const LoraModel& model,
                                                         std::vector<MergeError>* errors,
                                                         graph::PassReport* report) {
  const LoraBase format = model.options().base;
  if (format != LoraBase::int8 && format != LoraBase::int4)
    fail("lora.merge_lora_quantized", "expected a base of int8 or int4, which engines and files have, got ",
         enum_name(format), "; merge_lora() makes floats of it");
  const at::NoGradGuard no_grad;
  std::map<std::string, quant::StoredQuantizedWeight> codes;
  std::vector<MergeError> found;
  for (const auto& [name, frozen] : model.base().frozen) {
    if (frozen.format != format) continue;
    FrozenWeight own = frozen;
    if (const LoraLayer* layer = layer_of(model, name)) {
      const at::Tensor merged = merged_matrix(model, name, layer);
      own = freeze_weight(name, merged, format, model.options());
      const at::Tensor exact = merged.to(at::kDouble);
      const double norm = exact.norm().item<double>();
      const double error = (dequantize(own).to(at::kDouble) - exact).norm().item<double>();
      found.push_back({layer->path, norm > 0 ? error / norm : error});
    }
    codes[name] = {.codes = own.parts[0], .scale = own.parts[1], .columns = own.columns};
  }
  auto coded = quant::read_quantized_weights(merge_lora(model), codes, report);
  if (errors != nullptr) *errors = std::move(found);
  return coded;
}

}  // namespace ulp::lora
