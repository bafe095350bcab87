#include <torch/types.h>

#include <algorithm>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/app/data/data.h"
#include "ulp/app/demo/demo_parts.h"
#include "ulp/app/quantize/quantize.h"
#include "ulp/io/safetensors.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/measure/measure.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/report/progress.h"

namespace ulp::app {

namespace {

train::Classifier eager(const std::shared_ptr<models::ImageModel>& model, bool bf16) {
  return [model, bf16](const at::Tensor& images) {
    const amp::Autocast autocast(c10::kCPU, c10::kBFloat16, bf16);
    return model->forward(images.contiguous(at::MemoryFormat::ChannelsLast)).to(torch::kFloat);
  };
}

train::Accuracy evaluate_shown(const std::string& name, const train::Classifier& classifier,
                               const DemoData& data) {
  report::Progress progress("evaluate " + name, data.test.size(), {.unit = "image"});
  return train::evaluate(classifier, data.test, 250, [&](int64_t done) { progress.update(done); });
}

struct Engines {
  std::vector<std::string> names;
  std::vector<std::unique_ptr<runtime::Engine>> engines;
  std::vector<std::filesystem::path> files;
};

Engines build_engines(const DemoData& data, models::ImageModel& model, const std::filesystem::path& out) {
  const auto captured = capture_model(model, data.spec);
  report::Progress progress("calibrate int8", kCalibrationImages, {.unit = "image"});
  const QuantizedModel quantized = quantize(captured, quant::Recipe::x86_int8(), data.train,
                                            kCalibrationImages, [&](int64_t done) { progress.update(done); });
  progress.finish();
  Engines result;
  const auto add = [&](const std::string& name, graph::GraphModule& module,
                       LowerOptions::Precision precision) {
    const runtime::Plan plan =
        lower(module, {.precision = precision, .metadata = {{kModelSpecKey, data.spec.to_json()}}});
    result.files.push_back(out / ("model." + name + ".ulp"));
    plan.save(result.files.back());
    result.names.push_back(name);
    result.engines.push_back(std::make_unique<runtime::Engine>(
        result.files.back(), runtime::EngineOptions{.threads = at::get_num_threads()}));
  };
  add("fp32", *captured, LowerOptions::Precision::f32);
  add("bf16", *captured, LowerOptions::Precision::bf16);
  add("int8", *quantized.graph, LowerOptions::Precision::f32);
  return result;
}

measure::Candidate eager_candidate(const std::string& name, const train::Classifier& classifier,
                                   const at::Tensor& images) {
  return {name,
          [classifier, images](int64_t batch) {
            const c10::InferenceMode inference;
            classifier(images.narrow(0, 0, batch));
          },
          at::get_num_threads()};
}

measure::Candidate engine_candidate(const std::string& name, runtime::Engine& engine,
                                    const at::Tensor& images, int64_t classes) {
  const at::Tensor logits = torch::empty({images.size(0), classes});
  return {name,
          [&engine, images, logits](int64_t batch) {
            const void* in = images.const_data_ptr();
            void* out = logits.mutable_data_ptr();
            engine.run(batch, {&in, 1}, {&out, 1});
          },
          engine.threads()};
}

std::vector<measure::Timing> time_shown(const std::string& title,
                                        const std::vector<measure::Candidate>& candidates, int64_t batch,
                                        bool quick) {
  measure::MeasureOptions budget = measure_budget(quick);
  // Unknown total: the rounds of disturbed measurements come on top.
  report::Progress progress(title, 0, {.unit = "round"});
  budget.progress = [&](int64_t done, int64_t) { progress.update(done); };
  return measure::time_in_turns(candidates, batch, budget);
}

}  // namespace

std::optional<double> Variant::others() const {
  std::optional<double> most = std::max(single.others, batched.others);
  return epoch ? std::max(most, epoch->others) : most;
}

std::vector<Variant> run_variants(const DemoData& data, std::vector<TrainingRun>& runs,
                                  const DemoOptions& options) {
  TrainingRun& fp32 = runs.at(0);
  TrainingRun& bf16 = runs.at(1);
  const std::filesystem::path weights = options.out / "model.safetensors";
  io::save_model(weights, *fp32.model, {{kModelSpecKey, data.spec.to_json()}});
  Engines engines = build_engines(data, *fp32.model, options.out);
  const at::Tensor images = first_images(data.test, kThroughputBatch);

  std::vector<Variant> variants;
  std::vector<measure::Candidate> candidates;
  for (TrainingRun* run : {&fp32, &bf16}) {
    const train::Classifier classifier = eager(run->model, run->precision == "bf16");
    run->model->eval();
    run->accuracy = evaluate_shown("LibTorch " + run->precision, classifier, data);
    Variant variant;
    variant.name = "LibTorch " + run->precision;
    variant.accuracy = run->accuracy;
    variant.epoch = run->epoch();
    variant.memory_bytes = run->peak_bytes;
    if (run == &fp32) variant.file_bytes = static_cast<int64_t>(std::filesystem::file_size(weights));
    candidates.push_back(eager_candidate(variant.name, classifier, images));
    variants.push_back(std::move(variant));
  }
  for (size_t i = 0; i < engines.engines.size(); ++i) {
    runtime::Engine& engine = *engines.engines[i];
    Variant variant;
    variant.name = "engine " + engines.names[i];
    variant.accuracy = evaluate_shown(variant.name, train::engine_classifier(engine), data);
    variant.file_bytes = static_cast<int64_t>(std::filesystem::file_size(engines.files[i]));
    candidates.push_back(engine_candidate(variant.name, engine, images, data.spec.num_classes));
    variants.push_back(std::move(variant));
  }
  const auto single = time_shown("measure batch 1", candidates, 1, options.quick);
  const auto batched = time_shown("measure batch 64", candidates, kThroughputBatch, options.quick);
  for (size_t i = 0; i < variants.size(); ++i) {
    variants[i].single = single[i];
    variants[i].batched = batched[i];
    if (i >= 2) {
      const runtime::Engine& engine = *engines.engines[i - 2];
      variants[i].memory_bytes = static_cast<int64_t>(engine.arena_bytes() + engine.constant_bytes());
    }
  }
  return variants;
}

}  // namespace ulp::app
