#include "ulp/app/quantize/plan_metrics.h"

#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

int64_t weight_bytes(const runtime::Plan& plan) {
  int64_t bytes = 0;
  for (const auto& [name, constant] : plan.constants) bytes += static_cast<int64_t>(constant.bytes.size());
  return bytes;
}

train::Accuracy accuracy_of(const runtime::Plan& plan, train::BatchStream& batches, int threads,
                            const train::OnSamples& on_samples) {
  runtime::Engine engine(plan, {.threads = threads});
  const train::Classifier classifier = train::engine_classifier(engine);
  return train::evaluate([&](const train::TaskBatch& batch) { return classifier(batch.inputs); }, batches,
                         on_samples);
}

}  // namespace ulp::app
