// Training tasks by compiled steps. Internal to the room.
#pragma once

#include <memory>

#include "ulp/train/components.h"
#include "ulp/train/task.h"
#include "ulp/train/train_options.h"

namespace ulp::train {

/// The task with its model captured, as a compiled step takes it: tensors of the model that are laid out otherwise become
/// contiguous where they are. Throws ulp::Error for a task that several processes train, of which activations are planned or
/// the optimizer's state is offloaded, whose loss is another one than cross_entropy() or whose forward is not its model's.
Task compiled_task(Task task);

/// The step of such a task; throws ulp::Error as compile() does.
std::unique_ptr<StepOfTask> compile_step(const Task& task, const TrainOptions& options,
                                         amp::FusedOptimizer& optimizer);

}  // namespace ulp::train
