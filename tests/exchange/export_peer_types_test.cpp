// Every operator of an exported ONNX file is one that ONNX Runtime has of its element type:
// tests/golden/onnx_types.json.
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "captured_function.h"
#include "error_of.h"
#include "onnx_case.h"
#include "onnx_reader.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"

namespace ulp::test {

namespace {

constexpr int64_t kTruth = 9, kWholeLong = 7;

/// "int8" of TensorProto's number; empty for a type that is no whole number.
std::string whole_name(int64_t type) {
  static const std::map<int64_t, std::string> names = {{2, "uint8"}, {3, "int8"},           {5, "int16"},
                                                       {6, "int32"}, {kWholeLong, "int64"}, {kTruth, "bool"}};
  const auto found = names.find(type);
  return found == names.end() ? "" : found->second;
}

/// Operators of a file whose elements are whole numbers of types that the table has not.
std::vector<std::string> unknown_operators(const ReadModel& file, const nlohmann::json& table) {
  const std::set<std::string> truths = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
                                        "And",   "Or",   "Xor",         "Not"},
                              places = {"ArgMax", "ArgMin", "Shape", "Size"};
  std::map<std::string, int64_t> types;
  for (const ReadValue& input : file.inputs) types[input.name] = input.type;
  for (const auto& [name, tensor] : file.initializers) types[name] = tensor.type;
  std::vector<std::string> unknown;
  for (const ReadNode& node : file.nodes) {
    const std::string& data = node.inputs.at(node.op == "Where" ? 1 : 0);
    if (!types.contains(data)) {
      unknown.push_back(node.op + " of '" + data + "', which has no type");
      continue;
    }
    const int64_t type = types.at(data);
    const std::string name = whole_name(type);
    const auto row = table.find(node.op);
    const bool listed = row != table.end() && std::ranges::find(*row, nlohmann::json(name)) != row->end();
    if (!name.empty() && !listed && node.op != "Shape") unknown.push_back(node.op + " of " + name);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool place = places.contains(node.op) || (node.op == "TopK" && i == 1);
      types[node.outputs[i]] = node.op == "Cast"          ? node.attributes.at("to").i
                               : truths.contains(node.op) ? kTruth
                               : place                    ? kWholeLong
                                                          : type;
    }
  }
  return unknown;
}

struct WholeBody {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> body;
  bool truth = false;  ///< LibTorch computes it of bool, too
};

std::vector<WholeBody> whole_bodies() {
  using at::Tensor;
  return {{"add", [](const Tensor& v) { return v + v; }, true},
          {"mul", [](const Tensor& v) { return v * v; }, true},
          {"sub", [](const Tensor& v) { return v - 3; }},
          {"neg", [](const Tensor& v) { return at::neg(v); }},
          {"abs", [](const Tensor& v) { return at::abs(v); }},
          {"sign", [](const Tensor& v) { return at::sign(v); }, true},
          {"maximum", [](const Tensor& v) { return at::maximum(v, v * v); }, true},
          {"minimum", [](const Tensor& v) { return at::minimum(v, v * v); }, true},
          {"where", [](const Tensor& v) { return at::where(v > 1, v, v * v); }, true},
          {"masked_fill", [](const Tensor& v) { return v.masked_fill(v > 1, 1); }, true},
          {"amax", [](const Tensor& v) { return at::amax(v, {1}); }, true},
          {"amin", [](const Tensor& v) { return at::amin(v, {1}); }, true},
          {"argmax", [](const Tensor& v) { return at::argmax(v, 1); }},
          {"topk", [](const Tensor& v) { return std::get<0>(at::topk(v, 2, 1)); }},
          {"relu", [](const Tensor& v) { return at::relu(v); }},
          {"clamp", [](const Tensor& v) { return at::clamp(v, 1, 4); }},
          {"pad",
           [](const Tensor& v) {
             return at::constant_pad_nd(v, {1, 1}, 1);
           },
           true},
          {"matmul", [](const Tensor& v) { return at::matmul(v, at::transpose(v, 0, 1)); }},
          {"tril", [](const Tensor& v) { return at::tril(v); }, true},
          {"pow", [](const Tensor& v) { return at::pow(v, 2); }},
          {"max_pool2d",
           [](const Tensor& v) {
             return at::max_pool2d(v.view({-1, 1, 2, 2}), {1, 2});
           }},
          {"remainder", [](const Tensor& v) { return at::remainder(v, 3); }},
          {"div", [](const Tensor& v) { return at::div(v, 3, "floor"); }},
          {"far", [](const Tensor& v) { return v - 200; }},
          {"sum in its type", [](const Tensor& v) { return at::sum(v, {1}, false, v.scalar_type()); }},
          {"cumsum in its type", [](const Tensor& v) { return at::cumsum(v, 1, v.scalar_type()); }},
          {"equal", [](const Tensor& v) { return v == 1; }, true},
          {"less", [](const Tensor& v) { return v < v * v; }, true}};
}

}  // namespace

TEST(ExportPeerTypes, EveryOperatorIsOneThatOnnxRuntimeHas) {
  const auto golden = nlohmann::json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/onnx_types.json"));
  const torch::NoGradGuard no_grad;
  const at::Tensor numbers = torch::tensor({1, 0, -3, 2, 7, -1, 5, 120}, torch::kInt).view({2, 4});
  std::set<std::string> refused;
  for (const at::ScalarType type : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong, at::kBool}) {
    const at::Tensor x = numbers.to(type);
    for (const WholeBody& one : whole_bodies()) {
      if (type == at::kBool && !one.truth) continue;
      const std::string name = one.name + " of " + whole_name(onnx_type(type));
      const auto module = captured_function(one.body, x);
      for (const int64_t opset : {17, 21}) {
        std::string bytes;
        try {
          bytes = exchange::export_onnx(*module, {.opset = opset});
        } catch (const Error& error) {
          EXPECT_SAYS(error.what(), "in which other runtimes compute it") << name;
          refused.insert(name);
          continue;
        }
        const nlohmann::json& table = golden.at(std::to_string(opset));
        EXPECT_EQ(unknown_operators(read_onnx(bytes), table), std::vector<std::string>()) << name;
        const auto back = exchange::import_onnx(bytes, "model.onnx");
        EXPECT_TRUE(torch::equal(back->forward(x), module->forward(x))) << name << ", opset " << opset;
      }
    }
  }
  EXPECT_EQ(refused,
            (std::set<std::string>{"max_pool2d of int16", "max_pool2d of int32", "max_pool2d of int64"}));
}

/// ONNX Runtime cuts off what lies between two bytes, LibTorch rounds it; sums of convolutions wrap around.
TEST(ExportPeerTypes, BytesThatAreBlendedOrConvolvedAreRefused) {
  torch::manual_seed(6);
  const at::Tensor x = torch::randint(256, {2, 3, 5, 7}, torch::kByte),
                   kernel = torch::randint(256, {2, 3, 2, 2}, torch::kByte);
  namespace F = torch::nn::functional;
  const auto resized = [](const auto& mode, const std::vector<int64_t>& size) {
    return [=](const at::Tensor& v) {
      return F::interpolate(v, F::InterpolateFuncOptions().size(size).mode(mode).align_corners(false));
    };
  };
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> bodies = {
      resized(torch::kBilinear, {9, 10}), resized(torch::kBicubic, {9, 10}),
      resized(torch::kBilinear, {3, 4}), [=](const at::Tensor& v) { return at::conv2d(v, kernel); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    const auto module = captured_function(bodies[i], x);
    EXPECT_ERROR(exchange::export_onnx(*module), "in which other runtimes compute it, got Byte");
  }
}

}  // namespace ulp::test
