#include <algorithm>

#include "ulp/app/quantize/quantize.h"
#include "ulp/base/error.h"
#include "ulp/graph/module_copy.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/train/learning.h"

namespace ulp::app {

namespace {

/// What the trainer works on: the model, or the model as a learner of what it was.
train::Task make_task(const std::shared_ptr<quant::QatModule>& module, const graph::GraphModule& before,
                      const FineTuning& training, const SplitData& data,
                      std::vector<prune::ParameterMask> masks) {
  const train::TrainOptions& options = training.options;
  auto batches = data.stream(train::StreamOptions::training(options.batch, options.seed, options.augment));
  if (const auto learner = taught_by(before, module, training, *batches)) {
    for (prune::ParameterMask& mask : masks) mask.parameter = "student." + mask.parameter;
    train::Task task = train::learning_task(learner, std::move(batches));
    task.masks = std::move(masks);
    return task;
  }
  return {.model = module,
          .forward = [module](const train::TaskBatch& batch) { return module->forward(batch.inputs); },
          .batches = std::move(batches),
          .masks = std::move(masks)};
}

void run_training(quant::QatModule& module, const quant::QatRecipe& recipe, const FineTuning& training,
                  train::Task task, const OnStep& on_step, const train::Checkpointing& saving) {
  task.description = recipe.to_json();
  for (const std::string& loss : training.loss) task.description += '\n' + loss;
  train::Trainer trainer(std::move(task), training.options);
  const quant::QatSchedule schedule = recipe.schedule(trainer.total_steps());
  train::resume_from(trainer, saving);
  // A run that was resumed at its end has the switches of its last step.
  schedule.apply(module, std::min(trainer.next_step(), trainer.total_steps() - 1));
  train::run_to_end(trainer, saving, [&](const train::StepInfo& info) {
    if (on_step) on_step(info, trainer.total_steps());
    if (!trainer.done()) schedule.apply(module, trainer.next_step());
  });
}

}  // namespace

QuantizedModel quantize_qat(const std::shared_ptr<graph::GraphModule>& captured,
                            const quant::QatRecipe& recipe, const SplitData& data, const FineTuning& training,
                            const OnStep& on_step, const train::Checkpointing& saving) {
  training.validate();
  QuantizedModel result;
  // Training changes the parameters of what was captured.
  const auto before = training.loss.empty() ? captured : graph::copy_of(*captured);
  const quant::Train steps = [&](quant::QatModule& module) {
    const auto shared = std::static_pointer_cast<quant::QatModule>(module.shared_from_this());
    train::Task task = make_task(shared, *before, training, data, prune::masks(captured->graph()));
    run_training(module, recipe, training, std::move(task), on_step, saving);
  };
  result.graph = quant::quantize(captured, recipe, steps, &result.report);
  return result;
}

}  // namespace ulp::app
