#include "ulp/quant/weights/input_scales.h"

#include <torch/utils.h>

#include "ulp/graph/describe.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

class ScaleFolder {
 public:
  ScaleFolder(Graph& graph, at::Tensor inverse, std::map<std::string, StoredQuantizedWeight>& codes)
      : graph_(graph), inverse_(std::move(inverse)), codes_(codes) {}

  /// Multiplies the value, which `reader` alone may read, where it is made; the label of what did it, or
  /// nothing.
  std::string fold(const Value* value, const Node* reader) {
    const std::vector<Node*> readers = graph_.users(value);
    Node* maker = value->producer;
    if (readers.size() != 1 || readers[0] != reader || maker->kind() != Node::Kind::call) return "";
    if (maker->is("aten::relu")) return fold(maker->args[0].value, maker);
    if (maker->is("aten::layer_norm") || maker->is("aten::rms_norm")) return fold_norm(*maker);
    if (maker->is("aten::mul.Tensor")) return fold_product(*maker);
    if (maker->is("aten::linear")) return fold_linear(*maker);
    return "";
  }

 private:
  int64_t channels() const { return inverse_.size(0); }
  at::Tensor stored(const Argument& argument) const {
    return argument.is_value() ? graph_.attribute_tensor(argument.value) : at::Tensor();
  }
  bool is_vector(const Argument& argument) const {
    const at::Tensor tensor = stored(argument);
    return tensor.defined() && tensor.is_floating_point() && tensor.dim() == 1 &&
           tensor.size(0) == channels();
  }

  /// The argument reads its product with `factor` from now on, under a name of its own.
  void scale(Argument& argument, const at::Tensor& factor) {
    const Value* before = argument.value;
    const std::string wish = before->producer->target() + ".scaled";
    std::string name = wish;
    for (int i = 2; graph_.find_attribute(name) != nullptr; ++i) name = wish + std::to_string(i);
    const at::Tensor values = graph_.attribute_tensor(before).detach();
    graph_.set_attribute(
        name, {Attribute::Kind::parameter, (values.to(at::kFloat) * factor).to(values.scalar_type())});
    Value* after = graph_.attribute(name);
    after->meta = before->meta;
    argument = after;
  }

  std::string fold_norm(Node& norm) {
    const bool shifts = norm.is("aten::layer_norm") && !norm.arg("bias").is_none();
    if (!is_vector(norm.arg("weight")) || (shifts && !is_vector(norm.arg("bias")))) return "";
    std::string name = graph::label(norm);
    scale(norm.arg("weight"), inverse_);
    if (shifts) scale(norm.arg("bias"), inverse_);
    return name;
  }

  std::string fold_product(Node& product) {
    for (Argument& side : {std::ref(product.args[0]), std::ref(product.args[1])}) {
      if (!is_vector(side)) continue;
      std::string name = side.value->producer->target();
      scale(side, inverse_);
      return name;
    }
    if (!product.args[0].is_value() || !product.args[1].is_value() ||
        product.args[0].value == product.args[1].value)
      return "";
    std::string name = fold(product.args[1].value, &product);
    return name.empty() ? fold(product.args[0].value, &product) : name;
  }

  std::string fold_linear(Node& linear) {
    const at::Tensor weight = stored(linear.arg("weight"));
    const bool shifts = !linear.arg("bias").is_none();
    if (!weight.defined() || weight.dim() != 2 || weight.size(0) != channels() ||
        (shifts && !is_vector(linear.arg("bias"))))
      return "";
    std::string name = graph::label(linear);
    const auto own = codes_.find(linear.arg("weight").value->producer->target());
    if (own == codes_.end()) {
      scale(linear.arg("weight"), inverse_.unsqueeze(1));
    } else {
      if (graph_.users(linear.arg("weight").value).size() != 1) return "";
      const auto by_rows = [&](const at::Tensor& of_groups) {
        return of_groups *
               inverse_.view(of_groups.dim() == 2 ? std::vector<int64_t>{-1, 1} : std::vector<int64_t>{-1});
      };
      own->second.scale = by_rows(own->second.scale);
      if (own->second.minimum) own->second.minimum = by_rows(*own->second.minimum);
    }
    if (shifts) scale(linear.arg("bias"), inverse_);
    return name;
  }

  Graph& graph_;
  at::Tensor inverse_;
  std::map<std::string, StoredQuantizedWeight>& codes_;
};

}  // namespace

namespace {

/// With `keep` a product stays where nothing else takes 1 / scale.
std::string divide(Graph& graph, const std::vector<Node*>& layers, const at::Tensor& scale,
                   std::map<std::string, StoredQuantizedWeight>& codes, bool keep) {
  Node* first = layers.front();
  Value* input = first->arg("input").value;
  const std::string name = first->arg("weight").value->producer->target() + ".input_scale";
  const at::ScalarType type = graph.attribute_tensor(first->arg("weight").value).scalar_type();
  const at::Tensor inverse = at::reciprocal(scale);
  graph.set_attribute(name, {Attribute::Kind::buffer, inverse.to(type)});
  Node* product = graph.call("aten::mul.Tensor", {input, graph.attribute(name)}, first);
  product->scope = first->scope;
  product->output()->meta = input->meta;
  for (Node* layer : layers) layer->arg("input") = product->output();
  std::string where = ScaleFolder(graph, inverse, codes).fold(input, product);
  if (where.empty() && keep) return where;
  for (Node* layer : layers) layer->arg("input") = input;
  graph.erase(product);
  graph.remove_dead(/*attributes=*/true);
  return where;
}

}  // namespace

std::string divide_input(Graph& graph, const std::vector<Node*>& layers, const at::Tensor& scale,
                         std::map<std::string, StoredQuantizedWeight>& codes) {
  return divide(graph, layers, scale, codes, /*keep=*/true);
}

std::string fold_into_maker(Graph& graph, const std::vector<Node*>& layers, const at::Tensor& scale) {
  std::map<std::string, StoredQuantizedWeight> none;
  return divide(graph, layers, scale, none, /*keep=*/false);
}

}  // namespace ulp::quant
