#include "ulp/train/evaluate.h"

#include <torch/types.h>

#include <cmath>
#include <sstream>

#include "ulp/amp/threads/adaptive_threads.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/lower/evaluate.h"

namespace ulp::train {

namespace {

/// `first`: the number of the batch's first sample.
void check_logits(const at::Tensor& logits, const at::Tensor& targets, int64_t first) {
  if (logits.dim() != targets.dim() + 1 || logits.sizes().slice(0, targets.dim()) != targets.sizes()) {
    std::ostringstream expected;
    for (const int64_t size : targets.sizes()) expected << size << ", ";
    fail("train.evaluate", "expected logits of shape [", expected.str(), "classes], got ", logits.sizes());
  }
  const at::Tensor bad = torch::isnan(logits).flatten(1).any(1);
  if (bad.any().item<bool>()) {
    fail("train.evaluate", "expected numbers, got NaN in the logits of sample ",
         first + bad.nonzero()[0].item<int64_t>());
  }
}

}  // namespace

double Accuracy::perplexity() const {
  return std::exp(loss);
}

Accuracy evaluate(const Forward& forward, BatchStream& batches, const OnSamples& on_samples) {
  const c10::InferenceMode inference;
  Accuracy accuracy;
  double loss = 0;
  int64_t samples = 0;
  while (const auto batch = batches.next()) {
    check_interrupted();
    amp::adapt_threads();
    const at::Tensor logits = forward(*batch);
    check_logits(logits, batch->targets, samples);
    accuracy.correct += logits.argmax(-1).eq(batch->targets).sum().item<int64_t>();
    accuracy.total += batch->targets.numel();
    loss += cross_entropy(logits, *batch).item<double>() * static_cast<double>(batch->targets.numel());
    samples += batch->targets.size(0);
    if (on_samples) on_samples(samples);
  }
  accuracy.loss = accuracy.total > 0 ? loss / static_cast<double>(accuracy.total) : 0.0;
  return accuracy;
}

Accuracy evaluate(const Classifier& classifier, const io::ImageDataset& data, int64_t batch,
                  const OnSamples& on_images) {
  const auto images = image_stream(data, {.batch = batch});
  return evaluate([&](const TaskBatch& one) { return classifier(one.inputs); }, *images, on_images);
}

Classifier engine_classifier(runtime::Engine& engine) {
  return
      [&engine](const at::Tensor& images) { return run_engine(engine, images.contiguous(), images.size(0)); };
}

}  // namespace ulp::train
