// Weights that come as codes, from a file of another program: a captured model reads them in place of its
// own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"

namespace ulp {
namespace graph {
class GraphModule;
}

namespace quant {

/// A weight as ulp::dequantize_weight takes it (weights.h).
struct StoredQuantizedWeight {
  at::Tensor
      codes;  ///< u8 [rows, groups, size / 2], two codes in a byte; or s8 [rows, columns] or [rows, groups, size]
  at::Tensor scale;  ///< f32 [rows, groups]
  std::optional<at::Tensor> zero_point =
      std::nullopt;  ///< u8 [rows, groups] of 4 bits; none: 8, and 0 of 8 bits
  int64_t columns = 0;
  std::optional<at::Tensor> minimum =
      std::nullopt;  ///< f32 [rows, groups] of 4 bits without zero_point: w = scale code - minimum
};

/// A copy of a captured model, in eval mode, whose linear layers and embeddings read these codes in place of
/// the weights of these names; the captured one stays as it is. Codes are those of [out, in], also for a
/// weight that the model stores as [in, out]. Throws ulp::Error for a name that is the weight of no such
/// layer, and for codes of other rows and columns. `report` receives which layers read codes, and which not.
ULP_API std::shared_ptr<graph::GraphModule> read_quantized_weights(
    const std::shared_ptr<graph::GraphModule>& captured,
    const std::map<std::string, StoredQuantizedWeight>& codes, graph::PassReport* report = nullptr);

}  // namespace quant
}  // namespace ulp
