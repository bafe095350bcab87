#include "ulp/quant/scheme/quantizer.h"

#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/operators/straight_through.h"

namespace ulp::quant {
namespace {

constexpr float kSmallestQuantizerScale = 0x1p-23F;  // as choose_qparams

/// PyTorch's operators, which know float32 alone.
at::Tensor fake_quantize_learnable(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& zero_point,
                                   const Scheme& scheme, double factor) {
  const at::Tensor values = x.to(at::kFloat), zero = zero_point.to(at::kFloat);
  const int64_t axis = scheme.axis(), qmin = scheme.qmin(), qmax = scheme.qmax();
  const at::Tensor y =
      axis < 0
          ? at::_fake_quantize_learnable_per_tensor_affine(values, scale, zero, qmin, qmax, factor)
          : at::_fake_quantize_learnable_per_channel_affine(values, scale, zero, axis, qmin, qmax, factor);
  return y.to(x.scalar_type());
}

}  // namespace

LearnedQParams::LearnedQParams(torch::nn::Module& owner, const QParams& like, bool learn_zero_point,
                               LearnedGradients gradients)
    : scheme_(like.scheme), gradients_(gradients) {
  scale_ = owner.register_parameter("scale", at::ones_like(like.scale));
  const at::Tensor zero = like.zero_point.clone();
  zero_point_ = learn_zero_point ? owner.register_parameter("zero_point", zero.to(at::kFloat))
                                 : owner.register_buffer("zero_point", zero);
  started_ = owner.register_buffer("started", at::zeros({1}, at::kLong));
}

void LearnedQParams::start(const QParams& qparams) {
  const at::NoGradGuard no_grad;
  scale_.copy_(qparams.scale);
  zero_point_.copy_(qparams.zero_point);
  started_.fill_(1);
}

bool LearnedQParams::started() const {
  return started_.item<int64_t>() != 0;
}

at::Tensor LearnedQParams::apply(const at::Tensor& x, double features, const at::Tensor& room) const {
  at::Tensor floor = at::full({}, kSmallestQuantizerScale, scale_.options());
  if (room.defined()) floor = at::maximum(floor, room);
  const double factor = 1 / std::sqrt(std::max(features, 1.0) * static_cast<double>(scheme_.qmax()));
  // A scale that an optimizer pushed below the floor still gets its gradient, so that it can come back.
  const at::Tensor scale = straight_through(scale_, at::maximum(scale_, floor));
  if (gradients_ == LearnedGradients::pytorch)
    return fake_quantize_learnable(x, scale, zero_point_, scheme_, factor);
  return fake_quantize_learned(x, scale, zero_point_, scheme_.axis(), scheme_.qmin(), scheme_.qmax(), factor);
}

QParams LearnedQParams::qparams() const {
  const at::NoGradGuard no_grad;
  return {scale_.clamp_min(kSmallestQuantizerScale).clone(),
          zero_point_.round().clamp(scheme_.qmin(), scheme_.qmax()).to(at::kInt), scheme_};
}

ActivationQuantizer::ActivationQuantizer(std::string label, TensorRecipe recipe, const QatOptions& options,
                                         std::shared_ptr<const QatState> state)
    : label_(std::move(label)), state_(std::move(state)) {
  if (recipe.observer != ObserverKind::fixed) recipe.observer = ObserverKind::moving_average;
  observer_ = register_module("observer", make_observer(recipe, label_));
  if (options.learned != LearnedParameters::none) {
    const QParams like{at::ones({1}, at::kFloat), at::zeros({1}, at::kInt), recipe.scheme};
    const bool zero_point = options.learned == LearnedParameters::scale_and_zero_point;
    learned_ = std::make_unique<LearnedQParams>(
        *this, like, zero_point && recipe.scheme.mapping == Mapping::affine, options.learned_gradients);
  }
}

at::Tensor ActivationQuantizer::forward(const at::Tensor& x) {
  const bool learning = learned_ && learned_->started();
  if (is_training() && state_->observers_enabled && !learning) {
    observer_->forward(x);
    if (learned_ && observer_->seen()) learned_->start(observer_->qparams());
  }
  return quantize(x);
}

at::Tensor ActivationQuantizer::quantize(const at::Tensor& x) const {
  if (!state_->fake_quant_enabled) return x;
  if (!ready()) {
    fail("quant.qat", "expected finite data in train mode with observers enabled first, got ",
         observer_->why_unseen(), " for '", label_, "'");
  }
  if (!learned_) return fake_quantize(x, observer_->qparams());
  return learned_->apply(x,
                         static_cast<double>(x.numel()) / static_cast<double>(x.dim() > 0 ? x.size(0) : 1));
}

bool ActivationQuantizer::ready() const {
  return learned_ ? learned_->started() : observer_->seen();
}

QParams ActivationQuantizer::qparams() const {
  if (!ready()) {
    fail("quant.convert_qat", "expected training data before conversion, got ", observer_->why_unseen(),
         " for '", label_, "'");
  }
  return learned_ ? learned_->qparams() : observer_->qparams();
}

std::string ActivationQuantizer::remark() const {
  const int64_t dropped = observer_->nan_count() + observer_->inf_count();
  if (dropped == 0) return "";
  return label_ + ": " + std::to_string(dropped) + " infinite or NaN values were left out of observation";
}

WeightQuantizer::WeightQuantizer(std::string label, const TensorRecipe& recipe, const QatOptions& options,
                                 std::shared_ptr<const QatState> state, const at::Tensor& observed)
    : label_(std::move(label)), recipe_(recipe), state_(std::move(state)) {
  const QParams first = observe(observed);
  if (options.learned != LearnedParameters::none) {
    learned_ =
        std::make_unique<LearnedQParams>(*this, first, /*learn_zero_point=*/false, options.learned_gradients);
    learned_->start(first);
    return;
  }
  scale_ = register_buffer("scale", first.scale);
  zero_point_ = register_buffer("zero_point", first.zero_point);
}

QParams WeightQuantizer::observe(const at::Tensor& weight) const {
  const at::NoGradGuard no_grad;
  const auto observer = make_observer(recipe_, label_);
  observer->forward(weight);
  if (observer->nan_count() + observer->inf_count() > 0) {
    fail("quant.qat", "expected finite weights, got ", observer->nan_count(), " NaN and ",
         observer->inf_count(), " infinite values in '", label_, "'");
  }
  return observer->qparams();
}

at::Tensor WeightQuantizer::quantize(const at::Tensor& weight, const at::Tensor& observed,
                                     const at::Tensor& room) {
  const bool rounding = state_->fake_quant_enabled, observing = is_training() && state_->observers_enabled;
  if (learned_) {
    const auto scales = static_cast<double>(learned_->qparams().scale.numel());
    return rounding ? learned_->apply(weight, static_cast<double>(weight.numel()) / scales, room) : weight;
  }
  if (!rounding && !observing) return weight;
  QParams params = qparams(observed);
  if (observing) {
    scale_.set_data(params.scale);
    zero_point_.set_data(params.zero_point);
  }
  if (!rounding) return weight;
  if (room.defined()) params.scale = at::maximum(params.scale, room);
  return fake_quantize(weight, params);
}

QParams WeightQuantizer::qparams(const at::Tensor& observed) const {
  if (learned_) return learned_->qparams();
  if (state_->observers_enabled) return observe(observed);
  return {scale_, zero_point_, recipe_.scheme};
}

}  // namespace ulp::quant
