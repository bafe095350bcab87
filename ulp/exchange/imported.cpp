#include "ulp/exchange/imported.h"

#include "ulp/graph/graph_module.h"

namespace ulp::exchange {

namespace {

/// A module that holds the tensors and has a mode.
std::shared_ptr<graph::GraphModule> holder_of(const Attributes& attributes) {
  auto graph = std::make_shared<graph::Graph>();
  for (const auto& [name, attribute] : attributes) graph->set_attribute(name, attribute);
  graph->set_output(graph::Argument::tuple({}));
  return std::make_shared<graph::GraphModule>(graph);
}

}  // namespace

std::string with_file(const char* where, const std::filesystem::path& name, const std::string& text,
                      std::string_view reason) {
  const std::string quoted = "'" + name.string();
  for (const char end : {'\'', ':'}) {
    if (text.find(quoted + end) != std::string::npos) return text;
  }
  return message(where, quoted, "': ", reason.substr(0, reason.find('\n')));
}

std::shared_ptr<graph::GraphModule> captured_run(const Attributes& attributes, const ModelRun& run,
                                                 const std::vector<at::Tensor>& examples,
                                                 const graph::CaptureOptions& options) {
  const std::shared_ptr<graph::GraphModule> holder = holder_of(attributes);
  holder->eval();
  const auto forward = [&](const std::vector<at::Tensor>& inputs) {
    return run(inputs, holder->is_training());
  };
  graph::CaptureOptions asked = options;
  asked.far_sizes = false;  // files are asked by what they compute, at more sizes
  std::shared_ptr<graph::GraphModule> module = graph::capture(*holder, forward, examples, asked);
  module->graph().remove_dead(/*attributes=*/true);
  module->recompile();
  module->eval();
  return module;
}

}  // namespace ulp::exchange
