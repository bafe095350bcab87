#include "ulp/quant/quantize_model.h"

#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/graph/capture/program.h"
#include "ulp/graph/executor.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

using graph::GraphModule;
using graph::PassReport;

namespace {

/// Runs a model as it is, and shows each batch to a function before.
class BatchWatcher final : public graph::Executor {
 public:
  void prepare(std::shared_ptr<const graph::Graph>, std::shared_ptr<const graph::Program> program) override {
    program_ = std::move(program);
  }
  c10::IValue run(const std::vector<at::Tensor>& inputs, bool training) override {
    if (watch) watch(inputs);
    return program_->run(inputs, training);
  }

  RunBatch watch = {};

 private:
  std::shared_ptr<const graph::Program> program_;
};

}  // namespace

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured, const QatRecipe& recipe,
                                      const Train& train, PassReport* report) {
  if (!train) fail("quant.quantize", "expected a function that trains, got none");
  recipe.validate();
  const auto model = prepare_qat(captured, recipe.tensors, recipe.options);
  train(*model);
  model->eval();
  return convert_qat(model, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const DynamicRecipe& recipe, PassReport* report) {
  return quantize_dynamic(captured, recipe, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const WeightOnlyRecipe& recipe, PassReport* report) {
  return quantize_weights(captured, recipe, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const WeightOnlyRecipe& recipe, const Calibrate& calibrate,
                                      PassReport* report) {
  if (!calibrate || !captured) return quantize_weights(captured, recipe, report);
  const auto watcher = std::make_shared<BatchWatcher>();
  GraphModule watched(captured->graph().clone());
  watched.eval();
  watched.run_with(watcher);
  const CalibrationData data = [&](const RunBatch& run) {
    const at::NoGradGuard no_grad;
    watcher->watch = run;
    calibrate(watched);
  };
  return quantize_weights(captured, recipe, data, report);
}

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured, const AnyRecipe& recipe,
                                      const Calibrate& feed, PassReport* report) {
  if (const auto* one = std::get_if<StaticRecipe>(&recipe)) return quantize(captured, *one, feed, report);
  if (const auto* one = std::get_if<QatRecipe>(&recipe)) return quantize(captured, *one, Train(feed), report);
  if (const auto* one = std::get_if<DynamicRecipe>(&recipe)) return quantize(captured, *one, report);
  return quantize(captured, std::get<WeightOnlyRecipe>(recipe), feed, report);
}

}  // namespace ulp::quant
