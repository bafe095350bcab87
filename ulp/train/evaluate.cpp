#include "ulp/train/evaluate.h"

#include <torch/torch.h>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/io/batch_loader.h"
#include "ulp/lower/evaluate.h"

namespace ulp::train {

namespace {

void check_logits(const at::Tensor& logits, int64_t images, int64_t first) {
  if (logits.dim() != 2 || logits.size(0) != images) {
    fail("train.evaluate", "expected logits of shape (", images, ", classes), got ", logits.sizes());
  }
  const at::Tensor bad = torch::isnan(logits).any(1);
  if (bad.any().item<bool>()) {
    fail("train.evaluate", "expected numbers, got NaN in the logits of image ",
         first + bad.nonzero()[0].item<int64_t>());
  }
}

}  // namespace

Accuracy evaluate(const Classifier& classifier, const io::ImageDataset& data, int64_t batch,
                  const OnImages& on_images) {
  const c10::InferenceMode inference;
  io::BatchLoader loader(data, {.batch_size = batch, .shuffle = false});
  Accuracy accuracy;
  while (const auto next = loader.next()) {
    check_interrupted();
    const int64_t count = next->images.size(0);
    const at::Tensor logits = classifier(next->images);
    check_logits(logits, count, accuracy.total);
    accuracy.correct += logits.argmax(1).eq(next->labels).sum().item<int64_t>();
    accuracy.total += count;
    if (on_images) on_images(accuracy.total);
  }
  return accuracy;
}

Classifier engine_classifier(runtime::Engine& engine) {
  return
      [&engine](const at::Tensor& images) { return run_engine(engine, images.contiguous(), images.size(0)); };
}

}  // namespace ulp::train
