// Adapters for captured models:
//
//   auto captured = ulp::capture(model, {tokens});
//   auto tuned = ulp::lora::add_lora(captured, {.rank = 16, .target_modules = {"q_proj", "v_proj"}});
//   torch::optim::AdamW optimizer(tuned->parameters(), 2e-4);      // the adapters
//   ...
//   ulp::lora::save_adapter("adapter", *tuned);                    // adapter_file.h
//   auto merged = ulp::lora::merge_lora(*tuned);                   // merge_lora.h
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/lora/lora_model.h"
#include "ulp/lora/lora_options.h"

namespace ulp::lora {

/// A copy of the captured model whose target layers have adapters and all of whose own tensors are frozen;
/// batch norms compute with their running statistics, which are frozen, too. A is drawn from the default
/// generator, uniform in +-1 / sqrt(in), and B is 0, so that the copy begins as the model with the weights of
/// options.base. Layers are aten::linear and products with a stored matrix [in, out] (GPT-2's). With base
/// fp32 the copy shares the captured model's memory. Else weights of all linear layers are kept in that
/// format, where the last layer, skip_modules, and embeddings are bf16 beside codes; the captured model stays
/// as it is, and may go.
///
/// Throws ulp::Error for null, bad options, a name in target_modules that ends the path of no linear layer, a
/// rank larger than a layer's sides, a target whose weight something else reads, too (a tied embedding),
/// weights that are not float32, a model that is quantized already, one with modules that capture left whole
/// and that have parameters, and for buffers that the model writes otherwise than batch norms do. `report`
/// (may be null) receives which layers have adapters, and in which numbers each weight is kept.
ULP_API std::shared_ptr<LoraModel> add_lora(const std::shared_ptr<graph::GraphModule>& captured,
                                            const LoraOptions& options, graph::PassReport* report = nullptr);

}  // namespace ulp::lora
