// Models in which one weight alone is stored small. Internal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/weights/calibrated_weights.h"
#include "ulp/quant/weights/round_to_nearest.h"
#include "ulp/quant/weights/second_moments.h"

namespace ulp::quant {

/// Tries recipes on each weight of a model.
class WeightTrials {
 public:
  /// A weight as the layers of the graph read it.
  struct Unit {
    std::string layer;                 ///< label of the first layer that reads it
    std::string name;                  ///< the model's
    std::vector<int64_t> bytes;        ///< by each recipe
    std::vector<int64_t> scale_bytes;  ///< awq: what 1 / s takes beside them, where nothing else holds it
  };
  /// Takes a model whose weight is as recipe `format` has it, and as the others of `same` would: tables have
  /// fewer forms.
  using Try = FunctionRef<void(const Unit& unit, const std::vector<size_t>& same, size_t format,
                               graph::GraphModule& model)>;

  /// Throws ulp::Error as quantize_weights().
  WeightTrials(const std::shared_ptr<graph::GraphModule>& captured,
               const std::vector<WeightOnlyRecipe>& recipes);

  /// In order of execution.
  const std::vector<Unit>& units() const { return units_; }
  graph::GraphModule& float_model() { return *float_model_; }
  /// Inputs of all layers are those of the float model.
  void run(const CalibrationData& data, Try use);

 private:
  bool by_data(size_t unit) const;
  void try_unit(size_t unit, const SecondMoments& moments, Try use) const;
  at::Tensor values(size_t unit, const WeightOnlyRecipe& recipe, const SecondMoments& moments) const;

  std::shared_ptr<graph::Graph> graph_;
  std::shared_ptr<graph::GraphModule> float_model_;
  std::vector<Unit> units_;
  std::vector<const graph::Node*> layers_;              ///< of each unit the first one
  std::vector<std::vector<WeightOnlyRecipe>> recipes_;  ///< of each unit, by each recipe
};

}  // namespace ulp::quant
