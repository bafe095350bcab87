// The loss that a compiled training step takes of a network's result.
#pragma once

#include <cstdint>

namespace ulp::train {

/// A loss of the result of a network and a target, by the formulas of torch::nn::functional.
struct LossFunction {
  /// Which one.
  enum class Kind : uint8_t {
    none,           ///< the result of the graph is the loss: one number
    mse,            ///< mse_loss
    l1,             ///< l1_loss
    smooth_l1,      ///< smooth_l1_loss with `beta`
    huber,          ///< huber_loss with `beta` as its delta
    cross_entropy,  ///< cross_entropy of rows of logits and class indices, without weights and smoothing
    weighted_cross_entropy,  ///< the same times a weight of each row: a policy gradient, where weights are advantages
    bce_logits               ///< binary_cross_entropy_with_logits without weights
  };
  Kind kind = Kind::none;
  bool mean = true;   ///< over all numbers (cross_entropy: over the rows); false: their sum
  double beta = 1.0;  ///< > 0
  /// Logits of cross_entropy are [..., classes] of any dimensions, with a class for each row, as [batch, length, classes] and
  /// [batch, length] of texts; else they are [rows, classes].
  bool any_rows = false;

  static LossFunction none() { return {}; }
  static LossFunction mse() { return {Kind::mse}; }
  static LossFunction l1() { return {Kind::l1}; }
  static LossFunction smooth_l1(double beta = 1.0) { return {Kind::smooth_l1, true, beta}; }
  static LossFunction huber(double delta = 1.0) { return {Kind::huber, true, delta}; }
  static LossFunction cross_entropy() { return {Kind::cross_entropy}; }
  static LossFunction token_cross_entropy() { return {Kind::cross_entropy, true, 1.0, true}; }
  static LossFunction weighted_cross_entropy() { return {Kind::weighted_cross_entropy}; }
  static LossFunction bce_logits() { return {Kind::bce_logits}; }
  /// Whether targets are class indices.
  bool takes_classes() const { return kind == Kind::cross_entropy || kind == Kind::weighted_cross_entropy; }
  /// This loss with the sum of the numbers in the place of their mean.
  LossFunction sum() const { return {kind, false, beta, any_rows}; }
};

}  // namespace ulp::train
