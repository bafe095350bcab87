// MemoryRecorder on programs whose memory is known by hand.
#include "ulp/memory/predict/recorder.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "error_of.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/memory/predict/prediction.h"

namespace {

using namespace ulp::memory;

constexpr int64_t kFloat = 4;

int64_t bytes_of(const Recording& recording, Category category) {
  int64_t bytes = 0;
  for (const Life& life : recording.lives) {
    if (life.category == category) bytes += life.bytes;
  }
  return bytes;
}

/// y = relu(x W + b), loss = sum(y), Adam; one step of `batch` rows.
Recording one_step(int64_t batch, int64_t in, int64_t out) {
  MemoryRecorder recorder;
  torch::nn::Sequential model(torch::nn::Linear(in, out), torch::nn::ReLU());
  recorder.watch(*model);
  torch::optim::Adam adam(model->parameters());
  recorder.enter(Phase::data);
  const at::Tensor x = torch::empty({batch, in});
  recorder.enter(Phase::forward);
  at::Tensor loss = model->forward(x).sum();
  recorder.enter(Phase::backward);
  loss.backward();
  recorder.enter(Phase::step);
  adam.step();
  return recorder.finish();
}

TEST(MemoryRecorder, TellsWhatStoragesAreFor) {
  const int64_t batch = 64, in = 30, out = 50, parameters = in * out + out;
  const Recording recording = one_step(batch, in, out);
  EXPECT_EQ(bytes_of(recording, Category::parameters), parameters * kFloat);
  EXPECT_EQ(bytes_of(recording, Category::gradients), parameters * kFloat);
  EXPECT_EQ(bytes_of(recording, Category::optimizer), 2 * parameters * kFloat);
  EXPECT_EQ(bytes_of(recording, Category::inputs), batch * in * kFloat);
  EXPECT_EQ(bytes_of(recording, Category::casts), 0);
  // The result of relu, which its backward reads, and the loss; the linear layer's own result is gone.
  EXPECT_EQ(bytes_of(recording, Category::activations), batch * out * kFloat + kFloat);
}

TEST(MemoryRecorder, PeakIsTheMeters) {
  const Recording recording = one_step(64, 30, 50);
  const auto measure = [] {
    const ulp::measure::MemoryMeter meter;
    torch::nn::Sequential model(torch::nn::Linear(30, 50), torch::nn::ReLU());
    torch::optim::Adam adam(model->parameters());
    const at::Tensor x = torch::empty({64, 30});
    at::Tensor loss = model->forward(x).sum();
    loss.backward();
    adam.step();
    return meter.peak_bytes();
  };
  EXPECT_EQ(recording.peak_bytes(), measure());
}

TEST(MemoryRecorder, CastsOfWeightsAreToldApart) {
  MemoryRecorder recorder;
  torch::nn::Linear model(40, 60);
  recorder.watch(*model);
  recorder.enter(Phase::data);
  const at::Tensor x = torch::randn({8, 40});
  recorder.enter(Phase::forward);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor y = model->forward(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  recorder.enter(Phase::backward);
  const Recording recording = recorder.finish();
  EXPECT_EQ(bytes_of(recording, Category::casts), (40 * 60 + 60) * 2);
}

TEST(MemoryRecorder, PlacesNameOpsAndModules) {
  MemoryRecorder recorder;
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::Linear(4, 1024));
  recorder.watch(*model);
  recorder.enter(Phase::forward);
  at::Tensor loss = torch::exp(model->forward(torch::ones({256, 4}))).sum();
  recorder.enter(Phase::backward);
  loss.backward();
  const Recording recording = recorder.finish();
  const auto has = [&](const CallSite& place) {
    return std::ranges::find(recording.places, place) != recording.places.end();
  };
  EXPECT_TRUE(has({Phase::forward, "aten::exp", "1"}));
  EXPECT_TRUE(has({Phase::backward, "ExpBackward0", "1"}));
  EXPECT_TRUE(has({Phase::backward, "AddmmBackward0", "0"}));
  EXPECT_EQ(describe(summarize(recording, {}).cause), "backward, ExpBackward0 at 1");
}

TEST(MemoryRecorder, OlderModelsCountAsMadeNow) {
  torch::nn::Linear model(10, 10);
  MemoryRecorder recorder;
  recorder.watch(*model);
  const Recording recording = recorder.finish();
  EXPECT_EQ(recording.peak_bytes(), 110 * kFloat);
}

TEST(MemoryRecorder, SeesNothingAfterItsEndAndRefusesASecond) {
  MemoryRecorder recorder;
  EXPECT_ERROR(MemoryRecorder(), "[memory.MemoryRecorder] expected no other recorder");
  recorder.finish();
  const at::Tensor unseen = torch::ones({1000});
  EXPECT_TRUE(recorder.finish().lives.empty());
  MemoryRecorder next;
  EXPECT_TRUE(next.finish().lives.empty());
}

}  // namespace
