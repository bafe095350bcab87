#include "ulp/app/quantize_mode.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ulp/base/error.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::app {

namespace {

QuantizedModel run_static(const QuantizeJob& job) {
  const int64_t samples = std::min(job.samples, job.data->size());
  return quantize(job.captured, job.recipe, *job.data, job.samples, [&](int64_t done) {
    if (job.progress) job.progress(done, samples, "");
  });
}

QuantizedModel run_qat(const QuantizeJob& job) {
  return quantize_qat(job.captured, job.recipe, *job.data, job.qat,
                      [&](const train::StepInfo& info, int64_t total) {
                        char note[32];
                        std::snprintf(note, sizeof note, "loss %.3f", info.loss);
                        if (job.progress) job.progress(info.step + 1, total, note);
                      });
}

QuantizedModel run_dynamic(const QuantizeJob& job) {
  quant::Recipe plain = quant::Recipe::x86_int8();
  plain.skip_modules = job.recipe.skip_modules;
  if (!(job.recipe == plain)) {
    fail("train.quantize", "expected a recipe of skip_modules alone for the mode dynamic, got other fields");
  }
  QuantizedModel result;
  result.graph =
      quant::quantize_dynamic(job.captured, {.skip_modules = job.recipe.skip_modules}, &result.report);
  return result;
}

QuantizedModel run_weight_only(const QuantizeJob& job) {
  QuantizedModel result;
  result.graph = quant::quantize_weights(job.captured, quant::weight_options(job.recipe), &result.report);
  return result;
}

constexpr std::array kModes = {
    QuantizeMode{"static", "ranges of weights and activations from calibration images", true, "calibrating",
                 "image", quant::Recipe::x86_int8, run_static},
    QuantizeMode{"qat", "trains on with rounded weights and activations", true, "training", "step",
                 quant::Recipe::x86_int8, run_qat},
    QuantizeMode{
        "dynamic",
        "linear and recurrent layers with int8 weights quantize their input as they run; needs no data",
        false, "quantizing", "layer", quant::Recipe::x86_int8, run_dynamic},
    QuantizeMode{"weight-only", "linear layers and embeddings keep weights of 4 bits, or 8; needs no data",
                 false, "quantizing", "layer", quant::Recipe::weight_only, run_weight_only}};

}  // namespace

std::span<const QuantizeMode> quantize_modes() {
  return kModes;
}

const QuantizeMode& find_quantize_mode(const std::string& name) {
  std::string names;
  for (const QuantizeMode& mode : kModes) {
    if (name == mode.name) return mode;
    names += (names.empty() ? "" : ", ") + std::string(mode.name);
  }
  fail("train.find_quantize_mode", "expected one of ", names, ", got '", name, "'");
}

}  // namespace ulp::app
