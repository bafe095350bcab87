#include "ulp/quant/methods/watched_model.h"

#include <torch/utils.h>

#include "ulp/graph/capture/program.h"
#include "ulp/graph/executor.h"

namespace ulp::quant {
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

CalibrationData batches_of(const std::shared_ptr<graph::GraphModule>& captured, const Calibrate& calibrate) {
  const auto watcher = std::make_shared<BatchWatcher>();
  const auto watched = std::make_shared<graph::GraphModule>(captured->graph().clone());
  watched->eval();
  watched->run_with(watcher);
  return [watcher, watched, calibrate](const RunBatch& run) {
    const at::NoGradGuard no_grad;
    watcher->watch = run;
    calibrate(*watched);
    watcher->watch = {};
  };
}

}  // namespace ulp::quant
