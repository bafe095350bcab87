// What `ulp roofline` looks at: files, and reference networks by name.
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/app/roofline/roofline_parts.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::app {

namespace {

memory::RunSize size_of(const Workload& model, const RooflineOptions& options) {
  if (options.length > model.max_length)
    fail("app.roofline", "expected ",
         model.max_length > 0 ? "at most " + std::to_string(model.max_length) + " tokens"
                              : std::string("no length"),
         " for ", model.name, ", got ", options.length);
  return {options.batch, options.length > 0 ? options.length : usual_length(model)};
}

std::shared_ptr<graph::GraphModule> captured_for(const train::Task& task, const at::Tensor& example) {
  if (auto graph = std::dynamic_pointer_cast<graph::GraphModule>(task.model)) return graph;
  task.model->eval();
  const auto forward = [&](const std::vector<at::Tensor>& inputs) {
    return c10::IValue(task.forward({.inputs = inputs.at(0), .targets = {}}));
  };
  return graph::capture(*task.model, forward, {example});
}

}  // namespace

RooflineNetwork open_network(const RooflineOptions& options) {
  torch::manual_seed(0);
  ModelShape shape = options.shape;
  shape.length = std::max(shape.length, options.length);
  Workload model = find_workload(options.model, shape);
  memory::RunSize size = size_of(model, options);
  train::Task task = model.task(size);
  size.batch = 2;  // of a single one no graph knows that there may be more
  auto graph = captured_for(task, model.draw(size).inputs);
  graph->eval();
  return {.model = std::move(model), .task = std::move(task), .graph = std::move(graph)};
}

}  // namespace ulp::app
