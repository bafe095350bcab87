#include "ulp/app/eval.h"

#include <filesystem>

#include "ulp/app/data.h"
#include "ulp/app/runnable.h"

namespace ulp::app {

Trial make_trial(const EvalOptions& options) {
  Trial trial;
  const auto stored = read_model_spec(options.model);
  if (stored && stored->kind != NetworkKind::image) {
    trial.spec = *stored;
    trial.kind = "LibTorch";
    trial.forward = load_network(options.model).forward;
  } else {
    const Runnable model = load_runnable(options.model, options.script_spec, options.threads);
    trial.spec = model.spec;
    trial.kind = model.kind;
    trial.forward = [model](const train::TaskBatch& batch) { return model.forward(batch.inputs); };
  }
  const bool folder = options.data == "fashion-mnist" || std::filesystem::is_directory(options.data);
  if (folder && trial.spec.kind == NetworkKind::image) {  // no need to read the training images
    trial.batches =
        train::image_stream(load_images(options.data, io::Split::test, trial.spec), {.batch = options.batch});
  } else {
    const TaskData data = load_data(options.data, /*length=*/0, &trial.spec);
    trial.unit = data.unit;
    trial.batches = data.stream(io::Split::test, {.batch = options.batch});
  }
  return trial;
}

}  // namespace ulp::app
