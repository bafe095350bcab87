#include "ulp/train/compile/compiled_step.h"

#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ulp/graph/conditions.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/train/compile/builder.h"
#include "ulp/train/compile/step_parts.h"

namespace ulp::train {

namespace {

/// About what a multiply-add of a product takes on one thread.
double multiply_add_nanoseconds(kernels::Isa isa) {
  if (&kernels::layer_product_ops(isa) == &kernels::layer_product_ops(kernels::Isa::portable)) return 1;
  return &kernels::layer_product_ops(isa) == &kernels::layer_product_ops(kernels::Isa::avx2) ? 0.04 : 0.02;
}

}  // namespace

CompiledStep::CompiledStep(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CompiledStep::CompiledStep(CompiledStep&&) noexcept = default;
CompiledStep& CompiledStep::operator=(CompiledStep&&) noexcept = default;
CompiledStep::~CompiledStep() = default;

CompiledStep compile(const std::shared_ptr<graph::GraphModule>& module, const LossFunction& loss,
                     amp::FusedOptimizer& optimizer, const CompileOptions& options) {
  const at::NoGradGuard no_grad;
  if (module == nullptr) fail(compiled::kCompileWhere, "expected a captured network, got none");
  if (options.max_batch < 0)
    fail(compiled::kCompileWhere, "expected max_batch >= 0, got ", options.max_batch);
  if (options.max_norm && !(*options.max_norm > 0))
    fail(compiled::kCompileWhere, "expected max_norm > 0, got ", *options.max_norm);
  if (options.threads < 0 || options.threads > 1024)
    fail(compiled::kCompileWhere, "expected 0 (one per core) to 1024 threads, got ", options.threads);
  if (const auto conditions = graph::conditions_of(module->graph()); !conditions.empty())
    fail(compiled::kCompileWhere,
         "expected a network whose forward does not follow numbers of buffers, got one that reads '",
         conditions.front().buffer, "'; without compiling, amp::fused_step and Trainer take it");
  const auto trained = [&](const at::Tensor& tensor) {
    return std::ranges::any_of(optimizer.param_groups(), [&](const torch::optim::OptimizerParamGroup& group) {
      return std::ranges::any_of(group.params(), [&](const at::Tensor& own) { return own.is_same(tensor); });
    });
  };
  const std::shared_ptr<graph::Graph> graph = module->graph().clone();
  graph::canonicalize(*graph);  // t and addmm become linear, and so on
  const bool bf16 = options.products == ProductType::bf16;
  const kernels::PackedProductOps& packed = kernels::packed_product_ops(kernels::selected_isa(), bf16);
  compiled::Builder builder(*graph, module->is_training(), options.dropout_seed.has_value(),
                            bf16 ? packed.word_numbers : 0, trained);
  auto parts = std::unique_ptr<CompiledStep::Parts>(
      new CompiledStep::Parts{module, optimizer, options, builder.build(loss), loss, {}});
  compiled::StepRun& run = parts->run;
  if (options.threads != 1) parts->pool = std::make_unique<compiled::StepThreads>(options.threads);
  if (parts->pool != nullptr && parts->pool->workers() > 1) run.pool = parts->pool.get();
  run.plan = &parts->built.plan;
  run.multiply_add_nanoseconds = multiply_add_nanoseconds(kernels::selected_isa());
  run.products = &kernels::layer_product_ops(kernels::selected_isa());
  run.packed = &packed;
  run.rows = &kernels::step_row_ops(kernels::selected_isa());
  run.attention = &kernels::attention_row_ops(kernels::selected_isa());
  run.cells = &kernels::recurrent_cell_ops(kernels::selected_isa());
  run.convs = &kernels::conv_product_ops(kernels::selected_isa());
  run.word_convs = &kernels::conv_word_ops(kernels::selected_isa());
  run.images = &kernels::step_image_ops(kernels::selected_isa());
  run.integers.resize(parts->built.inputs.size());
  for (const compiled::PlanMatrix& matrix : parts->built.plan.matrices)
    run.views.push_back({nullptr, matrix.rows.at(1), matrix.width, matrix.stride});
  std::vector<amp::PreparedGradient> gradients;
  for (const compiled::OutsideTensor& of : parts->built.outside) {
    at::Tensor& gradient = parts->gradients.emplace_back();
    if (of.gradient < 0) continue;
    gradient = at::zeros_like(of.tensor);
    run.views[static_cast<size_t>(of.gradient)].data = gradient.data_ptr<float>();
    gradients.push_back({of.tensor, gradient});
  }
  for (size_t m = 0; m < parts->built.plan.matrices.size(); ++m) {
    const auto root = static_cast<size_t>(parts->built.plan.root(static_cast<int>(m)));
    if (root != m && parts->built.plan.matrices[root].home == compiled::Home::outside)
      parts->outside_aliases.emplace_back(m, root);
  }
  for (const compiled::MaskedParameter& of : parts->built.masks)
    run.views[static_cast<size_t>(of.matrix)].data = of.kept.data_ptr<float>();
  run.masks.resize(parts->built.masks.size());
  parts->node_count = module->graph().nodes().size();
  parts->parameter_count = parts->optimizer_parameters();
  parts->pointers.resize(parts->built.inputs.size());
  parts->prepared.emplace(optimizer, std::move(gradients));
  if (options.max_batch > 0) parts->grow(options.max_batch);
  parts->prepared->settle();  // the last one: it makes the optimizer's state
  return CompiledStep(std::move(parts));
}

float CompiledStep::step(std::span<const void* const> inputs, const void* targets, const float* weights,
                         int64_t batch) {
  return parts_->step(inputs, targets, weights, batch);
}

float CompiledStep::step(const float* input, const float* targets, int64_t batch) {
  parts_->expect_one_input(kStepWhere);
  if (parts_->built.targets < 0)
    fail(kStepWhere, "expected another loss for targets of floats, got one without");
  const void* inputs[] = {input};
  return parts_->step(inputs, targets, nullptr, batch);
}

float CompiledStep::step(const float* input, const int64_t* classes, int64_t batch) {
  return step(input, classes, nullptr, batch);
}

float CompiledStep::step(const float* input, const int64_t* classes, const float* weights, int64_t batch) {
  parts_->expect_one_input(kStepWhere);
  if (!parts_->loss_function.takes_classes())
    fail(kStepWhere, "expected cross_entropy for classes, got another loss");
  const void* inputs[] = {input};
  return parts_->step(inputs, classes, weights, batch);
}

float CompiledStep::step(const std::vector<at::Tensor>& inputs, const at::Tensor& targets,
                         const at::Tensor& weights) {
  const Parts::Given given = parts_->check_tensors(inputs, targets, weights);
  return parts_->step(parts_->pointers, given.targets, given.weights, given.batch);
}

float CompiledStep::backward(const std::vector<at::Tensor>& inputs, const at::Tensor& targets,
                             const at::Tensor& weights) {
  const Parts::Given given = parts_->check_tensors(inputs, targets, weights);
  return backward(parts_->pointers, given.targets, given.weights, given.batch);
}

float CompiledStep::backward(std::span<const void* const> inputs, const void* targets, const float* weights,
                             int64_t batch) {
  parts_->batches = 0;
  parts_->learn(inputs, targets, weights, batch);
  parts_->batches = 1;  // accumulate() draws other numbers
  parts_->change_buffers();
  return parts_->loss = static_cast<float>(parts_->run.loss);
}

float CompiledStep::accumulate(const std::vector<at::Tensor>& inputs, const at::Tensor& targets, double share,
                               const at::Tensor& weights) {
  if (!std::isfinite(share)) fail("train.CompiledStep.accumulate", "expected a finite share, got ", share);
  constexpr int64_t kMostBatches = 4096;
  if (parts_->batches >= kMostBatches)
    fail("train.CompiledStep.accumulate", "expected at most ", kMostBatches, " batches of a step, got more");
  const Parts::Given given = parts_->check_tensors(inputs, targets, weights);
  const bool adds = parts_->has_gradients;
  if (adds) parts_->keep_gradients();
  try {
    parts_->learn(parts_->pointers, given.targets, given.weights, given.batch);
  } catch (...) {
    if (adds) parts_->restore_gradients();
    throw;
  }
  parts_->change_buffers();
  parts_->loss = static_cast<float>(parts_->run.loss);
  parts_->add_kept(static_cast<float>(share), adds);
  ++parts_->batches;
  return parts_->loss;
}

void CompiledStep::zero_grad() {
  parts_->has_gradients = false;
  parts_->batches = 0;
}

const amp::FusedStepResult& CompiledStep::apply() {
  parts_->apply();
  return parts_->update;
}

float CompiledStep::step(const at::Tensor& input, const at::Tensor& targets) {
  return step(std::vector<at::Tensor>{input}, targets);
}

void CompiledStep::forward(std::span<const void* const> inputs, int64_t batch, float* result) {
  Parts& parts = *parts_;
  parts.check_batch(kForwardWhere, batch);
  if (result == nullptr) fail(kForwardWhere, "expected memory for the result, got null");
  parts.set_batch(batch);
  parts.set_inputs(kForwardWhere, inputs);
  parts.find_outside(kForwardWhere);
  parts.check_classes(kForwardWhere, false);
  parts.set_random();
  compiled::run(parts.built.plan, parts.run, 0, parts.built.plan.forward_end);
  const compiled::MatrixView& made = parts.run.views[static_cast<size_t>(parts.built.result)];
  for (int64_t r = 0; r < made.rows; ++r)
    std::copy_n(made.data + r * made.stride, made.width, result + r * made.width);
}

void CompiledStep::forward(const float* input, int64_t batch, float* result) {
  parts_->expect_one_input(kForwardWhere);
  const void* inputs[] = {input};
  forward(std::span<const void* const>(inputs), batch, result);
}

int64_t CompiledStep::result_size(int64_t batch) const {
  parts_->check_batch("train.CompiledStep.result_size", batch);
  const compiled::PlanMatrix& matrix = parts_->built.plan.matrices[static_cast<size_t>(parts_->built.result)];
  return matrix.rows.at(batch) * matrix.width;
}

float CompiledStep::loss() const {
  return parts_->loss;
}

const amp::FusedStepResult& CompiledStep::update() const {
  return parts_->update;
}

at::Tensor CompiledStep::gradient(const at::Tensor& parameter) const {
  if (const at::Tensor found = find_gradient(parameter); found.defined()) return found;
  fail("train.CompiledStep.gradient", "expected a parameter that the step trains, got another tensor");
}

at::Tensor CompiledStep::find_gradient(const at::Tensor& parameter) const {
  for (size_t i = 0; i < parts_->gradients.size(); ++i) {
    if (parts_->built.outside[i].tensor.is_same(parameter) && parts_->gradients[i].defined())
      return parts_->gradients[i];
  }
  return {};
}

int64_t CompiledStep::arena_bytes() const {
  return parts_->arena.defined() ? static_cast<int64_t>(parts_->arena.nbytes()) : 0;
}

size_t CompiledStep::instruction_count() const {
  return parts_->built.plan.instructions.size();
}

std::vector<std::string> compiled_operators() {
  return compiled::compiled_ops();
}

}  // namespace ulp::train
