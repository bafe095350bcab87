#include "ulp/prune/scores/layer_inputs.h"

#include <ATen/ops/im2col.h>

#include <memory>

#include "ulp/base/error.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::prune {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;

/// How a layer's input becomes rows.
struct Windows {
  bool linear = true;
  bool one_dimension = false;
  std::vector<int64_t> kernel = {}, dilation = {}, padding = {}, stride = {};
};

std::vector<int64_t> two(std::vector<int64_t> values, bool one_dimension, int64_t first) {
  if (values.size() == 1) values.push_back(values[0]);
  if (one_dimension) return {first, values[0]};
  return values;
}

/// [rows, columns]
at::Tensor rows_of(const at::Tensor& x, const Windows& windows) {
  if (windows.linear) return x.reshape({-1, x.size(-1)});
  const at::Tensor image = windows.one_dimension ? x.unsqueeze(-2) : x;
  const at::Tensor columns =
      at::im2col(image, windows.kernel, windows.dilation, windows.padding, windows.stride);
  return columns.transpose(1, 2).reshape({-1, columns.size(1)});
}

/// Stands before a layer and adds up what passes.
class Sums final : public libtorch::TensorModule {
 public:
  Sums(std::shared_ptr<InputSums> sums, Windows windows, bool products)
      : sums_(std::move(sums)), windows_(std::move(windows)), products_(products) {}
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor rows = rows_of(x.detach().to(at::kDouble), windows_);
    add(sums_->squares, rows.square().sum(0));
    if (products_) add(sums_->products, rows.t().matmul(rows));
    sums_->rows += rows.size(0);
    return x;
  }

 private:
  static void add(at::Tensor& sum, const at::Tensor& value) { sum = sum.defined() ? sum + value : value; }
  std::shared_ptr<InputSums> sums_;
  Windows windows_;
  bool products_;
};

std::optional<std::vector<int64_t>> integers(const Argument& argument) {
  if (argument.kind != Argument::Kind::literal || !argument.literal.isIntList()) return std::nullopt;
  return argument.literal.toIntVector();
}

/// How the layer sees its input; nothing where it is none of those that are known.
std::optional<Windows> windows_of(const Node& node, at::IntArrayRef weight) {
  if (node.is("aten::linear")) return Windows{};
  const bool one = node.is("aten::conv1d");
  if (!one && !node.is("aten::conv2d")) return std::nullopt;
  const auto padding = integers(node.arg("padding")), stride = integers(node.arg("stride")),
             dilation = integers(node.arg("dilation"));
  if (!padding || !stride || !dilation || node.arg("groups").literal.toInt() != 1) return std::nullopt;
  Windows windows{.linear = false, .one_dimension = one};
  windows.kernel = one ? std::vector<int64_t>{1, weight[2]} : std::vector<int64_t>{weight[2], weight[3]};
  windows.padding = two(*padding, one, 0);
  windows.stride = two(*stride, one, 1);
  windows.dilation = two(*dilation, one, 1);
  return windows;
}

/// Puts sums before every layer that reads the parameter; false where there is none.
bool observe(Graph& graph, const std::string& name, const std::shared_ptr<InputSums>& sums, bool products) {
  const at::Tensor tensor = graph.find_attribute(name)->tensor;
  std::vector<std::pair<Node*, Windows>> layers;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::linear") && !node->is("aten::conv1d") && !node->is("aten::conv2d")) continue;
    const Argument& weight = node->arg("weight");
    if (!weight.is_value() || !graph.attribute_tensor(weight.value).is_same(tensor)) continue;
    if (auto windows = windows_of(*node, tensor.sizes())) layers.emplace_back(node.get(), *windows);
  }
  for (auto& [node, windows] : layers) {
    const std::string module = "input_sums_" + std::to_string(graph.modules().size());
    graph.modules()[module] = std::make_shared<Sums>(sums, windows, products);
    Argument& input = node->arg("input");
    input = graph.call_module(module, input.value, node)->output();
  }
  return !layers.empty();
}

}  // namespace

std::vector<InputSums> layer_inputs(const graph::GraphModule& module,
                                    const std::vector<std::string>& parameters,
                                    const std::vector<std::vector<at::Tensor>>& inputs, bool products) {
  const std::shared_ptr<Graph> graph = module.graph().clone();
  graph::fold_masks(*graph);
  graph::canonicalize(*graph);
  std::vector<std::shared_ptr<InputSums>> sums;
  for (const std::string& name : parameters) {
    sums.push_back(std::make_shared<InputSums>());
    if (graph->find_attribute(name) == nullptr || !observe(*graph, name, sums.back(), products)) {
      fail("prune.layer_inputs",
           "expected the weight of a linear layer or of a convolution of 1 or 2 dimensions without groups, "
           "got '",
           name, "'");
    }
  }
  const at::NoGradGuard no_grad;
  graph::GraphModule watched(graph);
  watched.eval();
  for (const std::vector<at::Tensor>& each : inputs) watched.run(each);
  std::vector<InputSums> found;
  for (const auto& one : sums) found.push_back(*one);
  return found;
}

}  // namespace ulp::prune
