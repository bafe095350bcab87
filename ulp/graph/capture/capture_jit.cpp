#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <map>
#include <string>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture_subject.h"
#include "ulp/graph/graph_module.h"

namespace ulp {

namespace {

void add_tensors(std::vector<std::pair<std::string, graph::Attribute>>& attributes, const std::string& path,
                 const torch::jit::Module& module) {
  using Kind = graph::Attribute::Kind;
  std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& entry : module.named_parameters(/*recurse=*/false))
    attributes.emplace_back(prefix + entry.name, graph::Attribute{Kind::parameter, entry.value});
  for (const auto& entry : module.named_buffers(/*recurse=*/false))
    attributes.emplace_back(prefix + entry.name, graph::Attribute{Kind::buffer, entry.value});
}

/// Dictionaries of tensors become pairs (name, value), as the maps of C++ models do.
c10::IValue with_pairs(const c10::IValue& value) {
  if (value.isGenericDict()) {
    std::map<std::string, c10::IValue> sorted;
    for (const auto& entry : value.toGenericDict()) {
      if (!entry.key().isString())
        fail("graph.capture", "expected words as the keys of a dictionary that forward returns, got ",
             entry.key().tagKind());
      sorted.emplace(entry.key().toStringRef(), with_pairs(entry.value()));
    }
    return graph::pack_names({sorted.begin(), sorted.end()});
  }
  if (!value.isTuple()) return value;
  std::vector<c10::IValue> items;
  for (const c10::IValue& item : value.toTupleRef().elements()) items.push_back(with_pairs(item));
  return c10::ivalue::Tuple::create(std::move(items));
}

}  // namespace

std::shared_ptr<graph::GraphModule> capture(torch::jit::Module& model,
                                            const std::vector<at::Tensor>& examples,
                                            const graph::CaptureOptions& options) {
  graph::Subject subject;
  subject.scripted = true;
  std::vector<std::pair<torch::jit::Module, bool>> modes;
  for (const auto& entry : model.named_modules()) {
    add_tensors(subject.attributes, entry.name, entry.value);
    if (entry.value.hasattr("training"))
      modes.emplace_back(entry.value, entry.value.attr("training").toBool());
  }
  subject.was_training = !modes.empty() && modes.front().second;
  subject.train = [&model](bool on) { model.train(on); };
  subject.restore_mode = [&modes] {
    for (auto& [module, training] : modes) module.setattr("training", training);
  };
  subject.forward = [&model](const std::vector<at::Tensor>& inputs) {
    // The optimizing executor would specialise on these shapes and run fused groups instead of plain calls.
    torch::jit::GraphOptimizerEnabledGuard plain(false);
    return with_pairs(model.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end())));
  };
  return graph::capture_subject(subject, examples, options);
}

}  // namespace ulp
