#include <algorithm>

#include "ulp/app/quantize.h"
#include "ulp/base/error.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

void run_training(quant::QatModule& module, const quant::QatRecipe& recipe, const io::ImageDataset& data,
                  const train::TrainOptions& options, std::vector<prune::ParameterMask> masks,
                  const OnStep& on_step, const train::Checkpointing& saving) {
  train::Task task{
      .model = module.shared_from_this(),
      .forward = [&module](const train::TaskBatch& batch) { return module.forward(batch.inputs); },
      .batches = train::image_stream(
          data, train::StreamOptions::training(options.batch, options.seed, options.augment)),
      .masks = std::move(masks),
      .description = recipe.to_json()};
  train::Trainer trainer(std::move(task), options);
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
                            const quant::QatRecipe& recipe, const io::ImageDataset& data,
                            const FineTuning& training, const OnStep& on_step,
                            const train::Checkpointing& saving) {
  training.validate();
  QuantizedModel result;
  const quant::Train steps = [&](quant::QatModule& module) {
    run_training(module, recipe, data, training.options, prune::masks(captured->graph()), on_step, saving);
  };
  result.graph = quant::quantize(captured, recipe, steps, &result.report);
  return result;
}

}  // namespace ulp::app
