// Training that makes units prunable: penalties that draw the weights of unimportant channels, heads and neurons to zero.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/importance.h"

namespace ulp::prune {

/// What is added to the gradient g of a weight w of unit k, with the strength lambda. Weights are rows, columns and scales of
/// norms; biases and shifts are left alone.
enum class Penalty : uint8_t {
  slimming,     ///< g += lambda sign(gamma), of scales alone (Liu et al. 2017, "Network Slimming")
  group_lasso,  ///< g += lambda w / ||all weights of k||_2 (Yuan and Lin 2006; Wen et al. 2016); nothing at 0
  dependency,  ///< g += lambda gamma_k w, gamma_k = 2^(4 (Imax - I_k) / (Imax - Imin)) within the group, 1 where all I are equal
               ///< (Fang et al. 2023, "DepGraph")
  growing  ///< g += lambda_k w; lambda_k begins at lambda, and update() adds growth (Imax - I_k) / (Imax - Imin), 0 where all
           ///< are equal (Wang et al. 2021, "Neural Pruning via Growing Regularization")
};

/// How a penalty works.
struct ULP_API RegularizeOptions {
  Penalty penalty = Penalty::dependency;
  double lambda = 1e-4;  ///< >= 0. The authors: slimming 1e-5 to 1e-4, dependency 5e-4, growing 0 to 1e-4
  double growth = 1e-5;  ///< growing, >= 0
  /// The I of dependency and growing; those of infinite importance count as the most important.
  ImportanceOptions importance = {.normalization = Normalization::none};
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// Adds the penalty's gradients between backward and the optimizer's step.
class ULP_API Regularizer {
 public:
  /// `groups` are those of the module's graph. Computes the importance of the units, as update() does. Throws ulp::Error for options out
  /// of range, for groups of another graph, and where there is nothing to penalise: no group, no trained weight, or for slimming
  /// no trained scale of a norm.
  Regularizer(std::shared_ptr<graph::GraphModule> module, Groups groups,
              const RegularizeOptions& options = {});
  ~Regularizer();
  Regularizer(Regularizer&&) noexcept;
  Regularizer& operator=(Regularizer&&) noexcept;

  /// Importance anew, from the present weights, and the strengths by it: once an epoch, or every few steps. Throws as importance().
  void update();
  /// Adds to the gradients that are there; `scale` is that of the loss (GradScaler). Frozen parameters are passed over. Throws
  /// ulp::Error, before anything is changed, for a trained weight without a gradient.
  void add_to_gradients(double scale = 1);
  /// lambda of slimming and group_lasso, lambda gamma_k, or lambda_k, of each unit of each group.
  const Importance& strengths() const;
  /// For loading a checkpoint. Throws ulp::Error for other numbers of groups or units.
  void set_strengths(Importance strengths);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::Penalty> {
  using enum ulp::prune::Penalty;
  static constexpr std::array<Word<ulp::prune::Penalty>, 4> list{
      {{slimming, "slimming", "on the scales of norms"},
       {group_lasso, "group_lasso", "on the norm of each unit"},
       {dependency, "dependency", "stronger on less important units"},
       {growing, "growing", "growing with time on less important units"}}};
};
