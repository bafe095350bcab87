// Adapters of captured models beside the plain formulas of LibTorch.
#include "ulp/lora/add_lora.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "lora/networks.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/lora/frozen_linear.h"
#include "ulp/lora/merge_lora.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/resnet.h"

namespace ulp::lora {
namespace {

using at::Tensor;

LoraOptions of_up_and_side(LoraBase base = LoraBase::fp32) {
  return {.rank = 4, .alpha = 12, .target_modules = {"up_proj", "first.side_proj"}, .base = base};
}

/// A linear layer with an adapter in LibTorch's calls.
Tensor adapted(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& a, const Tensor& b,
               double scaling) {
  return at::linear(x, weight, bias) + at::linear(at::linear(x, a), b) * scaling;
}

/// SmallNet with the adapters of of_up_and_side(), with any weights in the place of its own.
struct Plain {
  SmallNet net;
  std::map<std::string, Tensor> a = {}, b = {}, weights = {};
  double scaling = 3;

  Tensor layer(const std::string& path, torch::nn::Linear& own, const Tensor& x) const {
    const Tensor weight = weights.contains(path) ? weights.at(path) : own->weight;
    if (!a.contains(path)) return at::linear(x, weight, own->bias);
    return adapted(x, weight, own->bias, a.at(path), b.at(path), scaling);
  }
  Tensor block(const std::string& path, SmallNetImpl::Block& own, const Tensor& x) const {
    const Tensor side = layer(path + ".side_proj", own->side, x);
    return side + layer(path + ".down_proj", own->down, torch::relu(layer(path + ".up_proj", own->up, x)));
  }
  Tensor forward(const Tensor& x) {
    return layer("head", net->head, block("second", net->second, block("first", net->first, x)));
  }
};

Plain plain_of(SmallNet& net, const LoraModel& model) {
  Plain plain{net};
  for (const LoraLayer& layer : model.layers()) {
    plain.a[layer.path] = model.a(layer).detach().clone().set_requires_grad(true);
    plain.b[layer.path] = model.b(layer).detach().clone().set_requires_grad(true);
  }
  for (const auto& [name, frozen] : model.base().frozen)
    plain.weights[name.substr(0, name.size() - std::string(".weight").size())] = dequantize(frozen);
  return plain;
}

TEST(AddLora, BeginsAsTheModelAndTrainsTheAdaptersAlone) {
  torch::manual_seed(1);
  SmallNet net;
  const auto model = add_lora(captured_net(net), of_up_and_side());
  const Tensor x = torch::randn({5, 32});
  EXPECT_TRUE(at::equal(model->forward(x), net->forward(x)));
  std::vector<std::string> names;
  for (const auto& one : model->named_parameters()) names.push_back(one.key());
  EXPECT_EQ(names,
            (std::vector<std::string>{"first.side_proj.lora_A.weight", "first.side_proj.lora_B.weight",
                                      "first.up_proj.lora_A.weight", "first.up_proj.lora_B.weight",
                                      "second.up_proj.lora_A.weight", "second.up_proj.lora_B.weight"}));
  EXPECT_TRUE(model->named_buffers().is_empty());
  EXPECT_EQ(model->adapter_parameters(), 4 * (32 + 32) + 2 * 4 * (32 + 64));
  model->forward(x).sum().backward();
  for (const Tensor& own : net->parameters()) EXPECT_FALSE(own.grad().defined());
}

TEST(AddLora, DrawsAUniformlyAndBAsZeros) {
  torch::manual_seed(1);
  SmallNet net(64);
  const auto model = add_lora(captured_net(net, 64), {.rank = 32, .target_modules = {"side_proj"}});
  const double bound = 1 / std::sqrt(64.0);
  for (const LoraLayer& layer : model->layers()) {
    EXPECT_EQ(model->b(layer).count_nonzero().item<int64_t>(), 0);
    EXPECT_LE(model->a(layer).abs().max().item<double>(), bound);
    EXPECT_GT(model->a(layer).abs().max().item<double>(), 0.98 * bound);
    // The mean of 2,048 such numbers is within 5 of its deviations of 0.
    EXPECT_LT(std::abs(model->a(layer).mean().item<double>()), 5 * bound / std::sqrt(3.0 * 2048));
  }
}

class AddLoraBases : public ::testing::TestWithParam<std::tuple<LoraBase, bool>> {};

TEST_P(AddLoraBases, HaveTheValuesAndGradientsOfThePlainFormula) {
  const auto [base, bf16] = GetParam();
  torch::manual_seed(2);
  SmallNet net;
  LoraOptions options = of_up_and_side(base);
  options.double_quant = base == LoraBase::nf4;
  const auto model = add_lora(captured_net(net), options);
  draw_adapters(*model);
  Plain plain = plain_of(net, *model);
  const Tensor x = torch::randn({6, 32}), target = torch::randn({6, 4});
  Tensor y, expected;
  {
    std::optional<amp::Autocast> guard;
    if (bf16) guard.emplace(torch::kCPU, torch::kBFloat16);
    y = model->forward(x);
    expected = plain.forward(x);
  }
  EXPECT_TRUE(at::equal(y, expected)) << (y - expected).abs().max();
  torch::mse_loss(y.to(at::kFloat), target).backward();
  torch::mse_loss(expected.to(at::kFloat), target).backward();
  for (const LoraLayer& layer : model->layers()) {
    EXPECT_GT(model->a(layer).grad().abs().max().item<double>(), 0) << layer.path;
    EXPECT_TRUE(at::equal(model->a(layer).grad(), plain.a[layer.path].grad())) << layer.path;
    EXPECT_TRUE(at::equal(model->b(layer).grad(), plain.b[layer.path].grad())) << layer.path;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AddLoraBases,
                         ::testing::Combine(::testing::Values(LoraBase::fp32, LoraBase::bf16, LoraBase::int8,
                                                              LoraBase::int4, LoraBase::nf4),
                                            ::testing::Bool()));

TEST(AddLora, ScalesByTheRootOfTheRankAsAsked) {
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 16, .alpha = 32}.scaling()), 2);
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 16, .alpha = 32, .use_rslora = true}.scaling()), 8);
}

TEST(AddLora, DropsInputsOfAdaptersWhileItTrains) {
  torch::manual_seed(3);
  SmallNet net;
  LoraOptions options = of_up_and_side();
  options.dropout = 0.5;
  const auto model = add_lora(captured_net(net), options);
  draw_adapters(*model);
  const Tensor x = torch::randn({4, 32});
  model->train();
  EXPECT_FALSE(at::equal(model->forward(x), model->forward(x)));
  model->eval();
  const Tensor y = model->forward(x);
  EXPECT_TRUE(at::equal(y, model->forward(x)));
  EXPECT_TRUE(at::equal(y, plain_of(net, *model).forward(x)));
}

TEST(AddLora, AllLinearLeavesTheLastLayerOut) {
  torch::manual_seed(1);
  SmallNet net;
  const auto model = add_lora(captured_net(net), {.rank = 2, .target_modules = {"all-linear"}});
  EXPECT_EQ(model->layers().size(), 6U);
  for (const LoraLayer& layer : model->layers()) EXPECT_NE(layer.path, "head");
}

TEST(AddLora, AllLinearOfOneLayerIsRefused) {
  torch::nn::Sequential net(torch::nn::ReLU(), torch::nn::Linear(8, 4));
  const auto captured = capture(*net, {torch::randn({3, 8})});
  EXPECT_ERROR(add_lora(captured, {.rank = 2, .target_modules = {"all-linear"}}),
               "target_modules may name the last one, '1'");
  EXPECT_EQ(add_lora(captured, {.rank = 2, .target_modules = {"1"}})->layers().size(), 1U);
}

TEST(AddLora, KeepsCodesInTheMemoryOfCodes) {
  torch::manual_seed(1);
  SmallNet net(128);
  const auto bytes = [&](LoraOptions options) {
    options.rank = 2;
    options.target_modules = {"up_proj"};
    return add_lora(captured_net(net, 128), options)->base_bytes();
  };
  const int64_t weights = 2 * (2 * 128 * 256 + 128 * 128), rows = 2 * (256 + 128 + 128);
  const int64_t head = 4 * 128, biases = (rows + 4) * 4;
  EXPECT_EQ(bytes({}), 4 * (weights + head) + biases);
  EXPECT_EQ(bytes({.base = LoraBase::bf16}), 2 * (weights + head) + biases);
  EXPECT_EQ(bytes({.base = LoraBase::int8}), weights + 4 * rows + 2 * head + biases);
  EXPECT_EQ(bytes({.base = LoraBase::int4}), weights / 2 + 4 * weights / 32 + 2 * head + biases);
  EXPECT_EQ(bytes({.base = LoraBase::nf4}), weights / 2 + 4 * weights / 64 + 2 * head + biases);
  // Four matrices of 512 blocks and two of 256.
  EXPECT_EQ(bytes({.base = LoraBase::nf4, .double_quant = true}),
            weights / 2 + weights / 64 + 4 * (4 * 2 + 2) + 4 * 6 + 2 * head + biases);
}

TEST(AddLora, RefusesByName) {
  torch::manual_seed(1);
  SmallNet net;
  const auto captured = captured_net(net);
  EXPECT_ERROR(add_lora(nullptr, of_up_and_side()), "got null");
  EXPECT_ERROR(add_lora(captured, {}), "target_modules");
  EXPECT_ERROR(add_lora(captured, {.rank = 0, .target_modules = {"up_proj"}}), "rank");
  EXPECT_ERROR(add_lora(captured, {.rank = 33, .target_modules = {"up_proj"}}),
               "the smaller side of 'first.up_proj'");
  EXPECT_ERROR(add_lora(captured, {.target_modules = {"q_proj"}}), "got 'q_proj'");
  EXPECT_ERROR(add_lora(captured, {.target_modules = {"proj"}}), "got 'proj'");
  EXPECT_ERROR(add_lora(captured, {.target_modules = {"up_proj", "all-linear"}}), "all-linear alone");
  EXPECT_ERROR(add_lora(captured, {.dropout = 1, .target_modules = {"up_proj"}}), "dropout");
  EXPECT_ERROR(add_lora(captured, {.target_modules = {"up_proj"}, .double_quant = true}), "double_quant");
  EXPECT_ERROR(add_lora(captured, {.target_modules = {"up_proj"}, .base = LoraBase::int4, .group = 3}),
               "group");
  EXPECT_ERROR(add_lora(add_lora(captured, of_up_and_side(LoraBase::nf4)), of_up_and_side()),
               "without adapters");
  EXPECT_ERROR(add_lora(add_lora(captured, of_up_and_side()), of_up_and_side()), "without adapters");
  {
    const at::NoGradGuard no_grad;
    net->second->up->weight[0][0] = NAN;
  }
  EXPECT_ERROR(add_lora(captured, of_up_and_side(LoraBase::nf4)), "second.up_proj.weight");
}

TEST(AddLora, Gpt2HasTransposedWeightsAndATiedTable) {
  torch::manual_seed(4);
  const auto gpt2 = models::make_gpt2(models::Gpt2Config::tiny());
  gpt2->eval();
  const Tensor tokens = torch::randint(0, 200, {2, 8});
  const auto captured = ulp::capture(*gpt2, {tokens});
  EXPECT_ERROR(add_lora(captured, {.rank = 2, .target_modules = {"wte"}}), "'wte.weight'");
  for (const LoraBase base : {LoraBase::fp32, LoraBase::bf16, LoraBase::nf4}) {
    graph::PassReport report;
    const auto model =
        add_lora(captured, {.rank = 2, .target_modules = {"c_attn", "c_fc"}, .base = base}, &report);
    draw_adapters(*model);
    const auto merged = merge_lora(*model);
    const Tensor y = model->forward(tokens), z = merged->forward(tokens);
    EXPECT_LT((y - z).abs().max().item<double>(), 1e-5 * z.abs().max().item<double>()) << enum_name(base);
    EXPECT_GT((y - gpt2->forward(tokens)).abs().max().item<double>(), 1e-4);
  }
}

TEST(AddLora, RefusesModelsThatWriteTheirOwnTensors) {
  torch::manual_seed(5);
  struct NetImpl : torch::nn::Module {
    NetImpl() : seen(register_buffer("seen", torch::zeros({8}))) {
      register_module("layer", layer);
      register_module("last", last);
    }
    Tensor forward(const Tensor& x) {
      const Tensor y = layer(x);
      {
        const at::NoGradGuard no_grad;
        seen.add_(y.detach().mean(0));
      }
      return last(y + seen);
    }
    torch::nn::Linear layer{8, 8}, last{8, 2};
    Tensor seen;
  };
  const auto net = std::make_shared<NetImpl>();
  const auto captured = ulp::capture(*net, {torch::randn({4, 8})});
  EXPECT_ERROR(add_lora(captured, {.rank = 2, .target_modules = {"layer"}}),
               "writes none of its own tensors");
}

TEST(AddLora, LayersThatRunTwiceHaveOneAdapter) {
  torch::manual_seed(5);
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      register_module("layer", layer);
      register_module("last", last);
    }
    Tensor forward(const Tensor& x) { return last(layer(torch::relu(layer(x)))); }
    torch::nn::Linear layer{8, 8}, last{8, 2};
  };
  const auto net = std::make_shared<NetImpl>();
  const Tensor x = torch::randn({4, 8});
  const auto captured = ulp::capture(*net, {x});
  for (const LoraBase base : {LoraBase::fp32, LoraBase::nf4}) {
    const auto model = add_lora(captured, {.rank = 2, .target_modules = {"layer"}, .base = base});
    ASSERT_EQ(model->layers().size(), 1U);
    draw_adapters(*model);
    const Tensor y = model->forward(x), z = merge_lora(*model)->forward(x);
    EXPECT_LT((y - z).abs().max().item<double>(), 1e-5);
    y.sum().backward();
    EXPECT_GT(model->a(model->layers()[0]).grad().abs().max().item<double>(), 0);
  }
}

TEST(AddLora, FreezesStatisticsOfBatchNorms) {
  torch::manual_seed(5);
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      register_module("layer", layer);
      register_module("norm", norm);
      register_module("last", last);
    }
    Tensor forward(const Tensor& x) { return last(norm(layer(x))); }
    torch::nn::Linear layer{8, 8}, last{8, 2};
    torch::nn::BatchNorm1d norm{8};
  };
  const auto net = std::make_shared<NetImpl>();
  net->train();
  const Tensor x = torch::randn({16, 8});
  const auto captured = ulp::capture(*net, {x});
  const Tensor before = net->norm->running_mean.clone();
  const auto model = add_lora(captured, {.rank = 2, .target_modules = {"layer"}});
  draw_adapters(*model);
  model->train();
  const Tensor trained = model->forward(x);
  EXPECT_TRUE(at::equal(net->norm->running_mean, before));
  model->eval();
  EXPECT_TRUE(at::equal(trained, model->forward(x)));
  const auto merged = merge_lora(*model);
  merged->eval();
  EXPECT_LT((merged->forward(x) - trained).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace ulp::lora
