// Turns a model into a Graph by watching it run: unmodified torch::nn modules and TorchScript modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/export.h"

namespace torch::jit {
struct Module;
}
namespace torch::nn {
class Module;
}

namespace ulp {
namespace graph {
class GraphModule;

/// Which modes a captured model has.
enum class Modes : uint8_t {
  both,
  eval_only  ///< for models that only infer: train mode does what eval mode does
};

/// What capture cannot see for itself.
struct CaptureOptions {
  /// Which dimension of each input is the batch; empty: dimension 0 of every input. -1: no batch in that
  /// input.
  std::vector<int64_t> batch_dims = {};
  /// With eval_only, forward runs in eval mode alone.
  Modes modes = Modes::both;
  /// Further inputs, each a list as for forward, with other values or other batch sizes: for what capture
  /// cannot see, such as branches on sizes or on numbers that the model reads behind LibTorch's back. For each
  /// of them and each captured mode the model and the graph run on copies of the inputs, without autocast, from
  /// the same random state and the same buffers. Then these are compared: the result (its lists, tuples and
  /// values that are no tensors; of each tensor the dtype, the sizes and the bits of every element, where NaN
  /// equals NaN of any bits and +0 is not -0) and, in the same way, what the run left in buffers and in
  /// parameters that it wrote. Strides and gradients are not compared. What neither of them can run in train
  /// mode (one sample for a batch norm) is no difference. Where something differs, capture throws ulp::Error
  /// naming the first call whose value differs, or the first one that the model makes otherwise.
  std::vector<std::vector<at::Tensor>> check = {};
};

/// Runs the model as it would be called with these inputs; the result is a tensor, a list or a tuple.
using Forward = std::function<c10::IValue(const std::vector<at::Tensor>&)>;

/// The general form: `root` owns the parameters and buffers, `forward` calls it. The model's mode, buffers
/// and the random state are as before when this returns or throws. Throws ulp::Error naming the op that
/// cannot be captured.
ULP_API std::shared_ptr<GraphModule> capture(torch::nn::Module& root, const Forward& forward,
                                             const std::vector<at::Tensor>& examples,
                                             const CaptureOptions& options = {});

namespace detail {
template <typename Model, size_t... I>
c10::IValue call(Model& model, const std::vector<at::Tensor>& inputs, std::index_sequence<I...>) {
  if constexpr (requires { model.forward(inputs[I]...); }) {
    return c10::IValue(model.forward(inputs[I]...));
  } else {
    fail("graph.capture", "expected a model whose forward takes ", inputs.size(),
         " tensors; pass a callable instead for other signatures");
  }
}

template <typename Model>
c10::IValue call(Model& model, const std::vector<at::Tensor>& inputs) {
  switch (inputs.size()) {
    case 1:
      return call(model, inputs, std::make_index_sequence<1>());
    case 2:
      return call(model, inputs, std::make_index_sequence<2>());
    case 3:
      return call(model, inputs, std::make_index_sequence<3>());
    case 4:
      return call(model, inputs, std::make_index_sequence<4>());
    case 5:
      return call(model, inputs, std::make_index_sequence<5>());
    case 6:
      return call(model, inputs, std::make_index_sequence<6>());
    default:
      fail("graph.capture", "expected 1 to 6 inputs, got ", inputs.size(), "; pass a callable instead");
  }
}
}  // namespace detail
}  // namespace graph

/// Captures a torch::nn model held by value, by shared_ptr or by a ModuleHolder (torch::nn::Linear, ...).
template <typename Model>
std::shared_ptr<graph::GraphModule> capture(Model& model, const std::vector<at::Tensor>& examples,
                                            const graph::CaptureOptions& options = {}) {
  if constexpr (requires { *model; }) {
    return capture(*model, examples, options);
  } else {
    return graph::capture(
        model, [&model](const std::vector<at::Tensor>& inputs) { return graph::detail::call(model, inputs); },
        examples, options);
  }
}

/// Captures a model loaded by torch::jit::load.
ULP_API std::shared_ptr<graph::GraphModule> capture(torch::jit::Module& model,
                                                    const std::vector<at::Tensor>& examples,
                                                    const graph::CaptureOptions& options = {});

}  // namespace ulp
