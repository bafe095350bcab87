// Turns a model into a Graph by watching it run: unmodified torch::nn modules and TorchScript modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulp/base/dynamic_dimension.h"
#include "ulp/base/error.h"
#include "ulp/base/export.h"
#include "ulp/graph/capture/tensors.h"

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

/// A dimension of one input that may have other sizes than the example's. Entries of one name, in any inputs,
/// are one dimension: their sizes are always equal, and each limit is given once or equally.
struct FreeSize {
  size_t input = 0;
  int64_t dim = 0;
  std::string name;
  int64_t max = 0;  ///< the largest size; 0: the example's
  int64_t min = 1;  ///< the smallest size
  int64_t multiple =
      1;  ///< every size is a multiple of it, as 32 for networks that halve an image five times
};

/// What capture cannot see for itself.
struct CaptureOptions {
  /// Which dimension of each input is the batch; empty: dimension 0 of every input. -1: no batch in that
  /// input.
  std::vector<int64_t> batch_dims = {};
  /// Which batch sizes the model is asked for, as {.min = 4, .max = 8}: it is run at these alone, three at
  /// least, and the graph and what is made of it refuse others. The example and two samples more have to be
  /// inside.
  BatchRange batch_range = {};
  /// Dimensions beside the batch that stay free, three names at most: {{0, 1, "time", 512}, {1, 1, "time"}}.
  /// The model is run at three sizes of each, the example's and two below it (above it where the example is
  /// the smallest), and each number that moved becomes an expression of them: of degree 2 or less in each,
  /// linear in the batch. What follows a size otherwise is refused by name.
  std::vector<FreeSize> free = {};
  /// With eval_only, forward runs in eval mode alone.
  Modes modes = Modes::both;
  /// Whether the model also runs at sizes far from the example's, where numbers may bend that follow the
  /// sizes near the example (x.size(0) % 8, std::min(x.size(0), 5), a branch on x.size(0) > 100): with one
  /// sample; with 5 to 1031 samples, the largest of nine numbers whose values need 4 MiB, or twice those of
  /// the example and 3 samples more; and with the free dimensions at their smallest, halfway to it and as
  /// near to their largest as that allows. Where the values need 4 MiB at most, a power of two of samples and
  /// train mode come to these. A model that makes other calls there or has other numbers than the graph is
  /// refused by name, unless the graph gives the same results all the same. Sizes at which the model cannot
  /// run are left out. What bends between and beyond them is not seen: give such sizes to `check`.
  bool far_sizes = true;
  /// Further inputs, each a list as for forward, with other values or other batch sizes: for what capture
  /// cannot see, such as branches on sizes or on numbers that the model reads behind LibTorch's back. For
  /// each of them and each captured mode the model and the graph run on copies of the inputs, without
  /// autocast, from the same random state and the same buffers. Then these are compared: the result (its
  /// lists, tuples and values that are no tensors; of each tensor the dtype, the sizes and the bits of every
  /// element, where NaN equals NaN of any bits and +0 is not -0) and, in the same way, what the run left in
  /// buffers and in parameters that it wrote. Strides and gradients are not compared, nor is what the model
  /// refuses in train mode alone (one sample for a batch norm). Where something differs, capture throws
  /// ulp::Error naming the first call whose value differs, or the first one that the model makes otherwise.
  std::vector<std::vector<at::Tensor>> check = {};
  /// What the graph calls its inputs, in the order of the examples, for messages and engines; empty: by the
  /// names that the examples have (a struct, a map), else "input", or "input_0", "input_1".
  std::vector<std::string> input_names = {};
};

/// Runs the model as it would be called with these inputs; the result is a tensor, a list or a tuple
/// (other types made of tensors: TensorsOf<T>::pack).
using Forward = std::function<c10::IValue(const std::vector<at::Tensor>&)>;

/// The general form: `root` owns the parameters and buffers, `forward` calls it. The model's mode, buffers
/// and the random state are as before when this returns or throws. Throws ulp::Error naming the op that
/// cannot be captured.
ULP_API std::shared_ptr<GraphModule> capture(torch::nn::Module& root, const Forward& forward,
                                             const std::vector<at::Tensor>& examples,
                                             const CaptureOptions& options = {});

namespace detail {
/// What forward returns.
template <typename Result>
c10::IValue pack_result(Result&& result) {
  using T = std::remove_cvref_t<Result>;
  if constexpr (MadeOfTensors<T>) {
    return TensorsOf<T>::pack(result);
  } else {
    static_assert(std::is_constructible_v<c10::IValue, Result>,
                  "forward returns a type that is not made of tensors: list the tensors of a struct with "
                  "ULP_TENSOR_FIELDS, or specialise ulp::graph::TensorsOf");
    return c10::IValue(std::forward<Result>(result));
  }
}

/// Whether forward takes that many tensors by reference, as forward(Tensor& x).
template <typename Model, size_t... I>
constexpr bool takes_references(std::index_sequence<I...>) {
  return requires(Model & model, std::array<at::Tensor, sizeof...(I)> & own) {
    model.forward(own[I]...);
  };
}

/// Whether forward takes a list of tensors.
template <typename Model>
constexpr bool takes_list = requires(Model& model, std::vector<at::Tensor>& own) {
  model.forward(own);
};

template <typename Model, size_t... I>
c10::IValue call(Model& model, const std::vector<at::Tensor>& inputs, std::index_sequence<I...>) {
  if constexpr (requires { model.forward(inputs[I]...); }) {
    return pack_result(model.forward(inputs[I]...));
  } else if constexpr (takes_references<Model>(std::index_sequence<I...>())) {
    std::array<at::Tensor, sizeof...(I)> own = {inputs[I]...};  // forward may give them other tensors
    return pack_result(model.forward(own[I]...));
  } else if constexpr (takes_list<Model>) {
    std::vector<at::Tensor> own = inputs;
    return pack_result(model.forward(own));
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
      if constexpr (takes_list<Model>) {
        std::vector<at::Tensor> own = inputs;
        return pack_result(model.forward(own));
      }
      fail("graph.capture", "expected 1 to 6 inputs, got ", inputs.size(), "; pass a callable instead");
  }
}

template <typename Model, typename Inputs>
c10::IValue call_with_one(Model& model, const Inputs& inputs) {
  if constexpr (requires { model.forward(inputs); }) {
    return pack_result(model.forward(inputs));
  } else {
    Inputs own = inputs;  // forward(Inputs& x)
    return pack_result(model.forward(own));
  }
}

/// The items of a tuple are forward's arguments where forward takes that many, any other value is its
/// argument.
template <typename Model, typename Inputs, size_t... I>
c10::IValue call_with_items(Model& model, const Inputs& inputs, std::index_sequence<I...>) {
  if constexpr (requires { model.forward(std::get<I>(inputs)...); }) {
    return pack_result(model.forward(std::get<I>(inputs)...));
  } else {
    return call_with_one(model, inputs);
  }
}

template <typename Model, typename Inputs>
c10::IValue call_with(Model& model, const Inputs& inputs) {
  constexpr bool tuple = requires {
    std::tuple_size<Inputs>::value;
  };
  if constexpr (tuple) {
    return call_with_items(model, inputs, std::make_index_sequence<std::tuple_size_v<Inputs>>());
  } else {
    return call_with_one(model, inputs);
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

/// The same for a model whose forward takes a type made of tensors (ulp/graph/capture/tensors.h): a struct, a
/// map, a list, or a std::tuple of such types, one for each argument. GraphModule::call() takes and returns
/// the same types.
template <typename Model, graph::MadeOfTensors Inputs>
requires(!std::is_same_v<Inputs, std::vector<at::Tensor>>) std::shared_ptr<graph::GraphModule> capture(
    Model& model, const Inputs& example, graph::CaptureOptions options = {}) {
  if constexpr (requires { *model; }) {
    return capture(*model, example, std::move(options));
  } else {
    const c10::IValue packed = graph::TensorsOf<Inputs>::pack(example);
    const std::vector<at::Tensor> tensors = graph::packed_tensors(packed);
    if (tensors.empty()) fail("graph.capture", "expected an example of at least one tensor, got none");
    const auto forward = [&model, &packed](const std::vector<at::Tensor>& inputs) {
      const c10::IValue replaced = graph::replace_tensors(packed, inputs);
      return graph::detail::call_with(model, graph::TensorsOf<Inputs>::unpack(replaced, "the inputs"));
    };
    if (options.input_names.empty()) options.input_names = graph::input_names(packed);
    return graph::capture(model, forward, tensors, options);
  }
}

/// Captures a model loaded by torch::jit::load.
ULP_API std::shared_ptr<graph::GraphModule> capture(torch::jit::Module& model,
                                                    const std::vector<at::Tensor>& examples,
                                                    const graph::CaptureOptions& options = {});

}  // namespace ulp
