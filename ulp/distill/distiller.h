// A student and what it learns by: one module, whose checkpoint holds the student, its adapters and the memories of its losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/distill/recipe.h"
#include "ulp/distill/tap.h"
#include "ulp/distill/teacher.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distill {

/// The parts that a Distiller is made of.
struct DistillerSetup {
  std::shared_ptr<graph::GraphModule> student;  ///< its tensors are those that train
  /// Gives the values at Recipe::terms' places, in their order (see teacher_places()); null for a recipe without terms.
  std::shared_ptr<Teacher> teacher = nullptr;
  Recipe recipe;
  Batch example;              ///< a batch of the data: sizes of adapters and memories follow from it
  int64_t samples = 0;        ///< of the data set
  int64_t batches = 0;        ///< of the whole run: ramps follow it
  int64_t epoch_batches = 0;  ///< of an epoch: schedules of losses count epochs
  double input_noise =
      0;  ///< standard deviation of what is added to floating inputs of the student alone, while it trains
};

/// Computes the loss of a student. As a module it holds "student", of term i "adapter_i_LOSS" and "loss_i_LOSS", and counts its
/// batches, so that a checkpoint of it continues everything.
class ULP_API Distiller final : public DistillationTask {
 public:
  /// Runs student and teacher on the example. Throws ulp::Error for places that name nothing, values that no adapter joins,
  /// a teacher of other classes, terms without a teacher, and losses that need labels or numbers of samples that are not there.
  explicit Distiller(DistillerSetup setup);
  ~Distiller() override;

  at::Tensor forward(const Batch& batch) override;
  at::Tensor loss(const Batch& batch) override;
  /// The labels' cross-entropy first, then each term.
  std::vector<TermValue> values() const override;

  const Recipe& recipe() const;
  /// The student as it was given.
  const std::shared_ptr<graph::GraphModule>& student() const;
  /// The student as it trains, with its taps (TappedModel::module()), which holds the same tensors. What changes the nodes of
  /// one graph while it trains must change the other, too: see prune::share_masks().
  graph::GraphModule& tapped();
  /// Names of the parameters that are not the student's: of adapters, and of losses that have some.
  std::vector<std::string> adapters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The places of the teacher that a recipe reads, for graph_teacher() and engine_teacher(): each term's own, in order; a loss that
/// joins queries, keys and values has its place three times, with ":queries", ":keys" and ":values" behind it.
ULP_API std::vector<std::string> teacher_places(const Recipe& recipe);

}  // namespace ulp::distill
