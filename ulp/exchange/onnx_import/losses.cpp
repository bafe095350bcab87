// Losses of classes: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

int64_t loss_reduction(const Call& call) {
  const std::string word = call.attribute("reduction", "mean");
  if (word == "none") return at::Reduction::None;
  if (word == "sum") return at::Reduction::Sum;
  if (word != "mean") call.refuse("expected reduction none, mean or sum, got '", word, "'");
  return at::Reduction::Mean;
}

/// Of log probabilities [N, C, ...] and classes [N, ...]; a mean is by the weights of the classes.
Tensor class_loss(Call& call, const Tensor& log_probabilities) {
  constexpr int64_t kNothingIgnored = -100;  // as LibTorch has it; no class is below 0
  if (log_probabilities.dim() < 2)
    call.refuse("expected log probabilities [N, C, ...], got ", log_probabilities.sizes());
  const Tensor classes = call.x(1);
  const Tensor places = classes.scalar_type() == at::kLong ? classes : classes.to(at::kLong);
  return at::nll_loss_nd(log_probabilities, places, call.optional(2), loss_reduction(call),
                         call.attribute("ignore_index", kNothingIgnored));
}

void negative_log_likelihood(Call& call) {
  call.set(class_loss(call, call.x(0)));
}

void softmax_cross_entropy(Call& call) {
  const Tensor scores = call.x(0);
  if (scores.dim() < 2) call.refuse("expected scores [N, C, ...], got ", scores.sizes());
  const Tensor log_probabilities = at::log_softmax(scores, 1);
  call.set(class_loss(call, log_probabilities), 0);
  call.set(log_probabilities, 1);
}

}  // namespace

ConverterTable loss_table() {
  static constexpr Converter kTable[] = {{"NegativeLogLikelihoodLoss", negative_log_likelihood, twice},
                                         {"SoftmaxCrossEntropyLoss", softmax_cross_entropy, twice}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
