// Mixed precision of weights: bits, groups and a method for each weight, found by what they cost the network.
//
// 1. Each candidate of the search is taken for all weights, and the loss is measured: what a single recipe
//    does.
// 2. Each weight alone is stored as each candidate, all others in float, and the loss is measured. These
//    losses are taken to add up. They do as long as errors are small: the first order of the loss is a sum
//    over weights, and the mixed second order vanishes where errors of different weights have nothing to do
//    with each other. Errors of a layer's own result say nothing of how much the network minds them, and
//    second derivatives cost a pass backwards for an estimate of the same number.
// 3. A dynamic programme (bit_allocation.h) finds the least sum of losses for every number of bytes: the
//    front.
// 4. Some mixes of the front are made as a whole, each layer calibrated on the inputs that the layers before
//    it give, and measured. Of all mixes and single recipes that were measured, the best one that fits is the
//    result. So it is never worse, by this loss, than a single recipe of the candidates that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/weights/calibrated_weights.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// Functions of the caller that a search uses; each may be empty.
struct MixedPrecisionHooks {
  /// The loss of a model, less is better; it may throw Interrupted. Empty: sum (y - y')^2 / sum y^2 of all
  /// results on the calibration data, y those of the float model.
  std::function<double(graph::GraphModule& model)> loss = {};
  /// The size of a model. Empty: the bytes of its parameters and buffers.
  std::function<int64_t(graph::GraphModule& model)> bytes = {};
  /// So much of a stage is done: "single recipes", "sensitivity", "mixes".
  std::function<void(const char* stage, int64_t done, int64_t total, const std::string& note)> on_step = {};
};

/// A model that was made and measured.
struct MeasuredMix {
  std::string name;         ///< "4/32/gptq" of a single recipe, "mix 1" of a mix
  WeightOnlyRecipe recipe;  ///< that makes it
  int64_t bytes = 0;        ///< of the whole model
  double loss = 0;
  std::optional<double> estimate =
      {};  ///< of a mix: the float model's loss and the sum of what its weights cost alone
};

/// The cost of one weight as each candidate.
struct WeightSensitivity {
  std::string layer;           ///< the label of the first layer that reads it
  std::string weight;          ///< its name
  std::vector<int64_t> bytes;  ///< of each candidate
  std::vector<double>
      loss;            ///< beyond the float model's, of each candidate alone; less than 0 counts as 0 in sums
  std::string chosen;  ///< the candidate it has in the result
};

/// The result of a search.
struct MixedPrecision {
  std::shared_ptr<graph::GraphModule> model;  ///< the result
  WeightOnlyRecipe recipe;                    ///< that makes it again: overrides in the place of the search
  graph::PassReport report;                   ///< of the result
  std::vector<WeightError> errors;            ///< of the result
  double float_loss = 0;
  size_t chosen = 0;                      ///< of `measured`
  std::vector<MeasuredMix> measured;      ///< single recipes, then mixes
  std::vector<WeightSensitivity> layers;  ///< in order of execution
  std::vector<int64_t> front_bytes;       ///< of the front's mixes, in ascending order, of the whole model
  std::vector<double> front_loss;         ///< their estimates
  int64_t resolution = 1;                 ///< of the front, in bytes
  bool interrupted = false;               ///< ended early by Interrupted, with the best so far
};

/// Searches as `recipe.search` says; the rest of the recipe holds for all candidates. `data` is called
/// several times and has to give the same batches. The captured model stays as it is. Interrupted ends the
/// search with the best result so far, and is passed on where there is none. Throws ulp::Error as
/// quantize_weights(), and for a recipe without search, no data, a float model without a finite loss,
/// max_bytes below the smallest mix, and a max_loss that nothing measured reaches.
ULP_API MixedPrecision search_mixed_precision(const std::shared_ptr<graph::GraphModule>& captured,
                                              const WeightOnlyRecipe& recipe, const CalibrationData& data,
                                              const MixedPrecisionHooks& hooks = {});

}  // namespace ulp::quant
