#include "ulp/app/roofline/roofline.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/roofline/roofline_parts.h"
#include "ulp/base/error.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::app {

namespace {

bool is_text(const RooflineNetwork& network) {
  return network.model.kind != NetworkKind::image;
}

std::shared_ptr<graph::GraphModule> quantized(const RooflineNetwork& network) {
  if (is_text(network)) return quant::quantize(network.graph, quant::DynamicRecipe{});
  return quant::quantize(network.graph, quant::Recipe::x86_int8(), [&](graph::GraphModule& prepared) {
    prepared.forward(network.model.draw({.batch = 2}).inputs);
  });
}

runtime::Plan plan_of(const RooflineNetwork& network, RooflinePrecision precision) {
  if (precision == RooflinePrecision::int8) return lower(*quantized(network));
  const bool bf16 = precision == RooflinePrecision::bf16;
  return lower(*network.graph,
               {.precision = bf16 ? LowerOptions::Precision::bf16 : LowerOptions::Precision::f32});
}

/// A name of a reference network is no file.
bool is_engine(const std::string& model) {
  return std::filesystem::exists(model) && is_engine_file(model);
}

runtime::Plan open_plan(const RooflineOptions& options, RooflineResult& result) {
  if (is_engine(options.model)) {
    result.title = options.model + ", engine";
    return runtime::Plan::load(options.model);
  }
  const RooflineNetwork network = open_network(options);
  result.title = network.model.name + ", engine in " + enum_name(options.precision);
  if (options.precision == RooflinePrecision::int8) {
    result.notes.emplace_back(
        is_text(network) ? "Quantized dynamically."
                         : "Quantized statically with random images: right in speed, not in accuracy.");
  }
  return plan_of(network, options.precision);
}

}  // namespace

void check_roofline(const RooflineOptions& options, bool chosen) {
  constexpr const char* kWhere = "app.roofline";
  if (options.batch < 1) fail(kWhere, "expected a batch of at least 1, got ", options.batch);
  if (options.runs < 1) fail(kWhere, "expected at least 1 run, got ", options.runs);
  if (options.length < 0) fail(kWhere, "expected at least 1 token, got ", options.length);
  if (options.train && options.precision == RooflinePrecision::int8)
    fail(kWhere, "expected fp32 or bf16 for training, got int8");
  if (!is_engine(options.model)) return;
  if (options.train) fail(kWhere, "expected a model to train, got the engine file '", options.model, "'");
  if (chosen)
    fail(kWhere, "expected no precision beside an engine file, which has its own, got ",
         enum_name(options.precision));
}

namespace {

/// The highest share of a bound that any part reaches.
double highest_share(const RooflineResult& result) {
  const measure::Surroundings around{constant_bytes(result.parts)};
  double highest = 0;
  for (const ProfiledPart& part : result.parts)
    highest =
        std::max(highest, measure::roofline_point(part.work, part.seconds, result.peaks, around).share());
  return highest;
}

}  // namespace

RooflineResult roofline(const RooflineOptions& options) {
  check_roofline(options);
  RooflineResult result;
  const auto say = [&](const std::string& part) {
    if (options.progress) options.progress(part);
  };
  const auto measure_again = [&] {
    return measure::measure_peaks({.threads = options.threads,
                                   .quick = options.quick,
                                   .progress = [&](const std::string& part) { say("peaks: " + part); }});
  };
  std::optional<RooflineNetwork> network;
  std::optional<runtime::Engine> engine;
  say("the network");
  if (options.train) {
    network = open_network(options);
    result.title = network->model.name + ", training in " + enum_name(options.precision);
  } else {
    engine.emplace(open_plan(options, result), runtime::EngineOptions{.threads = options.threads});
  }
  result.title += ", batch " + std::to_string(options.batch);
  result.peaks = measure_again();
  say("the network");
  measure::QuietMeter quiet(options.probe);
  quiet.begin();
  result.parts =
      network ? profile_training(*network, options) : profile_steps(*engine, options.batch, options.runs);
  quiet.end();
  result.others = quiet.others();
  for (const ProfiledPart& part : result.parts) result.seconds += part.seconds;
  // A clock that rises meanwhile, or another program that ends, makes a peak that was too low.
  constexpr int kMostTimes = 4;
  int times = 0;
  do result.peaks.raise(measure_again());
  while (++times < kMostTimes && highest_share(result) > 1);
  return result;
}

}  // namespace ulp::app
