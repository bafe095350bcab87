#include "ulp/graph/capture/capture.h"

#include <torch/nn/module.h>

#include "ulp/graph/capture/capture_subject.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {

namespace {

void add_tensors(std::vector<std::pair<std::string, Attribute>>& attributes, const std::string& path,
                 const torch::nn::Module& module) {
  std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& entry : module.named_parameters(/*recurse=*/false)) {
    attributes.emplace_back(prefix + entry.key(), Attribute{Attribute::Kind::parameter, entry.value()});
  }
  for (const auto& entry : module.named_buffers(/*recurse=*/false)) {
    attributes.emplace_back(prefix + entry.key(), Attribute{Attribute::Kind::buffer, entry.value()});
  }
}

/// The module's own flag alone; train() would switch its submodules too.
void set_mode(torch::nn::Module& module, bool training) {
  if (module.is_training() != training) module.train(training);
}

}  // namespace

std::shared_ptr<GraphModule> capture(torch::nn::Module& root, const Forward& forward,
                                     const std::vector<at::Tensor>& examples, const CaptureOptions& options) {
  Subject subject;
  subject.forward = forward;
  subject.was_training = root.is_training();
  std::vector<std::pair<torch::nn::Module*, bool>> modes{{&root, root.is_training()}};
  add_tensors(subject.attributes, "", root);
  auto submodules = root.named_modules("", /*include_self=*/false);
  for (const auto& entry : submodules) {
    add_tensors(subject.attributes, entry.key(), *entry.value());
    subject.modules.emplace_back(entry.key(), entry.value()->name());
    modes.emplace_back(entry.value().get(), entry.value()->is_training());
  }
  subject.train = [&root](bool on) { root.train(on); };
  // Parents come before their children, so what a parent's train() does to a child is undone after it.
  subject.restore_mode = [&modes] {
    for (auto& [module, training] : modes) set_mode(*module, training);
  };
  return capture_subject(subject, examples, options);
}

}  // namespace ulp::graph
