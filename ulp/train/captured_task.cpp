#include "ulp/train/captured_task.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/text_model.h"

namespace ulp::train {

namespace {

std::shared_ptr<graph::GraphModule> captured(const Task& task, const char* where) {
  if (auto graph = std::dynamic_pointer_cast<graph::GraphModule>(task.model)) return graph;
  // Two samples, so that a batch norm has something to normalise.
  const at::Tensor inputs = example_batch(*task.batches).inputs;
  const at::Tensor example = inputs.narrow(0, 0, std::min<int64_t>(2, inputs.size(0)));
  if (const auto image = std::dynamic_pointer_cast<models::ImageModel>(task.model))
    return capture(*image, {example});
  if (const auto text = std::dynamic_pointer_cast<models::TextModel>(task.model))
    return capture(*text, {example});
  fail(where, "expected a captured model or an image or text network, got another module; capture it first");
}

}  // namespace

Task captured_task(
    Task task, const char* where,
    FunctionRef<std::shared_ptr<graph::GraphModule>(const std::shared_ptr<graph::GraphModule>&)> rewrite) {
  const auto graph = rewrite(captured(task, where));
  graph->train(task.model->is_training());
  task.model = graph;
  task.forward = [graph](const TaskBatch& batch) { return graph->forward(batch.inputs); };
  return task;
}

}  // namespace ulp::train
