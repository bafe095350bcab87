#include "ulp/train/learning.h"

#include <torch/types.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"

namespace ulp::train {

namespace {

class Relabelled final : public BatchStream {
 public:
  Relabelled(std::unique_ptr<BatchStream> batches, at::Tensor targets)
      : batches_(std::move(batches)), targets_(std::move(targets)) {
    if (targets_.scalar_type() != at::kLong)
      fail("train.relabelled", "expected int64 targets, got ", targets_.scalar_type());
    if (targets_.dim() != 1 || targets_.size(0) != batches_->samples())
      fail("train.relabelled", "expected a target for each of the ", batches_->samples(), " samples, got ",
           targets_.sizes());
  }
  std::optional<TaskBatch> next() override {
    std::optional<TaskBatch> batch = batches_->next();
    if (!batch) return batch;
    if (!batch->samples.defined()) fail("train.relabelled", "expected data that numbers its samples");
    batch->targets = targets_.index_select(0, batch->samples);
    return batch;
  }
  int64_t samples() const override { return batches_->samples(); }
  int64_t batches() const override { return batches_->batches(); }
  int64_t epoch() const override { return batches_->epoch(); }
  std::string state() const override { return batches_->state(); }
  void restore(const std::string& state) override { batches_->restore(state); }

 private:
  std::unique_ptr<BatchStream> batches_;
  at::Tensor targets_;
};

class Joined final : public BatchStream {
 public:
  Joined(std::unique_ptr<BatchStream> labelled, std::unique_ptr<BatchStream> unlabelled)
      : labelled_(std::move(labelled)), unlabelled_(std::move(unlabelled)) {
    if (unlabelled_->batches() < 1)
      fail("train.joined", "expected at least one batch of unlabelled data, got none of its ",
           unlabelled_->samples(), " samples");
  }
  std::optional<TaskBatch> next() override {
    std::optional<TaskBatch> batch = labelled_->next();
    if (!batch) return batch;
    std::optional<TaskBatch> more = unlabelled_->next();
    if (!more) more = unlabelled_->next();
    if (batch->inputs.sizes().slice(1) != more->inputs.sizes().slice(1))
      fail("train.joined", "expected samples of one shape, got ", batch->inputs.sizes(), " and ",
           more->inputs.sizes());
    const bool numbered = batch->samples.defined() && more->samples.defined();
    batch->inputs = at::cat({batch->inputs, more->inputs});
    batch->targets = at::cat({batch->targets, at::full_like(more->targets, distill::kUnlabelled)});
    batch->samples =
        numbered ? at::cat({batch->samples, more->samples + labelled_->samples()}) : at::Tensor();
    return batch;
  }
  int64_t samples() const override { return labelled_->samples() + unlabelled_->samples(); }
  int64_t batches() const override { return labelled_->batches(); }
  int64_t epoch() const override { return labelled_->epoch(); }
  std::string state() const override {
    return nlohmann::json{{"labelled", labelled_->state()}, {"unlabelled", unlabelled_->state()}}.dump();
  }
  void restore(const std::string& state) override {
    const auto json = parse_json_or_discarded(state);
    const auto text = [&](const char* name) {
      if (!json.is_object() || !json.contains(name) || !json[name].is_string())
        fail_file("train.joined", "expected the state of two streams, got another one");
      return json[name].get<std::string>();
    };
    labelled_->restore(text("labelled"));
    unlabelled_->restore(text("unlabelled"));
  }

 private:
  std::unique_ptr<BatchStream> labelled_, unlabelled_;
};

}  // namespace

distill::Batch distillation_batch(const TaskBatch& batch) {
  return {.inputs = {batch.inputs}, .targets = batch.targets, .samples = batch.samples};
}

Task learning_task(std::shared_ptr<distill::DistillationTask> learner, std::unique_ptr<BatchStream> batches) {
  Task task{.model = learner, .forward = {}, .batches = std::move(batches)};
  task.forward = [learner](const TaskBatch& batch) { return learner->forward(distillation_batch(batch)); };
  task.loss = [learner](const at::Tensor&, const TaskBatch& batch) {
    return learner->loss(distillation_batch(batch));
  };
  return task;
}

distill::DistillerSetup distillation_setup(BatchStream& batches, const TrainOptions& options) {
  const int64_t epoch = batches.batches();
  distill::DistillerSetup setup;
  setup.example = distillation_batch(example_batch(batches));
  setup.samples = batches.samples();
  setup.batches = options.max_steps > 0 ? options.max_steps * options.accumulate : epoch * options.epochs;
  setup.epoch_batches = epoch;
  return setup;
}

std::unique_ptr<BatchStream> relabelled(std::unique_ptr<BatchStream> batches, at::Tensor targets) {
  return std::make_unique<Relabelled>(std::move(batches), std::move(targets));
}

at::Tensor labelled_share(int64_t samples, double share, uint64_t seed) {
  if (samples < 1 || !(share > 0) || share > 1)
    fail("train.labelled_share", "expected samples >= 1 and a share in (0, 1], got ", samples, " and ",
         share);
  const auto count = std::max<int64_t>(1, std::llround(static_cast<double>(samples) * share));
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor order = at::randperm(samples, generator, at::TensorOptions(at::kLong));
  return at::zeros({samples}, at::kBool).index_fill_(0, order.narrow(0, 0, count), 1);
}

std::unique_ptr<BatchStream> joined(std::unique_ptr<BatchStream> labelled,
                                    std::unique_ptr<BatchStream> unlabelled) {
  return std::make_unique<Joined>(std::move(labelled), std::move(unlabelled));
}

}  // namespace ulp::train
