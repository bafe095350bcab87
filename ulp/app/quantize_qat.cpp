#include <algorithm>
#include <array>

#include "ulp/app/quantize.h"
#include "ulp/base/error.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

/// The options that a recipe file may say; the others are of a run from nothing.
constexpr std::array kOfRecipe = {"precision",     "optimizer", "epochs",       "batch",
                                  "learning_rate", "momentum",  "weight_decay", "schedule",
                                  "warmup",        "max_steps", "seed",         "augment"};

void run_training(quant::QatModule& module, const quant::QatRecipe& recipe, const io::ImageDataset& data,
                  const train::TrainOptions& options, const OnStep& on_step,
                  const train::Checkpointing& saving) {
  train::Task task{
      .model = module.shared_from_this(),
      .forward = [&module](const train::TaskBatch& batch) { return module.forward(batch.inputs); },
      .batches = train::image_stream(
          data, train::StreamOptions::training(options.batch, options.seed, options.augment)),
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

void QatTraining::visit_fields(FieldVisitor& visit) {
  visit_some(visit, kOfRecipe, [&](FieldVisitor& some) { options.visit_fields(some); });
}

void QatTraining::validate() const {
  options.validate();
  if (options.resolved_precision().parameter_dtype) {
    fail("app.QatTraining", "expected a precision with fp32 parameters, got ", options.precision);
  }
}

QuantizedModel quantize_qat(const std::shared_ptr<graph::GraphModule>& captured,
                            const quant::QatRecipe& recipe, const io::ImageDataset& data,
                            const QatTraining& training, const OnStep& on_step,
                            const train::Checkpointing& saving) {
  training.validate();
  QuantizedModel result;
  const quant::Train steps = [&](quant::QatModule& module) {
    run_training(module, recipe, data, training.options, on_step, saving);
  };
  result.graph = quant::quantize(captured, recipe, steps, &result.report);
  return result;
}

}  // namespace ulp::app
