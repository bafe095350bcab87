// What quantizes one tensor of a model while it trains: fixed parameters from an observer, or learned ones.
// Internal.
#pragma once

#include <memory>
#include <string>

#include "ulp/libtorch/tensor_module.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::quant {

/// The switches that a whole model shares.
struct QatState {
  bool observers_enabled = true;
  bool fake_quant_enabled = true;
  bool batch_norm_frozen = false;
  bool binary_weights = true;
};

/// A scale (and zero point) that is trained: LSQ.
class LearnedQParams {
 public:
  /// Registers "scale" and, where it is learned, "zero_point" as parameters of `owner`, and whether they have
  /// their first values as a buffer. `like`: shapes and the scheme.
  LearnedQParams(torch::nn::Module& owner, const QParams& like, bool learn_zero_point,
                 LearnedGradients gradients);
  /// The values that training starts from.
  void start(const QParams& qparams);
  bool started() const;
  /// `room`: a scale that may not be gone below, or undefined. `features`: elements that share a scale, for
  /// the gradient's factor of the paper.
  at::Tensor apply(const at::Tensor& x, double features, const at::Tensor& room = {}) const;
  QParams qparams() const;

 private:
  Scheme scheme_;
  LearnedGradients gradients_;
  at::Tensor scale_, zero_point_, started_;
};

/// Of an activation: observes in train mode while observers are enabled, and fake-quantizes.
class ActivationQuantizer final : public libtorch::TensorModule {
 public:
  ActivationQuantizer(std::string label, TensorRecipe recipe, const QatOptions& options,
                      std::shared_ptr<const QatState> state);
  at::Tensor forward(const at::Tensor& x) override;
  /// Fake-quantizes a value that has these parameters without being observed.
  at::Tensor quantize(const at::Tensor& x) const;
  bool ready() const;  ///< has seen data
  /// Throws ulp::Error with the label if there was no data.
  QParams qparams() const;
  /// What a report should say about the data, or nothing.
  std::string remark() const;

 private:
  std::string label_;
  std::shared_ptr<const QatState> state_;
  std::shared_ptr<Observer> observer_;
  std::unique_ptr<LearnedQParams> learned_;
};

/// For values that take the parameters of another one.
class SharingQuantizer final : public libtorch::TensorModule {
 public:
  explicit SharingQuantizer(std::shared_ptr<ActivationQuantizer> origin) : origin_(std::move(origin)) {}
  at::Tensor forward(const at::Tensor& x) override { return origin_->quantize(x); }

 private:
  std::shared_ptr<ActivationQuantizer> origin_;
};

/// Of a layer's weight: while observers are enabled the parameters are those of the weight of the moment,
/// then they stay as they were in the last forward pass in train mode.
class WeightQuantizer final : public torch::nn::Module {
 public:
  WeightQuantizer(std::string label, const TensorRecipe& recipe, const QatOptions& options,
                  std::shared_ptr<const QatState> state, const at::Tensor& observed);
  /// Fake-quantizes `weight`, whose range is that of `observed`; its scales are at least `room`, if defined.
  at::Tensor quantize(const at::Tensor& weight, const at::Tensor& observed, const at::Tensor& room = {});
  QParams qparams(const at::Tensor& observed) const;

 private:
  QParams observe(const at::Tensor& weight) const;

  std::string label_;
  TensorRecipe recipe_;
  std::shared_ptr<const QatState> state_;
  at::Tensor scale_, zero_point_;  // buffers; not used when learned
  std::unique_ptr<LearnedQParams> learned_;
};

}  // namespace ulp::quant
