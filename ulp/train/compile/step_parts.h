// The parts of a compiled step that live between calls: its plan, memory, gradients and update, and the checks of a call; internal to
// the room.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/amp/optimizer/prepared_update.h"
#include "ulp/base/error.h"
#include "ulp/train/compile/builder.h"
#include "ulp/train/compile/compiled_step.h"
#include "ulp/train/compile/partition.h"
#include "ulp/train/compile/step_threads.h"

namespace ulp::train {

inline constexpr const char* kStepWhere = "train.CompiledStep.step";
inline constexpr const char* kForwardWhere = "train.CompiledStep.forward";

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
    constexpr int64_t kExact = int64_t{1} << 24;  // floats count so far
    for (const compiled::BoundedRows& of : built.counted) {
      if (of.rows.at(samples) > kExact)
        fail(where, "expected counts of at most ", kExact, ", got up to ", of.rows.at(samples), " at '",
             of.name, "'");
    }
    for (const compiled::BoundedRows& of : built.least_rows) {
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

}  // namespace ulp::train
