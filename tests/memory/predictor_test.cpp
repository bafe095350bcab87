// Predictor against a meter, on a network of the tests' own, at sizes that it has not run.
#include "ulp/memory/predict/predictor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/memory/predict/recorder.h"

namespace {

using namespace ulp::memory;

/// Attention over random vectors: memory grows with the square of the length.
struct Attention : torch::nn::Module {
  Attention() : layer(register_module("layer", torch::nn::Linear(24, 72))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = layer(x).chunk(3, -1);
    return at::softmax(parts[0].matmul(parts[1].transpose(1, 2)), -1).matmul(parts[2]);
  }
  torch::nn::Linear layer;
};

/// Two steps of SGD with momentum; `enter` is told the phases.
template <typename Watch, typename Enter>
void train_attention(RunSize size, const Watch& watch, const Enter& enter) {
  auto model = std::make_shared<Attention>();
  watch(*model);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    enter(Phase::data);
    const at::Tensor x = torch::randn({size.batch, size.length, 24});
    enter(Phase::forward);
    at::Tensor loss = model->forward(x).square().mean();
    enter(Phase::backward);
    loss.backward();
    enter(Phase::step);
    sgd.step();
  }
}

Recording record_attention(RunSize size) {
  MemoryRecorder recorder;
  train_attention(
      size, [&](torch::nn::Module& model) { recorder.watch(model); },
      [&](Phase phase) { recorder.enter(phase); });
  return recorder.finish();
}

int64_t measure_attention(RunSize size) {
  const ulp::measure::MemoryMeter meter;
  train_attention(
      size, [](torch::nn::Module&) {}, [](Phase) {});
  return meter.peak_bytes();
}

TEST(Predictor, MeetsTheMeterAtSizesThatItHasNotRun) {
  Predictor predictor(record_attention, {.batches = {1, 2, 4}, .lengths = {8, 12, 20}});
  for (const RunSize size : {RunSize{1, 50}, {3, 64}, {32, 16}, {17, 101}}) {
    const int64_t measured = measure_attention(size), predicted = predictor.peak_bytes(size);
    EXPECT_GE(predicted, measured) << size.batch << " x " << size.length;
    EXPECT_LE(static_cast<double>(predicted), 1.005 * static_cast<double>(measured));
  }
}

TEST(Predictor, FindsTheLargestThatFits) {
  Predictor predictor(record_attention, {.batches = {1, 2, 4}, .lengths = {8, 12, 20}});
  const int64_t budget = 8 << 20;
  const int64_t batch = predictor.largest_batch(budget, 64);
  EXPECT_LE(measure_attention({batch, 64}), budget);
  EXPECT_GT(measure_attention({batch + 1, 64}), budget);
  const int64_t length = predictor.largest_length(budget, 4, 100000);
  EXPECT_LE(measure_attention({4, length}), budget);
  EXPECT_GT(measure_attention({4, length + 1}), budget);
  EXPECT_EQ(predictor.largest_batch(budget, 64, batch - 1), batch - 1);
  EXPECT_EQ(predictor.largest_batch(1000, 64), 0);
  EXPECT_EQ(predictor.largest_length(1000, 1, 64), 0);
}

TEST(Predictor, RunsNoLargeSizesAndOnlyWhatItNeeds) {
  int64_t largest = 0, runs = 0;
  const auto probe = [&](RunSize size) {
    largest = std::max(largest, size.batch * size.length);
    ++runs;
    return record_attention(size);
  };
  Predictor predictor(probe, {.batches = {1, 2, 4}, .lengths = {16}, .check = false});
  predictor.peak_bytes({1000, 16});
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(largest, 64);
  predictor.peak_bytes({2000, 16});
  EXPECT_EQ(runs, 2);
  predictor.peak_bytes({1, 16});
  EXPECT_EQ(runs, 3);
}

TEST(Predictor, WhatTheCheckFindsMissingIsAdded) {
  const auto probe = [](RunSize size) {  // 1 % more than a line from batch 5 on
    const int64_t bytes = size.batch * 100000;
    Recording recording{.places = {{}}, .runs = {0}, .lives = {}};
    recording.lives.push_back(
        {.bytes = size.batch < 5 ? bytes : bytes + bytes / 100, .begin = {}, .end = {}});
    return recording;
  };
  Predictor predictor(probe, {.batches = {2, 4}});
  EXPECT_NEAR(predictor.slack(), 0.01, 1e-9);
  EXPECT_EQ(predictor.peak_bytes({100, 0}), 10'100'000);
  const Prediction prediction = predictor.at({100, 0});
  EXPECT_EQ(prediction.peak_bytes, 10'100'000);
  EXPECT_EQ(prediction.at_peak.total(), 10'100'000);
}

TEST(Predictor, RefusesSizesThatMakeNoSense) {
  EXPECT_ERROR(Predictor(record_attention, {.batches = {2}}), "expected two or more batches");
  EXPECT_ERROR(Predictor(record_attention, {.batches = {4, 2}}), "growing");
  EXPECT_ERROR(Predictor(record_attention, {.lengths = {1, 2}}), "one length or three");
  Predictor fixed(record_attention, {.lengths = {16}});
  EXPECT_ERROR(fixed.at({1, 17}), "expected length 16, the only one of the runs, got 17");
  EXPECT_ERROR(fixed.at({0, 16}), "expected a batch >= 1, got 0");
}

}  // namespace
