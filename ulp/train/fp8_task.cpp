#include "ulp/train/fp8_task.h"

#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/train/captured_task.h"

namespace ulp::train {

Task fp8_task(Task task, const amp::Fp8Recipe& recipe, graph::PassReport* report) {
  if (amp::has_fp8_layers(*task.model)) return task;
  return captured_task(std::move(task), "train.fp8_task",
                       [&](const auto& captured) { return amp::to_fp8(captured, recipe, report); });
}

}  // namespace ulp::train
