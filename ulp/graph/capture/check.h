// Compares a captured graph with its model at inputs that capture did not see.
#pragma once

#include <vector>

#include "ulp/graph/capture/builder.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::graph {

/// Throws ulp::Error naming the first call that differs where the graph does not give what the model gives for one of
/// options.check. `built` is the graph of the module.
/// The graph as a model of its own, which shares the tensors of the model and lives as long as `module`.
Subject replay_of(const Subject& subject, GraphModule& module);

/// Throws ulp::Error where the graph, whose calls LibTorch differentiates, has other gradients than the model with
/// its custom autograd functions, at numbers that are drawn: `refusal` says which function.
void check_gradients(const Subject& subject, GraphModule& module, const std::vector<at::Tensor>& examples,
                     const std::string& refusal);

/// Throws ulp::Error where the graph gives other results than the model at the sizes of its runs, with drawn numbers:
/// for masks that are calls of the graph, of which C++ may have written elements that no call shows.
void check_written_masks(const Subject& subject, GraphModule& module, const Built& built, const Runs& runs,
                         bool trains);

void check_captured(const Subject& subject, GraphModule& module, const Built& built, const Runs& runs,
                    const CaptureOptions& options);

}  // namespace ulp::graph
