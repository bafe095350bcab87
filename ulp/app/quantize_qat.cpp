#include "ulp/app/quantize.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

void run_training(quant::QatModule& module, const quant::QatRecipe& recipe, const io::ImageDataset& data,
                  const train::TrainOptions& options, const OnStep& on_step) {
  train::Task task{
      .model = module.shared_from_this(),
      .forward = [&module](const train::TaskBatch& batch) { return module.forward(batch.inputs); },
      .batches = train::image_stream(
          data, train::StreamOptions::training(options.batch, options.seed, options.augment))};
  train::Trainer trainer(std::move(task), options);
  const quant::QatSchedule schedule = recipe.schedule(trainer.total_steps());
  while (!trainer.done()) {
    check_interrupted();
    schedule.apply(module, trainer.next_step());
    const train::StepInfo info = trainer.step();
    if (on_step) on_step(info, trainer.total_steps());
  }
}

}  // namespace

void QatTraining::visit_fields(FieldVisitor& visit) {
  visit({"epochs", "Passes over the training data", 1}, options.epochs);
  visit({"max_steps", "End after this many steps (0: all epochs)", 0}, options.max_steps);
  visit({"batch", "Images a step", 1}, options.batch);
  visit({"optimizer", "sgd (Nesterov), adam or adamw"}, options.optimizer);
  // Rate and decay are written as they are used; what the optimizer chooses by itself stays its choice.
  double rate = options.peak_rate(), decay = options.decay();
  visit({.name = "learning_rate",
         .help = "Peak of the learning rate",
         .min = 0,
         .above_min = true,
         .flag = "lr"},
        rate);
  if (rate != options.peak_rate()) options.learning_rate = rate;
  visit({"momentum", "Nesterov momentum", 0, 1, false, true}, options.momentum);
  visit({"weight_decay", "L2 penalty (adamw: decoupled)", 0}, decay);
  if (decay != options.decay()) options.weight_decay = decay;
  visit({"schedule", "triangle, constant, constant_with_warmup, cosine, polynomial or one_cycle"},
        options.schedule);
  visit({"warmup", "Share of the steps in which the rate rises", 0, 1, false, true}, options.warmup);
  visit({"seed", "Seed of order and augmentation"}, options.seed);
  visit({"augment", "Random horizontal flips"}, options.augment);
  visit({"precision", "Arithmetic besides the rounding"}, options.precision);
}

void QatTraining::validate() const {
  options.validate();
  if (options.resolved_precision().parameter_dtype) {
    fail("app.QatTraining", "expected a precision with fp32 parameters, got ", options.precision);
  }
}

QuantizedModel quantize_qat(const std::shared_ptr<graph::GraphModule>& captured,
                            const quant::QatRecipe& recipe, const io::ImageDataset& data,
                            const QatTraining& training, const OnStep& on_step) {
  training.validate();
  QuantizedModel result;
  const quant::Train steps = [&](quant::QatModule& module) {
    run_training(module, recipe, data, training.options, on_step);
  };
  result.graph = quant::quantize(captured, recipe, steps, &result.report);
  return result;
}

}  // namespace ulp::app
