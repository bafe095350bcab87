// Adapters that become part of the weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lora/lora_model.h"

namespace ulp::lora {

/// The captured model with W + scaling B A in the place of W, in float32: the product, its scaling and the
/// sum are each rounded once. W is what the adapters were trained beside: with a base of codes their values.
/// A graph as it was captured, without adapters; tensors that are not changed are the captured model's own.
/// `report` (may be null) receives which weights have changed. Throws ulp::Error naming the layer for merged
/// weights that are not finite.
ULP_API std::shared_ptr<graph::GraphModule> merge_lora(const LoraModel& model,
                                                       graph::PassReport* report = nullptr);

/// The error of a merged weight that is rounded.
struct MergeError {
  std::string path;  ///< of the layer
  double relative_error =
      0;  ///< |Q - W| / |W| in the Frobenius norm, W the merged weight and Q what its codes stand for
};

/// merge_lora() into codes of the base's format, int8 or int4, as quant::quantize_weights() makes them:
/// weights without adapters keep their codes, merged ones are rounded anew to the nearest. In eval mode, with
/// batch norms folded. Throws ulp::Error for another base. `errors` (may be null) receives one entry for each
/// layer with an adapter.
ULP_API std::shared_ptr<graph::GraphModule> merge_lora_quantized(const LoraModel& model,
                                                                 std::vector<MergeError>* errors = nullptr,
                                                                 graph::PassReport* report = nullptr);

}  // namespace ulp::lora
