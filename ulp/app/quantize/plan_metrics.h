// What a plan weighs, and how well its engine does.
#pragma once

#include <cstdint>

#include "ulp/runtime/plan/plan.h"
#include "ulp/train/evaluate.h"

namespace ulp::app {

/// Bytes of its constants.
int64_t weight_bytes(const runtime::Plan& plan);

/// Runs an engine of the plan over one epoch of the batches, as train::evaluate().
train::Accuracy accuracy_of(const runtime::Plan& plan, train::BatchStream& batches, int threads,
                            const train::OnSamples& on_samples = {});

}  // namespace ulp::app
