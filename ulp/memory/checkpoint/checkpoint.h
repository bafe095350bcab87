// Activation checkpointing: values of the forward pass are freed and computed again in the backward pass.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::memory {

/// From now on the module computes again what the plan says. Results, gradients, running statistics and the
/// random state are those of the module without a plan, bit for bit, under autocast too. The module stays
/// what it was for everything else: its parameters, modes, to(), optimizers. An empty plan takes
/// checkpointing back.
///
/// A plan holds for the graph as it is: a pass that removes a call of it makes recompile() throw. Parameters
/// may not be written, and the graph not be compiled again, between forward and backward: the backward throws
/// ulp::Error. Modules that nodes call (observers) and calls that write buffers run once, and keep what they
/// save.
///
///   auto model = ulp::capture(net, {x});
///   ulp::memory::checkpoint(*model, ulp::memory::plan_sqrt(model->graph()));
///   loss(model->forward(x)).backward();
///
/// Throws ulp::Error for a plan of another graph.
ULP_API void checkpoint(graph::GraphModule& module, CheckpointPlan plan);

}  // namespace ulp::memory
