#include "ulp/app/run/eval.h"

#include "ulp/app/data/data.h"
#include "ulp/app/model_io/adapter.h"
#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"

namespace ulp::app {

namespace {

/// Whether it takes samples and says logits.
void expect_trial(const InferenceModel& model, const std::string& path) {
  if (model.graph) {
    expect_sample_input(*model.graph, path);
    expect_logits(*model.graph, path);
    return;
  }
  const std::vector<int64_t>& result = model.engine->outputs().front().shape;
  if (result.size() < 2 || result.back() == 1)
    fail_file("app.eval",
              "expected an engine with the logits of two classes or more, got one number for each "
              "sample from '",
              path, "'");
}

/// The model with the adapter merged.
void open_adapted(const EvalOptions& options, Trial& trial) {
  if (is_engine_file(options.model))
    fail_file("app.make_trial", "expected a model whose weights are floats beside an adapter, got '",
              options.model, "', an engine file");
  LoadedModel model = load_any_model_file(options.model, options.script_spec);
  merge_adapter(model, options.adapter, options.model);
  if (model.spec.kind == NetworkKind::image) {
    expect_sample_input(*model.graph, options.model);
    expect_logits(*model.graph, options.model);
  }
  trial.spec = model.spec;
  trial.kind = "LibTorch";
  trial.forward = [forward = model.forward](const train::TaskBatch& batch) { return forward(batch.inputs); };
}

}  // namespace

Trial make_trial(const EvalOptions& options) {
  Trial trial;
  const auto stored = options.adapter.empty() ? read_model_spec(options.model) : std::nullopt;
  if (!options.adapter.empty()) {
    open_adapted(options, trial);
  } else if (stored && stored->kind != NetworkKind::image) {
    if (options.error_budget > 0)
      fail_file("app.make_trial", "expected an engine file beside an error budget, got '", options.model,
                "'");
    expect_asked_sizes(options.script_spec, *stored, options.model);
    trial.spec = *stored;
    trial.kind = "LibTorch";
    trial.forward = load_network(options.model, with_sizes_of(ModelSpec(), options.script_spec)).forward;
  } else {
    const InferenceModel model =
        load_inference_model(options.model, options.script_spec,
                             {.threads = options.threads,
                              .error_budget = options.error_budget,
                              .max_measuring_seconds = options.max_measuring_seconds});
    expect_trial(model, options.model);
    trial.spec = model.spec;
    trial.kind = model.kind;
    trial.forward = [model](const train::TaskBatch& batch) { return model.forward(batch.inputs); };
  }
  const SplitData data = load_split(options.data, io::Split::test, trial.spec);
  trial.unit = data.unit;
  trial.batches = data.stream({.batch = options.batch});
  return trial;
}

}  // namespace ulp::app
