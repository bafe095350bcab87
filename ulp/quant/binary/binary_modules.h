// The nodes of a graph that trains to be binary, whose switches the whole model shares. Internal.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/libtorch/tensor_module.h"
#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

struct QatState;

/// The signs of an activation, with +1 around it where `sides` says so (as aten::constant_pad_nd). While fake
/// quantization is off the activation itself, clamped where the model clamped it, with 0 around it.
class ActivationSigns final : public libtorch::TensorModule {
 public:
  ActivationSigns(SignGradient gradient, std::optional<graph::ClampBounds> bounds, std::vector<int64_t> sides,
                  std::shared_ptr<const QatState> state)
      : gradient_(gradient), bounds_(bounds), sides_(std::move(sides)), state_(std::move(state)) {}
  at::Tensor forward(const at::Tensor& x) override;
  SignGradient gradient() const { return gradient_; }
  const std::vector<int64_t>& sides() const { return sides_; }

 private:
  SignGradient gradient_;
  std::optional<graph::ClampBounds> bounds_;
  std::vector<int64_t> sides_;
  std::shared_ptr<const QatState> state_;
};

/// What multiplies the result of a layer and comes from its input; 1 while fake quantization is off.
class ActivationScale final : public libtorch::TensorModule {
 public:
  explicit ActivationScale(std::shared_ptr<const QatState> state) : state_(std::move(state)) {}
  at::Tensor forward(const at::Tensor& scale) override;

 private:
  std::shared_ptr<const QatState> state_;
};

/// The signs of a latent weight (or its three values). Before the stage of binary weights, and while fake quantization
/// is off, the weight itself; where the layer multiplies by a scale that is the mean of |W|, or starts there, divided by
/// that mean, so that the layer gives what it gave as a float layer.
class WeightSigns final : public libtorch::TensorModule {
 public:
  WeightSigns(const BinaryLayerOptions& options, std::shared_ptr<const QatState> state)
      : options_(options), state_(std::move(state)) {}
  at::Tensor forward(const at::Tensor& weight) override;
  bool ternary() const { return options_.ternary; }

 private:
  BinaryLayerOptions options_;
  std::shared_ptr<const QatState> state_;
};

}  // namespace ulp::quant
