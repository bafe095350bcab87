// A captured model with low-rank adapters: its own weights are frozen, and the adapters alone are parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lora/frozen_weight.h"
#include "ulp/lora/lora_options.h"

namespace ulp::lora {

/// A linear layer with an adapter.
struct LoraLayer {
  std::string path;         ///< of its module
  std::string weight;       ///< name of its weight in the captured model
  std::string a, b;         ///< names of the parameters A [rank, in] and B [out, rank]
  bool transposed = false;  ///< the model stores the weight as [in, out], as GPT-2's published code does
};

/// The captured model, and its weights that are kept in other numbers.
struct LoraBaseModel {
  /// The captured model's graph. A weight that `frozen` has is a tensor without memory there (of the device
  /// meta).
  std::shared_ptr<graph::Graph> graph;
  /// Weights that are kept in other numbers, by name; of linear layers as [out, in].
  std::map<std::string, FrozenWeight> frozen = {};
  std::map<std::string, bool> transposed =
      {};  ///< those of `frozen`: whether the model stores them as [in, out]
  std::vector<std::string> linear_paths = {};  ///< of all linear layers, with and without adapters
};

/// Runs the captured model with its adapters. parameters() are A and B of each layer and nothing else: what
/// reads parameters (optimizers, checkpoints, processes that average gradients) sees adapters alone. All
/// other tensors are constants of the graph.
class ULP_API LoraModel : public graph::GraphModule {
 public:
  LoraModel(std::shared_ptr<graph::Graph> graph, LoraOptions options, std::vector<LoraLayer> layers,
            LoraBaseModel base, std::vector<std::string> notes);

  const LoraOptions& options() const { return options_; }
  const std::vector<LoraLayer>& layers() const { return layers_; }
  const LoraBaseModel& base() const { return base_; }
  /// A and B of a layer.
  at::Tensor a(const LoraLayer& layer) const;
  at::Tensor b(const LoraLayer& layer) const;

  int64_t adapter_parameters() const;  ///< numbers that train
  int64_t base_bytes() const;          ///< of all frozen tensors, those that share memory once
  /// Tells one frozen base from another: of the bytes of all its tensors.
  uint64_t base_checksum() const;

 private:
  LoraOptions options_;
  std::vector<LoraLayer> layers_;
  LoraBaseModel base_;
};

}  // namespace ulp::lora
