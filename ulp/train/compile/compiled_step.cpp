#include "ulp/train/compile/compiled_step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/amp/optimizer/prepared_update.h"
#include "ulp/base/error.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/train/compile/builder.h"
#include "ulp/train/compile/partition.h"
#include "ulp/train/compile/step_threads.h"

namespace ulp::train {

namespace {

constexpr const char* kStepWhere = "train.CompiledStep.step";
constexpr const char* kForwardWhere = "train.CompiledStep.forward";

std::vector<int64_t> sizes_at(const std::vector<graph::SizeExpr>& sizes, int64_t batch) {
  std::vector<int64_t> made;
  for (const graph::SizeExpr& size : sizes) made.push_back(size.at(batch));
  return made;
}

/// Whether a tensor has the sizes, without an allocation.
bool has_sizes(const at::Tensor& tensor, const std::vector<graph::SizeExpr>& sizes, int64_t batch) {
  if (tensor.dim() != static_cast<int64_t>(sizes.size())) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (tensor.size(static_cast<int64_t>(d)) != sizes[d].at(batch)) return false;
  }
  return true;
}

/// About what a multiply-add of a product takes on one thread.
double multiply_add_nanoseconds(kernels::Isa isa) {
  if (&kernels::layer_product_ops(isa) == &kernels::layer_product_ops(kernels::Isa::portable)) return 1;
  return &kernels::layer_product_ops(isa) == &kernels::layer_product_ops(kernels::Isa::avx2) ? 0.04 : 0.02;
}

}  // namespace

struct CompiledStep::Parts {
  std::shared_ptr<graph::GraphModule> module;  ///< whose tensors are trained
  amp::FusedOptimizer& optimizer;
  CompileOptions options;
  compiled::BuiltStep built;
  LossFunction loss_function;
  std::vector<at::Tensor> gradients;  ///< of built.outside, undefined where there is none
  std::vector<at::Tensor> kept = {};  ///< gradients of earlier batches of a step, once there are some
  std::unique_ptr<compiled::StepThreads> pool = {};  ///< null for one thread
  std::optional<amp::PreparedUpdate> prepared = std::nullopt;
  compiled::StepRun run = {};
  at::Tensor arena = {};
  int64_t capacity = 0, batch = 0;
  size_t parameter_count = 0;  ///< of the optimizer
  size_t node_count = 0;       ///< of the graph
  int64_t batches = 0;         ///< of accumulate() since the last update
  bool has_gradients = false;  ///< of backward(), which no update has used
  std::vector<std::pair<size_t, size_t>> outside_aliases =
      {};                                  ///< and the matrix of built.outside that each is
  std::vector<const void*> pointers = {};  ///< of the inputs, kept for their room
  amp::FusedStepResult update = {};
  float loss = std::numeric_limits<float>::quiet_NaN();

  /// Makes the memory for so many samples.
  void grow(int64_t samples) {
    const compiled::ArenaPlan placed = compiled::place_matrices(built.plan, samples);
    arena = at::empty({static_cast<int64_t>(placed.floats)}, at::kFloat);
    amp::ask_for_large_pages(arena.mutable_data_ptr(), arena.nbytes());  // before the memory is touched
    arena.zero_();
    float* base = arena.data_ptr<float>();
    for (size_t m = 0; m < built.plan.matrices.size(); ++m) {
      const compiled::PlanMatrix& matrix =
          built.plan.matrices[static_cast<size_t>(built.plan.root(static_cast<int>(m)))];
      if (matrix.home == compiled::Home::arena) run.views[m].data = base + placed.offsets[m];
    }
    compiled::make_scratch(built.plan, run, samples);
    capacity = samples;
  }

  void set_batch(int64_t samples) {
    if (samples == batch) return;
    if (samples > capacity) grow(std::max(samples, options.max_batch));
    for (size_t m = 0; m < built.plan.matrices.size(); ++m)
      run.views[m].rows = built.plan.matrices[m].rows.at(samples);
    batch = samples;
    run.batch = samples;
  }

  /// What dropout of the next step is drawn from.
  void set_random() {
    if (!options.dropout_seed) return;
    constexpr int kStepBits = 32, kBatchBits = 20;  // below them the number of the dropout
    run.random = {*options.dropout_seed, static_cast<uint64_t>(prepared->next_step()) << kStepBits |
                                             static_cast<uint64_t>(batches) << kBatchBits};
  }

  /// Where parameters and buffers are now.
  void find_outside(const char* where) {
    for (size_t i = 0; i < built.outside.size(); ++i) {
      const compiled::OutsideTensor& of = built.outside[i];
      const at::Tensor& tensor = of.tensor;
      const auto format = of.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
      if (!tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat ||
          tensor.sizes() != at::IntArrayRef(of.sizes) || !tensor.is_contiguous(format)) {
        fail(where, "expected '", of.name, "' as it was when it was compiled, ",
             of.channels_last ? "channels-last" : "contiguous", " float32 of sizes ",
             at::IntArrayRef(of.sizes), " on the CPU, got ", tensor.dtype(), ' ', tensor.sizes(),
             " with strides ", tensor.strides(), " on ", tensor.device());
      }
      run.views[static_cast<size_t>(of.matrix)].data = tensor.data_ptr<float>();
      if (of.gradient >= 0 &&
          gradients[i].const_data_ptr() != run.views[static_cast<size_t>(of.gradient)].data)
        fail(where, "expected the gradient of '", of.name, "' where it was, got another memory");
    }
    for (const compiled::BatchCounter& counter : built.counters) {
      if (counter.tensor.scalar_type() != at::kLong || counter.tensor.numel() != 1 ||
          !counter.tensor.device().is_cpu())
        fail(where, "expected '", counter.name, "' to be one int64 on the CPU, got ", counter.tensor.dtype(),
             ' ', counter.tensor.sizes());
    }
    for (size_t i = 0; i < built.masks.size(); ++i) find_mask(where, i);
    if (module->graph().nodes().size() != node_count) {
      fail(where, "expected the network with the ", node_count,
           " nodes that it had when it was compiled, got ", module->graph().nodes().size(),
           "; compile the step again");
    }
    for (const auto& [alias, matrix] : outside_aliases) run.views[alias].data = run.views[matrix].data;
  }

  /// Where the bits of a mask are now; they may be others than when the step was compiled.
  void find_mask(const char* where, size_t i) {
    const compiled::MaskedParameter& of = built.masks[i];
    const graph::Attribute* now = module->graph().find_attribute(of.mask);
    if (now == nullptr || !now->tensor.is_contiguous() || now->tensor.scalar_type() != at::kByte ||
        now->tensor.numel() != of.bits.numel()) {
      fail(where, "expected the mask '", of.mask, "' as it was when it was compiled, of ", of.bits.numel(),
           " bytes, got another one or none; compile the step again");
    }
    run.masks[i] = now->tensor.const_data_ptr<uint8_t>();
  }

  size_t optimizer_parameters() const {
    size_t count = 0;
    for (const auto& group : optimizer.param_groups()) count += group.params().size();
    return count;
  }

  /// Whether the same parameters are to be trained as when the step was compiled, in the same way.
  void check_trained() const {
    if (optimizer_parameters() != parameter_count) {
      fail(kStepWhere, "expected the optimizer with the ", parameter_count,
           " parameters that it had when the step was compiled, got ", optimizer_parameters(),
           "; compile the step again");
    }
    for (const compiled::OutsideTensor& of : built.outside) {
      if (of.of_optimizer && of.tensor.requires_grad() != of.requires_grad) {
        fail(kStepWhere, "expected '", of.name,
             "' with requires_grad = ", of.requires_grad ? "true" : "false",
             " as it was when it was compiled, got ", of.requires_grad ? "false" : "true",
             "; compile the step again");
      }
      if (of.gradient >= 0 && compiled::has_gradient_hooks(of.tensor))
        fail(kStepWhere, "expected '", of.name, "' without hooks on its gradient, got one with a hook");
    }
  }

  /// Refuses numbers of samples that the graph does not take.
  void check_batch(const char* where, int64_t samples) const {
    if (samples < 1) fail(where, "expected a batch of at least 1, got ", samples);
    built.batch_range.check(samples, where);
    for (const compiled::LeastRows& of : built.least_rows) {
      if (of.rows.numerator * samples % of.rows.denominator == 0 && of.rows.at(samples) < 2)
        fail(where, "expected two numbers of each channel or more for batch norm in train mode, got one at '",
             of.name, "'");
    }
    if (samples == batch) return;
    const bool follows = std::ranges::any_of(
        built.inputs, [](const compiled::StepInput& input) { return input.batch_dim == 0; });
    if (!follows && samples != 1)
      fail(where, "expected a batch of 1 for a graph that was captured without a batch, got ", samples);
    for (const compiled::PlanMatrix& matrix : built.plan.matrices) {
      if (matrix.rows.numerator * samples % matrix.rows.denominator == 0) continue;
      fail(where, "expected a batch of which ", matrix.rows.numerator, '/', matrix.rows.denominator,
           " is whole, as the graph's shapes ask, got ", samples);
    }
  }

  void set_inputs(const char* where, std::span<const void* const> inputs) {
    if (inputs.size() != built.inputs.size())
      fail(where, "expected ", built.inputs.size(), " inputs, got ", inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const compiled::StepInput& input = built.inputs[i];
      if (inputs[i] == nullptr) fail(where, "expected memory for input '", input.name, "', got null");
      if (input.integers) {
        run.integers[i] = static_cast<const int64_t*>(inputs[i]);
      } else {
        // The plan copies inputs and writes none.
        run.views[static_cast<size_t>(input.matrix)].data =
            const_cast<float*>(static_cast<const float*>(inputs[i]));
      }
    }
  }

  void check_classes(const char* where, bool with_targets) const {
    for (const compiled::IndexBound& bound : built.bounds) {
      if (bound.input == compiled::kTargets && !with_targets) continue;
      const int64_t* classes =
          bound.input == compiled::kTargets ? run.targets : run.integers[static_cast<size_t>(bound.input)];
      for (int64_t r = 0; r < bound.rows.at(batch); ++r) {
        if (classes[r] < 0 || classes[r] >= bound.classes) {
          fail(where, "expected classes in [0, ", bound.classes, "), got ", classes[r], " in row ", r,
               " for '", bound.name, "'");
        }
      }
    }
  }

  /// Forward and backward.
  void learn(std::span<const void* const> inputs, const void* targets, const float* weights,
             int64_t samples) {
    has_gradients = false;
    check_batch(kStepWhere, samples);
    set_batch(samples);
    set_inputs(kStepWhere, inputs);
    check_trained();
    find_outside(kStepWhere);
    const bool has_targets = loss_function.kind != LossFunction::Kind::none;
    if (has_targets != (targets != nullptr))
      fail(kStepWhere, "expected ", has_targets ? "targets, got none" : "no targets, got some");
    const bool has_weights = loss_function.kind == LossFunction::Kind::weighted_cross_entropy;
    if (has_weights != (weights != nullptr))
      fail(kStepWhere, "expected ", has_weights ? "weights of the rows, got none" : "no weights, got some");
    run.weights = weights;
    if (built.targets >= 0) {
      run.views[static_cast<size_t>(built.targets)].data =
          const_cast<float*>(static_cast<const float*>(targets));
    } else {
      run.targets = static_cast<const int64_t*>(targets);
    }
    check_classes(kStepWhere, true);
    set_random();
    compiled::run(built.plan, run, 0, built.plan.update_begin);
    has_gradients = true;
  }

  /// Copies the gradients to where the next backward pass leaves them.
  void keep_gradients() {
    if (kept.empty()) {
      for (const at::Tensor& gradient : gradients)
        kept.push_back(gradient.defined() ? at::empty_like(gradient) : at::Tensor());
    }
    for_each_kept([](const float* gradient, float* to, int64_t n) { std::copy_n(gradient, n, to); });
  }
  void restore_gradients() {
    for_each_kept([](float* gradient, const float* from, int64_t n) { std::copy_n(from, n, gradient); });
    has_gradients = true;
  }
  /// gradient = share gradient [+ what was kept].
  void add_kept(float share, bool adds) {
    if (adds)
      return for_each_kept([&](float* gradient, const float* sum, int64_t n) {
        run.rows->add_scaled(sum, gradient, share, gradient, n);
      });
    const float numbers[3] = {share, 0, 0};
    for (const at::Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      float* data = gradient.data_ptr<float>();
      run.rows->value(kernels::Differentiable::affine, numbers, data, data, gradient.numel());
    }
  }
  template <typename Function>
  void for_each_kept(const Function& function) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined())
        function(gradients[i].data_ptr<float>(), kept[i].data_ptr<float>(), gradients[i].numel());
    }
  }

  /// The update.
  void apply() {
    if (!has_gradients)
      fail("train.CompiledStep.apply", "expected backward() before, got no gradients since the last update");
    check_trained();
    has_gradients = false;
    batches = 0;
    update = prepared->apply(options.max_norm, options.check_finite, pool.get());
  }

  float step(std::span<const void* const> inputs, const void* targets, const float* weights,
             int64_t samples) {
    batches = 0;
    learn(inputs, targets, weights, samples);
    has_gradients = false;
    update = prepared->apply(options.max_norm, options.check_finite, pool.get());
    change_buffers();
    loss = static_cast<float>(run.loss);
    return loss;
  }

  /// Running statistics and counters of batches, as forward() of the uncompiled network changes them.
  void change_buffers() {
    compiled::run(built.plan, run, built.plan.update_begin, built.plan.instructions.size());
    for (size_t i = built.plan.update_begin; i < built.plan.instructions.size(); ++i) {
      for (const int matrix : {built.plan.instructions[i].b, built.plan.instructions[i].c}) {
        for (const compiled::OutsideTensor& of : built.outside) {
          if (of.matrix == matrix) of.tensor.unsafeGetTensorImpl()->bump_version();
        }
      }
    }
    for (const compiled::BatchCounter& counter : built.counters) {
      *counter.tensor.data_ptr<int64_t>() += counter.step;
      counter.tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
  /// What tensors of the caller's hold.
  struct Given {
    const void* targets = nullptr;
    const float* weights = nullptr;
    int64_t batch = 1;
  };
  Given check_tensors(const std::vector<at::Tensor>& inputs, const at::Tensor& targets,
                      const at::Tensor& weights);

  void expect_one_input(const char* where) const {
    if (built.inputs.size() != 1 || built.inputs[0].integers)
      fail(where, "expected a graph of one input of floats, got one of ", built.inputs.size(), " inputs");
  }
};

CompiledStep::Parts::Given CompiledStep::Parts::check_tensors(const std::vector<at::Tensor>& inputs,
                                                              const at::Tensor& targets,
                                                              const at::Tensor& weights) {
  if (inputs.size() != built.inputs.size())
    fail(kStepWhere, "expected ", built.inputs.size(), " inputs, got ", inputs.size());
  int64_t samples = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (built.inputs[i].batch_dim == 0 && inputs[i].defined() && inputs[i].dim() > 0) {
      samples = inputs[i].size(0);
      break;
    }
  }
  check_batch(kStepWhere, samples);
  const auto check = [&](const at::Tensor& tensor, const std::string& name, at::ScalarType type,
                         const std::vector<graph::SizeExpr>& sizes) {
    if (tensor.defined() && tensor.scalar_type() == type && tensor.device().is_cpu() &&
        tensor.is_contiguous() && has_sizes(tensor, sizes, samples))
      return;
    const std::vector<int64_t> wanted = sizes_at(sizes, samples);
    if (!tensor.defined()) fail(kStepWhere, "expected a tensor for '", name, "', got none");
    fail(kStepWhere, "expected a contiguous tensor of ", type, ' ', at::IntArrayRef(wanted),
         " on the CPU for '", name, "', got ", tensor.dtype(), ' ', tensor.sizes());
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const compiled::StepInput& input = built.inputs[i];
    check(inputs[i], input.name, input.integers ? at::kLong : at::kFloat, input.sizes);
    pointers[i] = inputs[i].const_data_ptr();
  }
  if (weights.defined() && loss_function.kind != LossFunction::Kind::weighted_cross_entropy)
    fail(kStepWhere, "expected no weights, got some");
  if (loss_function.kind == LossFunction::Kind::none)
    return {targets.defined() ? targets.const_data_ptr() : nullptr, nullptr, samples};
  if (loss_function.takes_classes()) {
    check(targets, "targets", at::kLong, built.class_sizes);
  } else {
    check(targets, "targets", at::kFloat, built.sizes);
  }
  if (weights.defined() &&
      (weights.dim() != 1 || weights.scalar_type() != at::kFloat || !weights.is_contiguous() ||
       !weights.device().is_cpu() || weights.size(0) != built.sizes.front().at(samples))) {
    fail(kStepWhere, "expected weights of float32 [", built.sizes.front().at(samples), "], got ",
         weights.dtype(), ' ', weights.sizes());
  }
  return {targets.const_data_ptr(), weights.defined() ? weights.const_data_ptr<float>() : nullptr, samples};
}

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
