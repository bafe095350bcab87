// 20 random networks: what prepare's observers find, what conversion makes of the weights, and fake
// quantization of every observed value, bit for bit as PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

#include "golden_network.h"
#include "schemes.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using nlohmann::json;
using test::GoldenNetwork;

const json& graphs_golden() {
  static const json data = json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/quant_graphs.json"));
  return data;
}

/// "histogram u8_affine", "channel_moving s4_restricted".
TensorRecipe recipe_of(const std::string& variant) {
  static const std::map<std::string, ObserverKind> kinds = {{"min_max", ObserverKind::min_max},
                                                            {"moving", ObserverKind::moving_average},
                                                            {"histogram", ObserverKind::histogram},
                                                            {"channel", ObserverKind::min_max},
                                                            {"channel_moving", ObserverKind::moving_average}};
  const std::string kind = variant.substr(0, variant.find(' '));
  Scheme scheme = scheme_of(variant.substr(kind.size() + 1));
  if (kind.starts_with("channel")) scheme.granularity = PerChannel{0};
  return {scheme, kinds.at(kind)};
}

/// The text that the golden file has for these parameters and this fake-quantized tensor.
std::string text_of(const at::Tensor& scale, const at::Tensor& zero_point, const at::Tensor& fake) {
  std::string scales, zeros;
  char buffer[24];
  for (int64_t i = 0; i < scale.numel(); ++i) {
    std::snprintf(buffer, sizeof buffer, "%08x", std::bit_cast<uint32_t>(scale[i].item<float>()));
    scales += (i > 0 ? "," : "") + std::string(buffer);
    zeros += (i > 0 ? "," : "") + std::to_string(zero_point[i].item<int>());
  }
  uint64_t digest = 0xCBF29CE484222325U;
  const at::Tensor dense = fake.contiguous();
  for (int64_t i = 0; i < dense.numel(); ++i) {
    digest = (digest ^ std::bit_cast<uint32_t>(dense.const_data_ptr<float>()[i])) * 0x100000001B3U;
  }
  std::snprintf(buffer, sizeof buffer, "%016" PRIx64, digest);
  return scales + " " + zeros + " " + buffer;
}

/// One of the 20, captured, with the place in the description of every value of the captured graph.
struct Subject {
  explicit Subject(const json& one) : description(one), network(std::make_shared<GoldenNetwork>(one)) {
    const auto count = graphs_golden()["batch"].get<int64_t>();
    const auto factors = graphs_golden()["factors"].get<std::vector<double>>();
    for (size_t i = 0; i < factors.size(); ++i) batches.push_back(network->batch(i, count, factors[i]));
    module = capture(network, {batches[0].narrow(0, 0, 2)});
    module->eval();
    places[module->graph().inputs()[0]->name] = 0;
    size_t i = 0;
    const graph::Node* before = nullptr;
    for (const auto& node : module->graph().nodes()) {
      if (node->kind() != graph::Node::Kind::call) continue;
      EXPECT_EQ(node->op(), GoldenNetwork::aten_op(network->op(i)));
      places[node->output()->name] = ++i;
      if (node->is("aten::batch_norm")) places[before->output()->name] = i;  // folded into it
      if (node->is("aten::conv2d") || node->is("aten::linear")) layers.push_back(i);
      before = node.get();
    }
    EXPECT_EQ(i, network->size());
  }

  json description;
  std::shared_ptr<GoldenNetwork> network;
  std::shared_ptr<graph::GraphModule> module;
  std::vector<at::Tensor> batches;
  std::map<std::string, size_t> places;
  std::vector<size_t> layers;
};

/// What the description has for the value that an observer stands on; counts the ops that were observed.
void check_points(const Subject& subject, const PreparedModule& prepared, const std::string& variant,
                  std::map<std::string, int>& observed) {
  const std::vector<at::Tensor> values = subject.network->values(subject.batches.back());
  for (const auto& node : prepared.graph().nodes()) {
    if (node->kind() != graph::Node::Kind::module) continue;
    const auto observer = std::dynamic_pointer_cast<Observer>(prepared.graph().modules().at(node->target()));
    ASSERT_TRUE(observer);
    const size_t place = subject.places.at(node->args[0].value->name);
    const QParams params = observer->qparams();
    const auto expected = subject.description["points"][std::to_string(place)][variant].get<std::string>();
    const at::Tensor& x = values[place];
    EXPECT_EQ(text_of(params.scale, params.zero_point, fake_quantize(x, params)), expected)
        << variant << " at value " << place;
    EXPECT_EQ(text_of(params.scale, params.zero_point, dequantize(quantize(x, params), params)), expected)
        << variant << " at value " << place;
    ++observed[place == 0 ? "input" : subject.network->op(place - 1)];
  }
}

/// The weights of every layer, with batch norm folded in, as conversion left them.
void check_weights(const Subject& subject, const graph::Graph& converted, const std::string& variant) {
  for (const size_t place : subject.layers) {
    const std::string name = "n" + std::to_string(place) + "_weight";
    const auto tensor = [&](const char* what) { return converted.find_attribute(name + what)->tensor; };
    const at::Tensor scale = tensor(".scale"), zero_point = tensor(".zero_point");
    const int64_t axis = variant.starts_with("channel") ? 0 : -1;
    EXPECT_EQ(text_of(scale, zero_point, dequantize(tensor(".int8"), scale, zero_point, axis)),
              subject.description["weights"][std::to_string(place)][variant].get<std::string>())
        << variant << ' ' << name;
  }
}

/// The static path takes symmetric weights only; their observers know affine schemes, too.
void check_affine_weights(const Subject& subject, const graph::Graph& folded, const std::string& variant) {
  for (const size_t place : subject.layers) {
    const std::string name = "n" + std::to_string(place) + "_weight";
    const at::Tensor weight = folded.find_attribute(name)->tensor;
    const auto observer = make_observer(recipe_of(variant), name);
    observer->forward(weight);
    const QParams params = observer->qparams();
    EXPECT_EQ(text_of(params.scale, params.zero_point, fake_quantize(weight, params)),
              subject.description["weights"][std::to_string(place)][variant].get<std::string>())
        << variant << ' ' << name;
  }
}

class GoldenGraphs : public testing::TestWithParam<size_t> {};

TEST_P(GoldenGraphs, ParametersAndFakeQuantizationArePyTorchsBitForBit) {
  const at::NoGradGuard no_grad;
  const Subject subject(graphs_golden()["graphs"][GetParam()]);
  std::vector<std::string> activations, weights;
  const json& first = subject.description["points"]["0"];
  for (const auto& [variant, expected] : first.items()) activations.push_back(variant);
  for (const auto& [variant, expected] : subject.description["weights"].front().items()) {
    weights.push_back(variant);
  }
  ASSERT_EQ(activations.size(), 15U);
  ASSERT_EQ(weights.size(), 15U);
  for (size_t i = 0; i < activations.size(); ++i) {
    Recipe recipe = Recipe::x86_int8();
    recipe.activation = recipe_of(activations[i]);
    const bool symmetric = !weights[i].ends_with("affine");
    if (symmetric) recipe.weight = recipe_of(weights[i]);
    const auto prepared = prepare(subject.module, recipe);
    for (const at::Tensor& batch : subject.batches) prepared->forward({batch});
    std::map<std::string, int> observed;
    check_points(subject, *prepared, activations[i], observed);
    if (symmetric) {
      check_weights(subject, convert(prepared)->graph(), weights[i]);
    } else {
      check_affine_weights(subject, prepared->graph(), weights[i]);
    }
    EXPECT_GE(observed.size(), 2U) << activations[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Random, GoldenGraphs, testing::Range<size_t>(0, 20));

TEST(GoldenGraphs, HaveEveryOpBetweenThem) {
  std::set<std::string> ops;
  ASSERT_EQ(graphs_golden()["graphs"].size(), 20U);
  for (const json& graph : graphs_golden()["graphs"]) {
    for (const json& node : graph["nodes"]) ops.insert(node["op"].get<std::string>());
  }
  for (const char* op : {"conv2d", "batch_norm", "linear", "relu", "relu6", "leaky_relu", "gelu", "add",
                         "cat", "max_pool2d", "avg_pool2d", "global_pool", "flatten"}) {
    EXPECT_TRUE(ops.contains(op)) << op;
  }
}

}  // namespace
}  // namespace ulp::quant
