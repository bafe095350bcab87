// A captured model as a Core ML package, which Apple's devices run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "ulp/base/export.h"

namespace ulp {
namespace graph {
class GraphModule;
}
}  // namespace ulp

namespace ulp::exchange {

/// How a model becomes a Core ML package.
struct ULP_API CoreMlOptions {
  /// The package's inputs have this batch.
  int64_t batch = 1;
  /// Weights and arithmetic in float16; inputs and results stay float32. Weights that float16 cannot hold are an error. Of float
  /// models.
  bool fp16 = false;
  /// Weights of convolutions, linear layers and embeddings in 8 bits, with a scale for each output channel or row; symmetric in
  /// [-127, 127]. Arithmetic stays in float32, or float16. Of float models; those of transposed convolutions stay as they are.
  bool int8_weights = false;
  /// Sizes of the free dimensions, by their names; the largest one of a dimension that is not named.
  std::map<std::string, int64_t> sizes = {};
  /// Copied into the package.
  std::map<std::string, std::string> metadata = {};
};

/// Writes the model as it behaves in eval mode as an ML program of iOS 16 and macOS 13 to the folder `path`,
/// whose name ends in ".mlpackage"; the model itself is not changed. Sizes are numbers; inputs and results of
/// int64, uint8 and bool are int32. Batch norms are folded into the layers before them. Names get "_" for
/// each character that is no letter and no digit. Equal models give equal files. Models of
/// quant::quantize_weights with 8 bits keep their codes. The folder is there whole or not at all, and takes
/// the place of an older package of this name. Throws ulp::Error that names each call without a converter,
/// with its node, and the ops that have one; for bfloat16; for an input without sizes; and for a path at
/// which something else is.
ULP_API void export_coreml(const graph::GraphModule& model, const std::filesystem::path& path,
                           const CoreMlOptions& options = {});

}  // namespace ulp::exchange
