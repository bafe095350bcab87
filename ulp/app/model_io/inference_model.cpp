#include "ulp/app/model_io/inference_model.h"

#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"

namespace ulp::app {

bool is_engine_file(const std::filesystem::path& path) {
  if (is_exchange_file(path) || is_pretrained_file(path) || is_zip_file(path)) return false;
  expect_safetensors(path);
  return SafetensorsFile(path).metadata().contains("ulp.plan");
}

namespace {

/// What the plan says of its model; of a foreign one what its tensors say.
ModelSpec engine_spec(const std::filesystem::path& path, const runtime::Plan& plan,
                      const runtime::Engine& engine, ModelSpec spec) {
  const auto found = plan.metadata.find(kModelSpecKey);
  if (found != plan.metadata.end()) return ModelSpec::from_json(found->second);
  const std::vector<int64_t>& shape = engine.inputs().front().shape;
  spec.name = path.stem().string();
  if (shape.size() == 4 || (shape.size() == 2 && engine.inputs().front().type == runtime::DataType::f32)) {
    spec.in_channels = shape[1];
    if (shape.size() == 2) {
      spec.take_rows();
    } else {
      spec.image_size = shape[2];
      spec.image_width = shape[3];
    }
    spec.mean.resize(static_cast<size_t>(shape[1]), spec.mean.back());
    spec.std.resize(static_cast<size_t>(shape[1]), spec.std.back());
  }
  spec.num_classes = engine.outputs().front().shape.back();
  return spec;
}

}  // namespace

InferenceModel load_inference_model(const std::filesystem::path& path, const ModelSpec& script_spec,
                                    const runtime::EngineOptions& engine) {
  InferenceModel result;
  if (is_engine_file(path)) {
    result.kind = "engine";
    const runtime::Plan plan = runtime::Plan::load(path);
    result.engine = std::make_shared<runtime::Engine>(plan, engine);
    if (result.engine->inputs().size() != 1 || result.engine->outputs().size() != 1) {
      fail_file("app.load_inference_model", "expected an engine with one input and one output, got ",
                result.engine->inputs().size(), " and ", result.engine->outputs().size(), " in '",
                path.string(), "'");
    }
    result.spec = engine_spec(path, plan, *result.engine, script_spec);
    expect_asked_sizes(script_spec, result.spec, path);
    result.forward = [engine = result.engine](const at::Tensor& images) {
      return train::engine_classifier(*engine)(images);
    };
  } else {
    if (engine.error_budget > 0)
      fail_file("app.load_inference_model", "expected an engine file beside an error budget, got '",
                path.string(), "'");
    LoadedModel model = load_model_file(path, script_spec);
    result.kind = "LibTorch";
    result.spec = model.spec;
    result.forward = std::move(model.forward);
    result.graph = std::move(model.graph);
  }
  return result;
}

InferenceModel as_partitioned(const InferenceModel& model, const runtime::EngineOptions& engine) {
  InferenceModel result = model;
  result.kind = "pieces";
  result.pieces = std::make_shared<PartitionedModel>(lower_partitioned(model.graph, {}, {}, engine));
  result.forward = [pieces = result.pieces](const at::Tensor& images) { return pieces->run({images}).at(0); };
  return result;
}

}  // namespace ulp::app
