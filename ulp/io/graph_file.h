// Captured models as files: a safetensors file with the parameters under their names, and the graph in its metadata. What
// passes made of a model (pruning, folding, quantization) is in it, so that no code of the model is needed to go on.
#pragma once

#include <filesystem>
#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/safetensors.h"

namespace ulp::io {

/// The key of the metadata under which the graph stands.
inline constexpr const char* kGraphKey = "ulp.graph";

/// Writes atomically. Throws ulp::Error for a graph with modules in it (one in calibration or quantized training: convert
/// first), for one that load_graph() would refuse, and where save_tensors() does. `metadata` must not have kGraphKey.
ULP_API void save_graph(const std::filesystem::path& path, const graph::GraphModule& model,
                        const Metadata& metadata = {});

/// Reads it back, in eval mode: the same nodes, names, tensors, dense strides and gradients wanted. Throws FileError for a
/// file that is missing, damaged or hostile, or holds no graph. Operators are those of ulp, and those of aten that check
/// what they are given.
ULP_API std::shared_ptr<graph::GraphModule> load_graph(const std::filesystem::path& path);

}  // namespace ulp::io
