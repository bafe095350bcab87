#include "ulp/train/compiled_task.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/compile/compiled_step.h"

namespace ulp::train {

namespace {

constexpr const char* kCompiledTaskWhere = "train.Trainer";

/// What runs without compiling, and a compiled step does not take.
void check_task(const Task& task) {
  const auto refuse = [](bool wrong, const char* expected, const char* got) {
    if (wrong)
      fail(kCompiledTaskWhere, "expected ", expected, " for a compiled step, got ", got,
           "; without compiling it trains");
  };
  refuse((task.group && task.group->size() > 1) || task.parted, "one process", "several");
  refuse(static_cast<bool>(task.activations), "activations that stay as they are", "a plan of them");
  refuse(task.offload.to_host, "an optimizer beside its parameters", "one whose state is on the host");
  using Plain = at::Tensor (*)(const at::Tensor&, const TaskBatch&);
  const Plain* loss = task.loss.target<Plain>();
  refuse(loss == nullptr || *loss != &cross_entropy, "train::cross_entropy as the loss", "another one");
}

/// Throws where the task runs its model in another way than forward(inputs), which is what is captured.
void check_forward(const Forward& forward, torch::nn::Module& model, const Task& captured) {
  const at::NoGradGuard no_grad;
  const TaskBatch batch = example_batch(*captured.batches);
  const bool trains = model.is_training();
  model.eval();
  captured.model->eval();
  const at::Tensor expected = forward(batch), made = captured.forward(batch);
  model.train(trains);
  captured.model->train(trains);
  // Far more than roundings, and less than any other function.
  const double bound = 1e-3 * expected.nan_to_num(0, 0, 0).abs().max().item<double>();
  if (expected.sizes() != made.sizes() ||
      !at::allclose(made, expected, /*rtol=*/0, bound, /*equal_nan=*/true))
    fail(kCompiledTaskWhere,
         "expected a task whose forward is that of its model for a compiled step, got another one; "
         "without compiling it trains");
}

/// By a CompiledStep of the captured model.
class StepOfCompiledTask final : public StepOfTask {
 public:
  StepOfCompiledTask(const std::shared_ptr<graph::GraphModule>& model, amp::FusedOptimizer& optimizer,
                     const CompileOptions& options)
      : optimizer_(optimizer),
        step_(compile(model, LossFunction::token_cross_entropy(), optimizer, options)),
        inputs_(1) {}

  double backward(const TaskBatch& batch, int64_t of) override {
    inputs_[0] = batch.inputs.contiguous();
    const at::Tensor targets = batch.targets.contiguous();
    return static_cast<double>(of == 1 ? step_.backward(inputs_, targets)
                                       : step_.accumulate(inputs_, targets, 1 / static_cast<double>(of)));
  }

  void zero_grad() override { step_.zero_grad(); }

  void give_gradients() override {
    for_each_gradient(
        [](at::Tensor& parameter, const at::Tensor& gradient) { parameter.mutable_grad() = gradient; });
  }

  void take_gradients() override {
    const at::NoGradGuard no_grad;
    for_each_gradient([](at::Tensor& parameter, const at::Tensor& gradient) {
      const at::Tensor& given = parameter.grad();
      if (!given.defined())
        fail(kCompiledTaskWhere,
             "expected the gradients of a compiled step, or others in their place, got none");
      if (!given.is_same(gradient)) gradient.copy_(given);
    });
  }

  amp::FusedStepResult apply() override { return step_.apply(); }

 private:
  template <typename Function>
  void for_each_gradient(const Function& function) {
    if (gradients_.empty()) find_gradients();
    for (auto& [parameter, gradient] : gradients_) function(parameter, gradient);
  }

  void find_gradients() {
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const at::Tensor gradient = step_.find_gradient(parameter);
        if (gradient.defined()) gradients_.emplace_back(parameter, gradient);
      }
    }
  }

  amp::FusedOptimizer& optimizer_;
  CompiledStep step_;
  std::vector<at::Tensor> inputs_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  ///< parameters and theirs, once somebody looks
};

constexpr CompiledTraining kCompiledTraining{.task = compiled_task, .step = compile_step};
const Component<CompiledTraining>::Provider kCompiledTrainingProvider(compiled_training, kCompiledTraining);

}  // namespace

Task compiled_task(Task task) {
  check_task(task);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& tensor : task.model->parameters())
      if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
    for (at::Tensor& tensor : task.model->buffers())
      if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
  }
  const Forward forward = task.forward;
  const std::shared_ptr<torch::nn::Module> model = task.model;
  Task captured = captured_task(std::move(task), kCompiledTaskWhere, [](const auto& graph) { return graph; });
  check_forward(forward, *model, captured);
  return captured;
}

std::unique_ptr<StepOfTask> compile_step(const Task& task, const TrainOptions& options,
                                         amp::FusedOptimizer& optimizer) {
  const auto* threads = amp::AdaptiveThreads::current();
  return std::make_unique<StepOfCompiledTask>(
      std::dynamic_pointer_cast<graph::GraphModule>(task.model), optimizer,
      CompileOptions{.max_batch = options.batch,
                     .max_norm = options.clip,
                     .dropout_seed = options.seed,
                     .threads = threads != nullptr ? threads->most() : at::get_num_threads(),
                     .products = options.precision->autocast_dtype ? ProductType::bf16 : ProductType::fp32});
}

}  // namespace ulp::train
