// The random networks of tests/golden/make_quant_graphs.py, made again from their descriptions.
#pragma once

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden_data.h"

namespace ulp::quant::test {

/// One network: value 0 is the input, node i of the description gives value i + 1.
class GoldenNetwork final : public torch::nn::Module {
 public:
  explicit GoldenNetwork(const nlohmann::json& description) : input_(description["input"]) {
    std::vector<std::vector<int64_t>> shapes{input_["shape"]};
    for (const auto& node : description["nodes"]) {
      nodes_.push_back({node["op"], node["in"], node});
      make_parameters(nodes_.back(), static_cast<int64_t>(nodes_.size()), shapes[nodes_.back().in[0]]);
      std::vector<at::Tensor> zeros;
      for (const auto& shape : shapes) zeros.push_back(at::zeros(shape).unsqueeze(0));
      shapes.push_back(apply(nodes_.back(), zeros).sizes().slice(1).vec());
    }
    eval();
  }

  at::Tensor forward(const at::Tensor& x) { return values(x).back(); }

  std::vector<at::Tensor> values(const at::Tensor& x) const {
    std::vector<at::Tensor> all{x};
    for (const Node& node : nodes_) all.push_back(apply(node, all));
    return all;
  }

  /// Calibration batch number `index`, of `count` items, times `factor`.
  at::Tensor batch(uint64_t index, int64_t count, double factor) const {
    std::vector<int64_t> shape = input_["shape"];
    shape.insert(shape.begin(), count);
    const uint64_t seed = input_["seed"].get<uint64_t>() + 10 * index;
    return dyadic(seed, shape, 65, 0.125F) * factor + input_["offset"].get<double>();
  }

  const std::string& op(size_t node) const { return nodes_.at(node).op; }
  size_t size() const { return nodes_.size(); }

  /// What capture calls this op.
  static std::string aten_op(const std::string& op) {
    if (op == "relu6") return "aten::hardtanh";
    if (op == "global_pool") return "aten::adaptive_avg_pool2d";
    if (op == "scale") return "aten::mul";
    return "aten::" + op;
  }

 private:
  struct Node {
    std::string op;
    std::vector<size_t> in;
    nlohmann::json fields;
    at::Tensor weight{}, bias{}, mean{}, var{};
  };

  /// `shape`: of what the node reads, without the batch.
  void make_parameters(Node& node, int64_t number, const std::vector<int64_t>& shape) {
    const auto keep = [&](const char* name, const at::Tensor& tensor) {
      return register_parameter("n" + std::to_string(number) + "_" + name, tensor, false);
    };
    if (node.op == "conv2d" || node.op == "linear") {
      const uint64_t seed = node.fields["seed"];
      std::vector<int64_t> weight{node.fields["out"], shape[0]};
      if (node.op == "conv2d") {
        weight[1] /= node.fields["groups"].get<int64_t>();
        weight.insert(weight.end(), 2, node.fields["kernel"]);
      }
      node.weight = keep("weight", dyadic(seed, weight, 7, 0.25F));
      node.bias = keep("bias", dyadic(seed + 1, {weight[0]}, 9, 0.25F));
    }
    if (node.op == "batch_norm") {
      const uint64_t seed = node.fields["seed"];
      const at::Tensor power = dyadic(seed, {shape[0]}, 3, 1), spread = dyadic(seed + 3, {shape[0]}, 3, 1);
      node.weight = keep("weight", 1 + 0.5 * power + 0.5 * power.clamp_min(0));
      node.bias = keep("bias", dyadic(seed + 1, {shape[0]}, 9, 0.25F));
      node.mean = keep("mean", dyadic(seed + 2, {shape[0]}, 9, 0.25F));
      node.var = keep("var", 0.5 + 3 * spread.clamp_min(0));
    }
  }

  static at::Tensor apply(const Node& node, const std::vector<at::Tensor>& values) {
    const std::string& op = node.op;
    const at::Tensor& x = values[node.in[0]];
    if (op == "conv2d") {
      const int64_t padding = node.fields["kernel"].get<int64_t>() / 2;
      return at::conv2d(x, node.weight, node.bias, node.fields["stride"].get<int64_t>(), padding, 1,
                        node.fields["groups"].get<int64_t>());
    }
    if (op == "linear") return at::linear(x, node.weight, node.bias);
    if (op == "batch_norm")
      return at::batch_norm(x, node.weight, node.bias, node.mean, node.var, false, 0, 0.5, false);
    if (op == "add") return x + values[node.in[1]];
    if (op == "cat") {
      std::vector<at::Tensor> parts;
      for (const size_t i : node.in) parts.push_back(values[i]);
      return at::cat(parts, 1);
    }
    if (op == "relu") return at::relu(x);
    if (op == "relu6") return at::hardtanh(x, 0, 6);
    if (op == "leaky_relu") return at::leaky_relu(x, 0.125);
    if (op == "gelu") return at::gelu(x);
    if (op == "round") return at::round(x);
    if (op == "scale") return x * node.fields["by"].get<double>();
    if (op == "max_pool2d") return at::max_pool2d(x, 2);
    if (op == "avg_pool2d") return at::avg_pool2d(x, 2);
    if (op == "global_pool") return at::adaptive_avg_pool2d(x, {1, 1});
    if (op == "flatten") return x.flatten(1);
    fail("test", "expected a known op, got ", op);
  }

  nlohmann::json input_;
  std::vector<Node> nodes_;
};

}  // namespace ulp::quant::test
