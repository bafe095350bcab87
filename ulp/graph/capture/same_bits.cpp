#include "ulp/graph/capture/same_bits.h"

#include <torch/types.h>

#include <sstream>
#include <vector>

#include "ulp/graph/capture/merge.h"

namespace ulp::graph {

namespace {

/// The elements as integers; what has no integer of its width is widened, which keeps signs and NaN.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()) : tensor;
  switch (dense.scalar_type()) {
    case at::kDouble:
      return dense.contiguous().view(at::kLong);
    case at::kFloat:
      return dense.contiguous().view(at::kInt);
    case at::kHalf:
    case at::kBFloat16:
      return dense.contiguous().view(at::kShort);
    default:
      return dense.is_floating_point() ? dense.to(at::kFloat).view(at::kInt) : dense;
  }
}

/// True for each element that differs; a complex number counts as two.
at::Tensor differing(const at::Tensor& model, const at::Tensor& graph) {
  at::Tensor differs = bits_of(model).ne(bits_of(graph));
  if (!model.is_floating_point() && !model.is_complex()) return differs;
  const auto nan = [](const at::Tensor& tensor) {
    const at::Tensor real = tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()) : tensor;
    return torch::isnan(real.to(real.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  };
  return differs.logical_and(nan(model).logical_and(nan(graph)).logical_not());
}

std::string kind_of(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes();
  return out.str();
}

}  // namespace

std::string tensor_difference(const at::Tensor& model, const at::Tensor& graph) {
  const at::NoGradGuard no_grad;
  if (!model.defined() || !graph.defined()) {
    if (model.defined() == graph.defined()) return "";
    return model.defined() ? "is a tensor in the model and none in the graph"
                           : "is no tensor in the model and one in the graph";
  }
  if (model.scalar_type() != graph.scalar_type() || model.sizes() != graph.sizes())
    return "is " + kind_of(model) + " in the model and " + kind_of(graph) + " in the graph";
  const at::Tensor differs = differing(model, graph).flatten();
  const int64_t count = differs.sum().item<int64_t>();
  if (count == 0) return "";
  std::ostringstream out;
  out << "has " << count << " of " << differs.numel() << " elements that differ";
  if (!model.is_complex()) {
    const int64_t first = differs.to(at::kByte).argmax().item<int64_t>();
    const auto value = [&](const at::Tensor& tensor) {
      return tensor.flatten()[first].to(at::kDouble).item<double>();
    };
    out << ", the first is " << value(model) << " in the model and " << value(graph) << " in the graph";
  }
  return out.str();
}

std::string short_text(const c10::IValue& value) {
  if (value.isTensor() || value.isTuple() || value.isGenericDict()) return value.tagKind();
  std::ostringstream out;
  if (value.isDouble()) {
    out << value.toDouble();
  } else {
    out << value;
  }
  return out.str();
}

std::string result_difference(const c10::IValue& model, const c10::IValue& graph, const std::string& where) {
  if (model.isTensor() && graph.isTensor()) {
    const std::string found = tensor_difference(model.toTensor(), graph.toTensor());
    return found.empty() ? "" : where + " " + found;
  }
  const auto undefined = [](const c10::IValue& value) {
    return value.isNone() || (value.isTensor() && !value.toTensor().defined());
  };
  if (undefined(model) && undefined(graph)) return "";
  const bool tuples = model.isTuple() && graph.isTuple();
  if (tuples || (model.isList() && graph.isList())) {
    const auto items = [&](const c10::IValue& value) {
      return tuples ? value.toTupleRef().elements().vec() : value.toListRef().vec();
    };
    const std::vector<c10::IValue> of_model = items(model), of_graph = items(graph);
    if (of_model.size() != of_graph.size()) {
      return where + " has " + std::to_string(of_model.size()) + " items in the model and " +
             std::to_string(of_graph.size()) + " in the graph";
    }
    std::string found;
    for (size_t i = 0; i < of_model.size() && found.empty(); ++i)
      found = result_difference(of_model[i], of_graph[i], where + "[" + std::to_string(i) + "]");
    return found;
  }
  if (same_literal(model, graph)) return "";
  return where + " is " + short_text(model) + " in the model and " + short_text(graph) + " in the graph";
}

}  // namespace ulp::graph
