// The function behind add_lora() and load_adapter(). Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/passes/pass.h"
#include "ulp/lora/adapter_file.h"
#include "ulp/lora/lora_model.h"

namespace ulp::lora {

/// Adapters by the model's own paths.
using GivenAdapters = std::map<std::string, AdapterPair>;

/// add_lora(); with `given` exactly those layers have adapters, which are copies of these.
std::shared_ptr<LoraModel> add_adapters(const std::shared_ptr<graph::GraphModule>& captured,
                                        const LoraOptions& options, const GivenAdapters* given,
                                        graph::PassReport* report);

/// Paths of the linear layers that add_adapters() sees, in order of execution.
std::vector<std::string> linear_paths(const graph::GraphModule& captured);

}  // namespace ulp::lora
