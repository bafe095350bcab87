#include <cmath>

#include "ulp/app/quantize.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"

namespace ulp::app {

quant::QatSchedule QatTraining::schedule(int64_t total_steps) const {
  const auto at = [&](double share) {
    const auto step = static_cast<int64_t>(std::ceil(share * static_cast<double>(total_steps)));
    return step >= total_steps ? int64_t{-1} : std::max<int64_t>(step, 1);
  };
  return {.freeze_observers_at = at(freeze_observers_after),
          .freeze_batch_norm_at = at(freeze_batch_norm_after)};
}

void QatTraining::validate() const {
  const auto share = [](const char* field, double value) {
    if (!(value >= 0 && value <= 1)) fail("train.QatTraining", "expected ", field, " in [0, 1], got ", value);
  };
  train.validate();
  if (train.resolved_precision().parameter_dtype) {
    fail("train.QatTraining", "expected a precision with fp32 parameters, got ", train.precision);
  }
  share("freeze_batch_norm_after", freeze_batch_norm_after);
  share("freeze_observers_after", freeze_observers_after);
}

QuantizedModel quantize_qat(const std::shared_ptr<graph::GraphModule>& captured, const quant::Recipe& recipe,
                            const io::ImageDataset& data, const QatTraining& training,
                            const OnStep& on_step) {
  training.validate();
  const auto module = quant::prepare_qat(captured, recipe, training.options);
  const train::TrainOptions& options = training.train;
  train::Task task{
      .model = module,
      .forward = [module](const train::TaskBatch& batch) { return module->forward(batch.inputs); },
      .batches = train::image_stream(
          data, train::StreamOptions::training(options.batch, options.seed, options.augment))};
  train::Trainer trainer(std::move(task), options);
  const quant::QatSchedule schedule = training.schedule(trainer.total_steps());
  while (!trainer.done()) {
    check_interrupted();
    schedule.apply(*module, trainer.next_step());
    const train::StepInfo info = trainer.step();
    if (on_step) on_step(info, trainer.total_steps());
  }
  module->eval();
  QuantizedModel result;
  result.graph = quant::convert_qat(module, &result.report);
  return result;
}

}  // namespace ulp::app
