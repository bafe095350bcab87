#include "ulp/exchange/onnx_import/patterns.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ulp/exchange/onnx_import/quantized.h"
#include "ulp/quant/operators/binary_ops.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Axes = std::vector<int64_t>;

bool near(double a, double b) {
  constexpr double kRelative = 1e-5;  // constants were rounded to float, some twice
  return std::abs(a - b) <= kRelative * std::abs(b);
}

/// Both orders of a node's two inputs.
struct Order {
  const std::string &one, &other;
};
std::vector<Order> orders(const FileNode& node) {
  if (node.inputs.size() != 2) return {};
  return {{node.inputs[0], node.inputs[1]}, {node.inputs[1], node.inputs[0]}};
}

/// The number that a value is before the run.
std::optional<double> number_of(Call& call, const std::string& value) {
  FileNode reader;
  reader.op = call.node().op;
  reader.name = call.node().name;
  reader.inputs = {value};
  Call one(call.run(), reader, Call::As::calls);
  const std::optional<at::Scalar> found = one.scalar(0);
  return found ? std::optional(found->toDouble()) : std::nullopt;
}

void gather_factors(Call& call, const std::string& value, Factors& factors, int depth) {
  constexpr int kDeepest = 8;
  if (const std::optional<double> number = number_of(call, value)) {
    factors.number *= *number;
    return;
  }
  const FileNode* product = maker_of(call, value, "Mul");
  if (product != nullptr && depth < kDeepest && product->inputs.size() == 2) {
    for (const std::string& input : product->inputs) gather_factors(call, input, factors, depth + 1);
    return;
  }
  const FileNode* quotient = maker_of(call, value, "Div");
  if (quotient != nullptr && depth < kDeepest && quotient->inputs.size() == 2) {
    if (const std::optional<double> by = number_of(call, quotient->inputs[1]); by && *by != 0) {
      factors.number /= *by;
      return gather_factors(call, quotient->inputs[0], factors, depth + 1);
    }
  }
  factors.values.push_back(value);
}

/// z of 1 + f(z); empty for anything else.
std::string inside_one_plus(Call& call, const std::string& value, std::string_view function) {
  const FileNode* sum = maker_of(call, value, "Add");
  if (sum == nullptr) return "";
  for (const auto& [one, other] : orders(*sum)) {
    const FileNode* inner = maker_of(call, other, function);
    if (inner != nullptr && number_of(call, one) == 1.0) return inner->inputs.at(0);
  }
  return "";
}

/// 0.044715 x^3.
bool is_cube(Call& call, const std::string& value, const std::string& x) {
  constexpr double kCubic = 0.044715;
  const Factors cube = factors_of(call, value);
  if (!near(cube.number, kCubic)) return false;
  if (cube.values == std::vector<std::string>{x, x, x}) return true;
  const FileNode* power = cube.values.size() == 1 ? maker_of(call, cube.values[0], "Pow") : nullptr;
  return power != nullptr && power->inputs.at(0) == x && number_of(call, power->inputs.at(1)) == 3.0;
}

/// "none" or "tanh" where half of x times `y` is GELU; else empty.
std::string gelu_form(Call& call, const std::string& x, const std::string& y) {
  if (const std::string z = inside_one_plus(call, y, "Erf"); !z.empty()) {
    const Factors inner = factors_of(call, z);
    const bool same =
        inner.values.size() == 1 && inner.values[0] == x && near(inner.number, 1 / std::numbers::sqrt2);
    return same ? "none" : "";
  }
  const std::string z = inside_one_plus(call, y, "Tanh");
  if (z.empty()) return "";
  const Factors inner = factors_of(call, z);
  if (inner.values.size() != 1 || !near(inner.number, std::sqrt(2 / std::numbers::pi))) return "";
  const FileNode* sum = maker_of(call, inner.values[0], "Add");
  if (sum == nullptr) return "";
  for (const auto& [one, other] : orders(*sum)) {
    if (one == x && is_cube(call, other, x)) return "tanh";
  }
  return "";
}

/// Whether `y` is function(x).
bool is_function(Call& call, const std::string& y, std::string_view function, const std::string& x) {
  const FileNode* node = maker_of(call, y, function);
  return node != nullptr && node->inputs.at(0) == x;
}

/// The tensor that a call of this node would read.
Tensor read(Call& call, const std::string& value) {
  return call.run().tensor(value, call.node());
}

/// Exporters that transpose a weight give it a name of their own; beside "fc.bias" it is "fc.weight" again.
std::string weight_name(const Call& product, const std::string& value) {
  const std::string ending = ".bias";
  const std::vector<Use>& uses = product.analysis().uses(product.node().outputs.at(0));
  if (value.find('.') != std::string::npos || uses.size() != 1 || uses[0].node->op != "Add") return value;
  for (const std::string& bias : uses[0].node->inputs) {
    if (!bias.ends_with(ending)) continue;
    const std::string name = bias.substr(0, bias.size() - ending.size()) + ".weight";
    return product.analysis().uses(name).empty() ? name : value;
  }
  return value;
}

/// Axes of a mean: the last dimension alone.
bool over_the_last(Call& call, const FileNode& mean, int64_t rank) {
  Call inner(call.run(), mean, Call::As::calls);
  const auto axes = inner.list("axes", 1);
  return axes && axes->size() == 1 && ((*axes)[0] == -1 || (*axes)[0] == rank - 1);
}

/// x of x - mean(x); empty for anything else.
std::string centered(Call& call, const std::string& value) {
  const FileNode* difference = maker_of(call, value, "Sub");
  if (difference == nullptr) return "";
  const std::string& x = difference->inputs.at(0);
  const FileNode* mean = maker_of(call, difference->inputs.at(1), "ReduceMean");
  const bool same =
      mean != nullptr && mean->inputs.at(0) == x && over_the_last(call, *mean, read(call, x).dim());
  return same ? x : "";
}

/// eps of sqrt(mean((x - mean(x))^2) + eps).
std::optional<double> epsilon_of(Call& call, const std::string& value, const std::string& x) {
  const FileNode* root = maker_of(call, value, "Sqrt");
  const FileNode* sum = root == nullptr ? nullptr : maker_of(call, root->inputs.at(0), "Add");
  if (sum == nullptr) return std::nullopt;
  for (const auto& [one, other] : orders(*sum)) {
    const std::optional<double> epsilon = number_of(call, other);
    const FileNode* mean = maker_of(call, one, "ReduceMean");
    if (!epsilon || mean == nullptr || !over_the_last(call, *mean, read(call, x).dim())) continue;
    const FileNode* power = maker_of(call, mean->inputs.at(0), "Pow");
    const FileNode* square = maker_of(call, mean->inputs.at(0), "Mul");
    const FileNode* made = power != nullptr ? power : square;
    if (made == nullptr || centered(call, made->inputs.at(0)) != x) continue;
    const bool squared = power != nullptr ? number_of(call, power->inputs.at(1)) == 2.0
                                          : square->inputs.at(0) == square->inputs.at(1);
    if (squared) return epsilon;
  }
  return std::nullopt;
}

}  // namespace

const FileNode* maker_of(const Call& call, const std::string& value, std::string_view op) {
  const FileNode* node = call.analysis().maker(value);
  const bool found = node != nullptr && node->op == op && node->domain.empty() && !node->inputs.empty();
  return found ? node : nullptr;
}

Factors factors_of(Call& call, const std::string& value) {
  Factors factors;
  gather_factors(call, value, factors, 0);
  return factors;
}

Tensor linear(const Tensor& x, const LinearWeight& weight, const std::optional<Tensor>& bias) {
  const Tensor y = at::linear(x, weight.weight, bias);
  if (!weight.offset.defined()) return y;
  return at::add(y, at::mul(at::sum(x, {-1}, /*keepdim=*/true), weight.offset));
}

LinearWeight turned_weight(Call& call, size_t i) {
  const FileNode* dequantize = maker_of(call, call.name(i), "DequantizeLinear");
  const auto coded = dequantize == nullptr ? std::nullopt : coded_weight(call, *dequantize);
  if (coded && !coded->transposed) return {coded->weight, coded->offset};
  return {call.x(i)};
}

LinearWeight linear_weight(Call& call, size_t i) {
  const std::string& value = call.name(i);
  Store& store = call.run().store();
  if (call.analysis().follows_inputs(value)) return {};
  if (const FileNode* turn = maker_of(call, value, "Transpose")) {
    Call inner(call.run(), *turn, Call::As::calls);
    const bool turned = inner.attribute("perm", Axes{1, 0}) == Axes{1, 0};
    if (!turned || call.is_known(i)) return {};
    const LinearWeight weight = turned_weight(inner, 0);
    return weight.weight.dim() == 2 ? weight : LinearWeight();
  }
  if (!call.analysis().only_multiplies(value)) return {};
  if (const FileNode* dequantize = maker_of(call, value, "DequantizeLinear")) {
    if (const auto coded = coded_weight(call, *dequantize)) return {coded->weight, coded->offset};
    return {turned_codes(call, *dequantize)};
  }
  const Tensor stored = store.is_initializer(value) ? store.find(value) : Tensor();
  if (!stored.defined() || stored.dim() != 2 || !at::isFloatingType(stored.scalar_type()) ||
      stored.numel() < 2)
    return {};
  return {store.as_weight(value, weight_name(call, value))};
}

Tensor linear_of(Call& add) {
  for (const auto& [one, other] : orders(add.node())) {
    const FileNode* product = maker_of(add, one, "MatMul");
    if (product == nullptr || product->inputs.size() != 2 || add.analysis().follows_inputs(other)) continue;
    if (add.analysis().uses(one).size() != 1 || add.analysis().is_result(one)) continue;
    Call inner(add.run(), *product, Call::As::calls);
    const Tensor x = inner.x(0);
    const LinearWeight weight = x.dim() >= 2 ? linear_weight(inner, 1) : LinearWeight();
    if (!weight.defined()) continue;
    const Tensor bias = read(add, other);
    if (bias.dim() == 1 && bias.size(0) == weight.rows()) return linear(x, weight, bias);
  }
  return {};
}

Tensor activation_of(Call& product) {
  Factors all;
  for (const std::string& input : product.node().inputs) {
    const Factors some = factors_of(product, input);
    all.number *= some.number;
    all.values.insert(all.values.end(), some.values.begin(), some.values.end());
  }
  if (all.values.size() != 2 || all.values[0] == all.values[1]) return {};
  for (const size_t first : {0, 1}) {
    const std::string &x = all.values[first], &y = all.values[1 - first];
    if (near(all.number, 0.5)) {
      const std::string form = gelu_form(product, x, y);
      if (!form.empty()) return at::gelu(read(product, x), form);
    }
    if (all.number != 1) continue;
    if (is_function(product, y, "Sigmoid", x)) return at::silu(read(product, x));
    const FileNode* tanh = maker_of(product, y, "Tanh");
    if (tanh != nullptr && is_function(product, tanh->inputs[0], "Softplus", x))
      return at::mish(read(product, x));
    const FileNode* hard = maker_of(product, y, "HardSigmoid");
    if (hard == nullptr || hard->inputs[0] != x) continue;
    const Call inner(product.run(), *hard, Call::As::calls);
    if (near(inner.attribute("alpha", 0.2), 1.0 / 6) && inner.attribute("beta", 0.5) == 0.5)
      return at::hardswish(read(product, x));
  }
  return {};
}

Tensor sign_of(Call& choice) {
  if (choice.inputs() != 3) return {};
  const FileNode* above = maker_of(choice, choice.name(0), "GreaterOrEqual");
  const bool signs = above != nullptr && number_of(choice, choice.name(1)) == 1.0 &&
                     number_of(choice, choice.name(2)) == -1.0;
  if (!signs || above->inputs.size() != 2 || number_of(choice, above->inputs[1]) != 0.0) return {};
  const Tensor x = read(choice, above->inputs[0]);
  return at::isFloatingType(x.scalar_type()) ? quant::binarize(x) : Tensor();
}

Tensor layer_norm_of(Call& add) {
  for (const auto& [scaled, bias] : orders(add.node())) {
    const FileNode* product = maker_of(add, scaled, "Mul");
    if (product == nullptr || add.analysis().follows_inputs(bias)) continue;
    for (const auto& [normed, weight] : orders(*product)) {
      const FileNode* quotient = maker_of(add, normed, "Div");
      if (quotient == nullptr || quotient->inputs.size() != 2 || add.analysis().follows_inputs(weight))
        continue;
      const std::string x = centered(add, quotient->inputs[0]);
      const std::optional<double> epsilon =
          x.empty() ? std::nullopt : epsilon_of(add, quotient->inputs[1], x);
      if (!epsilon) continue;
      const Tensor input = read(add, x), w = read(add, weight), b = read(add, bias);
      const int64_t size = input.size(-1);
      if (w.sizes() == at::IntArrayRef{size} && b.sizes() == w.sizes())
        return at::layer_norm(input, {size}, w, b, *epsilon);
    }
  }
  return {};
}

}  // namespace ulp::exchange::onnx_import
