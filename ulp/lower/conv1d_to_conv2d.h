// Sequences as images of height 1: the engine's convolutions and poolings are those of images.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// conv1d and 1-d poolings on [N, C, L] become the 2-d ops on [N, C, 1, L], with aten::unsqueeze and
/// aten::squeeze where sequences come in and go out; activations, sums, joined channels and quantizers
/// between them work on the images. Sizes must be known. A layer whose weight something else reads, too,
/// stays as it is.
void make_sequences_images(graph::Graph& graph);

}  // namespace ulp::lowering
