#include "ulp/quant/qat/qat.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/binary/write_signs.h"
#include "ulp/quant/qat/qat_parts.h"
#include "ulp/quant/static/convert_graph.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {

using graph::Attribute;
using graph::Graph;

QatModule::QatModule(std::unique_ptr<QatParts> parts, std::shared_ptr<Graph> graph)
    : GraphModule(std::move(graph)), parts_(std::move(parts)) {}
QatModule::~QatModule() = default;

void QatModule::set_observers_enabled(bool enabled) {
  parts_->state->observers_enabled = enabled;
}
bool QatModule::observers_enabled() const {
  return parts_->state->observers_enabled;
}
void QatModule::set_fake_quant_enabled(bool enabled) {
  parts_->state->fake_quant_enabled = enabled;
}
bool QatModule::fake_quant_enabled() const {
  return parts_->state->fake_quant_enabled;
}
void QatModule::freeze_batch_norm(bool frozen) {
  parts_->state->batch_norm_frozen = frozen;
}
bool QatModule::batch_norm_frozen() const {
  return parts_->state->batch_norm_frozen;
}
void QatModule::set_binary_weights(bool binary) {
  parts_->state->binary_weights = binary;
}
bool QatModule::binary_weights() const {
  return parts_->state->binary_weights;
}
const Recipe& QatModule::recipe() const {
  return parts_->recipe;
}
const graph::PassReport& QatModule::report() const {
  return parts_->report;
}

void QatSchedule::apply(QatModule& module, int64_t now) const {
  if (freeze_observers_at == 0) {
    fail("quant.QatSchedule", "expected freeze_observers_at after the first step, got 0");
  }
  const auto reached = [&](int64_t at) { return at >= 0 && now >= at; };
  module.set_fake_quant_enabled(now >= fake_quantize_from);
  module.set_observers_enabled(!reached(freeze_observers_at));
  module.freeze_batch_norm(reached(freeze_batch_norm_at));
  module.set_binary_weights(now >= binary_weights_from);
}

namespace {

/// A binary network without integers: as it trained, its batch norms by themselves, so that not a bit changes.
std::shared_ptr<graph::GraphModule> convert_binary(const Graph& source) {
  const std::shared_ptr<Graph> graph = source.clone();
  graph::canonicalize(*graph);
  graph::strip_training(*graph);
  write_signs(*graph);
  auto converted = std::make_shared<graph::GraphModule>(graph);
  converted->eval();
  return converted;
}

}  // namespace

std::shared_ptr<graph::GraphModule> convert_qat(const std::shared_ptr<QatModule>& module,
                                                graph::PassReport* report) {
  if (!module) fail("quant.convert_qat", "expected a model from prepare_qat, got null");
  const at::NoGradGuard no_grad;
  const QatParts& parts = *module->parts_;
  const bool binary = parts.recipe.backend == Backend::binary;
  const InferenceForm form = inference_form(*parts.source, parts.recipe, Purpose::training);
  if (binary && form.placement.chains.empty()) {
    if (report) *report = parts.report;
    return convert_binary(*parts.source);
  }
  KnownQParams known;
  known.untrained = form.untrained;
  graph::PassReport result = parts.report;
  for (const auto& [value, quantizer] : parts.activations) {
    known.values[value] = quantizer->qparams();
    const std::string remark = quantizer->remark();
    if (!remark.empty()) result.near_misses.push_back(remark);
  }
  for (const Chain& chain : form.placement.chains) {
    if (!has_weight(*chain.op)) continue;
    const graph::Node& node = *chain.op;
    const QatLayer& layer = *parts.layers.at(node.name());
    known.weights[node.name()] = layer.weight_qparams();
    // The layer's own folding, in the arithmetic of its forward pass: the last bit decides about a code.
    const auto set = [&](const char* argument, const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      form.graph->set_attribute(node.arg(argument).value->producer->target(),
                                {Attribute::Kind::parameter, tensor.detach().clone()});
    };
    set("weight", layer.folded_weight());
    set("bias", layer.folded_bias());
  }
  auto converted = convert_graph(form.graph, parts.recipe, known, result);
  if (binary) {
    write_signs(converted->graph());
    converted->recompile();
  }
  if (report) *report = std::move(result);
  return converted;
}

}  // namespace ulp::quant
