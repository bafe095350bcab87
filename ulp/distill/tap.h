// Taps: further results of a captured model, for losses that look inside.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distill {

/// The handling of the model's own result.
enum class Keep {
  result,  ///< it is returned, too
  taps     ///< only what the taps need is computed, in eval mode
};

/// A model that gives the values at places (place.h) beside its result. Tensors and submodules are those of the model, so that it
/// trains with its tapped form, and the other way round; modes are apart.
class ULP_API TappedModel {
 public:
  /// Throws ulp::Error as find_layer_output() does. The model is not changed.
  TappedModel(const graph::GraphModule& model, std::span<const std::string> places, Keep keep = Keep::result);

  struct Values {
    c10::IValue result;            ///< as the model returns it; None with Keep::taps
    std::vector<at::Tensor> taps;  ///< in the order of the places
    /// The result, or its first tensor. Throws ulp::Error where there is none.
    at::Tensor output() const;
  };
  /// As GraphModule::run().
  Values run(const std::vector<at::Tensor>& inputs) const;

  /// The tapped graph; a tuple of the result and the list of taps.
  const std::shared_ptr<graph::GraphModule>& module() const { return module_; }

 private:
  std::shared_ptr<graph::GraphModule> module_;
  Keep keep_;
};

}  // namespace ulp::distill
