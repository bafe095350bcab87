#include "ulp/app/quantize.h"

#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/io/batch_loader.h"
#include "ulp/quant/quantize.h"

namespace ulp::app {

namespace {
constexpr int64_t kCalibrationBatch = 100;
}

std::shared_ptr<quant::PreparedModule> calibrate(const std::shared_ptr<graph::GraphModule>& captured,
                                                 const quant::Recipe& recipe, const io::ImageDataset& data,
                                                 int64_t samples, const train::OnSamples& on_images) {
  if (samples < 1) fail("train.quantize", "expected at least one calibration image, got ", samples);
  auto prepared = quant::prepare(captured, recipe);
  prepared->eval();
  const torch::NoGradGuard no_grad;
  io::BatchLoader loader(io::slice(data, 0, std::min(samples, data.size())),
                         {.batch_size = kCalibrationBatch, .shuffle = false});
  int64_t done = 0;
  while (const auto batch = loader.next()) {
    check_interrupted();
    prepared->forward({batch->images});
    done += batch->images.size(0);
    if (on_images) on_images(done);
  }
  return prepared;
}

QuantizedModel quantize(const std::shared_ptr<graph::GraphModule>& captured, const quant::Recipe& recipe,
                        const io::ImageDataset& data, int64_t samples, const train::OnSamples& on_images) {
  QuantizedModel result;
  result.graph = quant::convert(calibrate(captured, recipe, data, samples, on_images), &result.report);
  return result;
}

}  // namespace ulp::app
