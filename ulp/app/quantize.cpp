#include "ulp/app/quantize.h"

#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/io/batch_loader.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

constexpr int64_t kCalibrationBatch = 100;

void check_samples(int64_t samples) {
  if (samples < 1) fail("app.quantize", "expected at least one calibration image, got ", samples);
}

void run_images(graph::GraphModule& prepared, const io::ImageDataset& data, int64_t samples,
                const train::OnSamples& on_images) {
  io::BatchLoader loader(io::slice(data, 0, std::min(samples, data.size())),
                         {.batch_size = kCalibrationBatch, .shuffle = false});
  int64_t done = 0;
  const PollsInterrupts polls;
  while (const auto batch = loader.next()) {
    check_interrupted();
    prepared.forward({batch->images});
    done += batch->images.size(0);
    if (on_images) on_images(done);
  }
}

}  // namespace

std::shared_ptr<quant::PreparedModule> calibrate(const std::shared_ptr<graph::GraphModule>& captured,
                                                 const quant::Recipe& recipe, const io::ImageDataset& data,
                                                 int64_t samples, const train::OnSamples& on_images) {
  check_samples(samples);
  auto prepared = quant::prepare(captured, recipe);
  prepared->eval();
  const torch::NoGradGuard no_grad;
  run_images(*prepared, data, samples, on_images);
  return prepared;
}

QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured, const quant::Recipe& recipe,
                        const io::ImageDataset& data, int64_t samples, const train::OnSamples& on_images) {
  check_samples(samples);
  QuantizedModel result;
  const auto feed = [&](graph::GraphModule& prepared) { run_images(prepared, data, samples, on_images); };
  result.graph = quant::quantize(captured, recipe, feed, &result.report);
  return result;
}

}  // namespace ulp::app
