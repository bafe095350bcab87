#include "ulp/train/fp8_task.h"

#include <torch/types.h>

#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/text_model.h"
#include "ulp/train/learning.h"

namespace ulp::train {

namespace {

std::shared_ptr<graph::GraphModule> captured(const Task& task) {
  if (auto graph = std::dynamic_pointer_cast<graph::GraphModule>(task.model)) return graph;
  // Two samples, so that a batch norm has something to normalise.
  const at::Tensor inputs = example_batch(*task.batches).inputs;
  const at::Tensor example = inputs.narrow(0, 0, std::min<int64_t>(2, inputs.size(0)));
  if (const auto image = std::dynamic_pointer_cast<models::ImageModel>(task.model))
    return capture(*image, {example});
  if (const auto text = std::dynamic_pointer_cast<models::TextModel>(task.model))
    return capture(*text, {example});
  fail("train.fp8_task",
       "expected a captured model or an image or text network, got another module; capture it first");
}

}  // namespace

Task fp8_task(Task task, const amp::Fp8Recipe& recipe, graph::PassReport* report) {
  if (amp::has_fp8_layers(*task.model)) return task;
  const auto graph = amp::to_fp8(captured(task), recipe, report);
  graph->train(task.model->is_training());
  task.model = graph;
  task.forward = [graph](const TaskBatch& batch) { return graph->forward(batch.inputs); };
  return task;
}

}  // namespace ulp::train
