#include "ulp/train/task.h"

#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"
#include "ulp/io/sample_order.h"

namespace ulp::train {

namespace {

class ImageStream final : public BatchStream {
 public:
  ImageStream(const io::ImageDataset& data, const StreamOptions& options)
      : loader_(data, {.batch_size = options.batch * options.ranks,
                       .shuffle = options.shuffle,
                       .drop_last = options.drop_last,
                       .random_flip = options.augment,
                       .seed = options.seed,
                       .part = options.rank,
                       .parts = options.ranks}) {}

  std::optional<TaskBatch> next() override {
    std::optional<io::Batch> batch = loader_.next();
    if (!batch) return std::nullopt;
    return TaskBatch{std::move(batch->images), std::move(batch->labels), std::move(batch->samples)};
  }
  int64_t samples() const override { return loader_.dataset().size(); }
  int64_t batches() const override { return loader_.batches(); }
  int64_t epoch() const override { return loader_.epoch(); }
  std::string state() const override { return loader_.state(); }
  void restore(const std::string& state) override { loader_.restore(state); }

 private:
  io::BatchLoader loader_;
};

class SampleStream final : public BatchStream {
 public:
  SampleStream(int64_t samples, Gather gather, const StreamOptions& options)
      : samples_(samples),
        gather_(std::move(gather)),
        order_({.samples = samples,
                .batch_size = options.batch * options.ranks,
                .shuffle = options.shuffle,
                .drop_last = options.drop_last,
                .seed = options.seed,
                .part = options.rank,
                .parts = options.ranks}) {}

  std::optional<TaskBatch> next() override {
    const std::span<const int64_t> samples = order_.next();
    if (samples.empty()) return std::nullopt;
    TaskBatch batch = gather_(samples);
    batch.samples = at::tensor(at::ArrayRef<int64_t>(samples.data(), samples.size()), at::kLong);
    return batch;
  }
  int64_t samples() const override { return samples_; }
  int64_t batches() const override { return order_.batches(); }
  int64_t epoch() const override { return order_.epoch(); }
  std::string state() const override { return order_.state(); }
  void restore(const std::string& state) override { order_.restore(state); }

 private:
  int64_t samples_;
  Gather gather_;
  io::SampleOrder order_;
};

}  // namespace

StreamOptions StreamOptions::among(const distributed::ProcessGroup* group) const {
  StreamOptions options = *this;
  if (group != nullptr) {
    options.rank = group->rank();
    options.ranks = group->size();
  }
  return options;
}

BatchStream::~BatchStream() = default;

std::unique_ptr<BatchStream> image_stream(const io::ImageDataset& data, const StreamOptions& options) {
  return std::make_unique<ImageStream>(data, options);
}

std::unique_ptr<BatchStream> sample_stream(int64_t samples, Gather gather, const StreamOptions& options) {
  return std::make_unique<SampleStream>(samples, std::move(gather), options);
}

TaskBatch example_batch(BatchStream& batches) {
  const std::string state = batches.state();
  std::optional<TaskBatch> batch = batches.next();
  if (!batch) batch = batches.next();
  if (!batch) fail("train.example_batch", "expected at least one batch of data, got none");
  batches.restore(state);
  return *std::move(batch);
}

at::Tensor cross_entropy(const at::Tensor& logits, const TaskBatch& batch) {
  return at::cross_entropy_loss(logits.flatten(0, -2).to(torch::kFloat), batch.targets.flatten());
}

Task image_task(std::shared_ptr<models::ImageModel> model, std::unique_ptr<BatchStream> batches) {
  models::to_channels_last(*model);
  Task task{.model = model, .forward = {}, .batches = std::move(batches)};
  task.forward = [model = std::move(model)](const TaskBatch& batch) { return model->forward(batch.inputs); };
  return task;
}

}  // namespace ulp::train
