#include "ulp/app/eval.h"

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
  const SplitData data = load_split(options.data, io::Split::test, trial.spec);
  trial.unit = data.unit;
  trial.batches = data.stream({.batch = options.batch});
  return trial;
}

}  // namespace ulp::app
