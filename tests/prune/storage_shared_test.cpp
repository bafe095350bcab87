// Weight sharing: the operator and its gradient, and captured models that read codes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "error_of.h"
#include "storage_tensors.h"
#include "temporary_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/graph_file.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/prune/storage/deep_compression.h"
#include "ulp/prune/storage/sharing/share_module.h"
#include "ulp/prune/storage/sharing/shared_weights.h"

namespace ulp::prune {
namespace {

using test::same_bits;

TEST(SharedWeights, EveryWeightIsItsNearestCentroidAndZerosStay) {
  const at::Tensor weight = test::sparse_normal({40, 50}, 0.3, 1);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor typed = weight.to(type);
    const SharedWeights shared = cluster_weights(typed, {.bits = 4});
    EXPECT_EQ(shared.codebook.scalar_type(), type);
    EXPECT_LE(shared.codebook.numel(), 16);
    const at::Tensor result = share_weights(shared.codebook, shared.codes, shared.mask);
    EXPECT_TRUE(((result == 0) == (typed == 0)).all().item<bool>());
    const at::Tensor book = shared.codebook.to(at::kDouble);
    const at::Tensor distances = (typed.to(at::kDouble).unsqueeze(-1) - book).abs();
    const at::Tensor mine = (typed.to(at::kDouble) - result.to(at::kDouble)).abs();
    // Codes are chosen before centroids are rounded to the dtype.
    const double rounding = type == at::kDouble ? 1e-15 : type == at::kFloat ? 1e-6 : 0.05;
    EXPECT_TRUE(
        (mine <= std::get<0>(distances.min(-1)) + rounding).logical_or(typed == 0).all().item<bool>());
  }
}

TEST(SharedWeights, FewValuesAreKeptBitForBit) {
  const at::Tensor weight = test::sparse_shared({30, 30}, 0.2, 16, 2);
  const SharedWeights shared = cluster_weights(weight, {.bits = 5});
  EXPECT_TRUE(same_bits(share_weights(shared.codebook, shared.codes, shared.mask), weight));
  const SharedWeights full = cluster_weights(torch::ones({3, 3}), {.bits = 1});
  EXPECT_FALSE(full.mask.defined());
  EXPECT_TRUE(same_bits(share_weights(full.codebook, full.codes), torch::ones({3, 3})));
  const SharedWeights none = cluster_weights(torch::zeros({3, 3}), {.bits = 1});
  EXPECT_TRUE(same_bits(share_weights(none.codebook, none.codes, none.mask), torch::zeros({3, 3})));
  const SharedWeights negative = cluster_weights(torch::tensor({-0.0F, 1.0F}), {.bits = 1});
  EXPECT_TRUE(same_bits(share_weights(negative.codebook, negative.codes, negative.mask),
                        torch::tensor({0.0F, 1.0F})));
}

TEST(SharedWeights, TheGradientOfAnEntryIsTheSumOverItsMembers) {
  const at::Tensor weight = test::sparse_normal({13, 17}, 0.4, 3).to(at::kDouble);
  const SharedWeights shared = cluster_weights(weight, {.bits = 3});
  const int64_t entries = shared.codebook.numel();
  const at::Tensor inputs = torch::linspace(-1, 1, 17, at::kDouble);
  const auto loss_of = [&](const at::Tensor& codebook) {
    return torch::tanh(torch::mv(share_weights(codebook, shared.codes, shared.mask), inputs)).sum();
  };
  const at::Tensor codebook = shared.codebook.clone().requires_grad_();
  loss_of(codebook).backward();
  for (int64_t i = 0; i < entries; ++i) {  // numeric Jacobian
    constexpr double kStep = 1e-5;
    const at::Tensor step = torch::zeros({entries}, at::kDouble);
    step[i] = kStep;
    const double slope =
        (loss_of(shared.codebook + step) - loss_of(shared.codebook - step)).item<double>() / (2 * kStep);
    EXPECT_NEAR(codebook.grad()[i].item<double>(), slope, 1e-8) << "entry " << i;
  }
  // The same by plain loops, from dL/dW.
  const at::Tensor dense = share_weights(shared.codebook, shared.codes, shared.mask).requires_grad_();
  torch::tanh(torch::mv(dense, inputs)).sum().backward();
  std::vector<double> sums(static_cast<size_t>(entries), 0);
  for (int64_t row = 0; row < 13; ++row) {
    for (int64_t column = 0; column < 17; ++column) {
      if (weight[row][column].item<double>() != 0)
        sums[shared.codes[row][column].item<uint8_t>()] += dense.grad()[row][column].item<double>();
    }
  }
  const at::Tensor gradient = codebook_gradient(dense.grad(), entries, shared.codes, shared.mask);
  for (int64_t i = 0; i < entries; ++i)
    EXPECT_DOUBLE_EQ(gradient[i].item<double>(), sums[static_cast<size_t>(i)]);
  EXPECT_TRUE(same_bits(codebook.grad(), gradient));
}

TEST(SharedWeights, GradientsOfPrunedElementsDoNotCount) {
  const at::Tensor codes = torch::zeros({3}, at::kByte), mask = torch::tensor({true, false, true});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor gradient = codebook_gradient(torch::tensor({1.0F, nan, 2.0F}), 2, codes, mask);
  EXPECT_TRUE(same_bits(gradient, torch::tensor({3.0F, 0.0F})));
}

TEST(SharedWeights, BadArgumentsAreRefused) {
  const at::Tensor book = torch::arange(3).to(at::kFloat), codes = torch::zeros({2, 2}, at::kByte);
  EXPECT_ERROR(share_weights(book, codes + 3), "expected codes below 3, got 3");
  EXPECT_ERROR(share_weights(book, codes.to(at::kInt)), "expected codes of dtype Byte, got Int");
  EXPECT_ERROR(share_weights(book.view({1, 3}), codes),
               "expected a floating-point codebook of 1 to 256 entries");
  EXPECT_ERROR(share_weights(torch::zeros({257}), codes), "codebook of 1 to 256 entries, got Float [257]");
  EXPECT_ERROR(share_weights(book, codes, torch::ones({2})), "expected a mask of dtype Bool");
  EXPECT_ERROR(codebook_gradient(torch::ones({3}), 3, codes),
               "expected a gradient of the shape of the codes");
  EXPECT_ERROR(codebook_gradient(torch::ones({2, 2}), 0, codes), "expected 1 to 256 entries, got 0");
  EXPECT_ERROR(cluster_weights(torch::arange(3), {}), "expected a floating-point tensor");
  EXPECT_ERROR(cluster_weights(torch::tensor({1.0F, std::nanf("")}), {}), "expected finite weights");
}

/// Two pruned layers; the second one has a bias.
struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl()
      : first(register_module("first", torch::nn::Linear(torch::nn::LinearOptions(12, 20).bias(false)))),
        second(register_module("second", torch::nn::Linear(20, 5))) {
    const at::NoGradGuard no_grad;
    first->weight.copy_(test::sparse_normal({20, 12}, 0.3, 5));
    second->weight.copy_(test::sparse_normal({5, 20}, 0.6, 6));
    second->bias.copy_(torch::linspace(-1, 1, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(TwoLayers);

at::Tensor inputs_of(int64_t count) {
  return test::sparse_normal({count, 12}, 1, 7);
}

TEST(ShareModule, LayersReadCodesAndComeBackPlain) {
  TwoLayers model;
  const auto captured = capture(model, inputs_of(3));
  const at::Tensor before = captured->forward(inputs_of(9));
  graph::PassReport report;
  const auto shared = share_weights(captured, {.kmeans = {.bits = 3}, .layers = {}}, &report);
  EXPECT_EQ(report.changes,
            (std::vector<std::string>{"first.weight shares 8 values", "second.weight shares 8 values"}));
  EXPECT_EQ(report.near_misses,
            (std::vector<std::string>{"second.bias not shared: it has fewer than two dimensions"}));
  const auto state = shared->named_parameters();
  EXPECT_TRUE(state.contains("first.weight.codebook"));
  EXPECT_FALSE(state.contains("first.weight"));
  EXPECT_TRUE(shared->named_buffers().contains("second.weight.codes"));
  EXPECT_TRUE(same_bits(captured->forward(inputs_of(9)), before));  // the captured model stays
  const at::Tensor result = shared->forward(inputs_of(9));
  EXPECT_FALSE(same_bits(result, before));
  EXPECT_LT((result - before).abs().max().item<double>(), before.abs().max().item<double>() / 2);
  const auto baked = bake_shared(shared);
  EXPECT_TRUE(same_bits(baked->forward(inputs_of(9)), result));
  const auto plain = baked->named_parameters();
  EXPECT_EQ(plain.size(), 3U);
  EXPECT_TRUE(plain["first.weight"].requires_grad());
  EXPECT_TRUE(baked->named_buffers().is_empty());
  EXPECT_TRUE(((plain["first.weight"] == 0) == (model->first->weight == 0)).all().item<bool>());
  EXPECT_TRUE(same_bits(plain["second.bias"], model->second->bias));
}

TEST(ShareModule, RulesSetBitsByLayer) {
  TwoLayers model;
  const auto captured = capture(model, inputs_of(3));
  const ShareOptions options = {.kmeans = {.bits = 6},
                                .layers = {{"*", 4}, {"second", 2}, {"second.bias", 1}}};
  const auto values_of = [](const graph::GraphModule& module, const std::string& name) {
    return module.named_parameters()[name + ".codebook"].numel();
  };
  const auto shared = share_weights(captured, options);
  EXPECT_GT(values_of(*shared, "first.weight"), 8);  // centroids without members are left out
  EXPECT_LE(values_of(*shared, "first.weight"), 16);
  EXPECT_EQ(values_of(*shared, "second.weight"), 4);
  EXPECT_EQ(values_of(*shared, "second.bias"), 2);
  graph::PassReport report;
  const auto one = share_weights(captured, {.kmeans = {}, .layers = {{"second", 0}}}, &report);
  EXPECT_TRUE(one->named_parameters().contains("second.weight"));
  EXPECT_EQ(report.near_misses[0], "second.weight not shared: left as it is by name");
}

TEST(ShareModule, TrainingMovesSharedValuesAlone) {
  TwoLayers model;
  const auto shared = share_weights(capture(model, inputs_of(3)), {.kmeans = {.bits = 3}, .layers = {}});
  shared->train();
  torch::optim::SGD optimizer(shared->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const at::Tensor x = inputs_of(32), target = x.narrow(1, 0, 5).contiguous();
  const auto loss = [&] { return torch::mse_loss(shared->forward(x), target); };
  const double before = loss().item<double>();
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }
  EXPECT_LT(loss().item<double>(), before / 2);
  const auto baked = bake_shared(shared);
  const at::Tensor weight = baked->named_parameters()["first.weight"];
  EXPECT_TRUE(((weight == 0) == (model->first->weight == 0)).all().item<bool>());
  EXPECT_LE(std::get<0>(at::_unique(weight)).numel(), 8 + 1);
}

TEST(ShareModule, AWeightOfTwoLayersIsSharedOnce) {
  torch::nn::Linear square(torch::nn::LinearOptions(6, 6).bias(false));
  struct Twice : torch::nn::Module {
    explicit Twice(torch::nn::Linear layer) : layer(register_module("layer", layer)) {}
    at::Tensor forward(const at::Tensor& x) { return layer(torch::relu(layer(x))); }
    torch::nn::Linear layer;
  } twice(square);
  const at::Tensor x = test::sparse_normal({4, 6}, 1, 8);
  const auto shared = share_weights(capture(twice, x), {.kmeans = {.bits = 2}, .layers = {}});
  EXPECT_EQ(shared->named_parameters().size(), 1U);
  const auto baked = bake_shared(shared);
  EXPECT_TRUE(same_bits(baked->forward(x), shared->forward(x)));
}

/// An embedding whose weight is the last layer's, too: one tensor, two names.
struct TwoNamesImpl : torch::nn::Module {
  TwoNamesImpl() : a(register_module("a", torch::nn::Embedding(9, 8))) {
    const at::NoGradGuard no_grad;
    a->weight.copy_(test::sparse_normal({9, 8}, 0.7, 11));
    z = register_parameter("z", a->weight);
  }
  at::Tensor forward(const at::Tensor& tokens) { return torch::linear(torch::relu(a(tokens)), z); }
  torch::nn::Embedding a;
  at::Tensor z;
};
TORCH_MODULE(TwoNames);

at::Tensor tokens_of(int64_t count) {
  return torch::arange(count) % 9;
}

TEST(ShareModule, ATiedWeightStaysOneTensorUnderAllItsNames) {
  const test::TemporaryFolder folder;
  TwoNames model;
  const auto captured = capture(model, tokens_of(3));
  graph::PassReport report;
  const auto shared = share_weights(captured, {.kmeans = {.bits = 2}, .layers = {}}, &report);
  EXPECT_EQ(report.changes, std::vector<std::string>{"z shares 4 values, also as a.weight"});
  EXPECT_TRUE(report.near_misses.empty());
  const auto state = shared->named_parameters();
  EXPECT_EQ(state.size(), 2U);
  EXPECT_TRUE(state["z.codebook"].is_same(state["a.weight.codebook"]));
  EXPECT_TRUE(shared->named_buffers()["z.mask"].is_same(shared->named_buffers()["a.weight.mask"]));
  {
    const at::NoGradGuard no_grad;
    state["a.weight.codebook"].mul_(1.5);
  }
  const at::Tensor result = shared->forward(tokens_of(9));
  EXPECT_FALSE(same_bits(result, captured->forward(tokens_of(9))));
  io::save_graph(folder / "shared", *shared);
  for (const auto& from : {shared, io::load_graph(folder / "shared")}) {
    const auto baked = bake_shared(from);
    const auto plain = baked->named_parameters();
    ASSERT_EQ(plain.size(), 2U);
    EXPECT_TRUE(plain["z"].is_same(plain["a.weight"]));
    EXPECT_TRUE(plain["z"].requires_grad());
    EXPECT_TRUE(baked->named_buffers().is_empty());
    EXPECT_TRUE(same_bits(baked->forward(tokens_of(9)), result));
  }
}

TEST(ShareModule, RulesAreForAnyNameOfATiedWeight) {
  TwoNames model;
  const auto captured = capture(model, tokens_of(3));
  for (const char* name : {"z", "a", "a.weight"}) {
    const auto shared = share_weights(captured, {.kmeans = {.bits = 6}, .layers = {{name, 1}}});
    EXPECT_EQ(shared->named_parameters()["z.codebook"].numel(), 2) << name;
    EXPECT_ERROR(share_weights(captured, {.kmeans = {}, .layers = {{name, 0}}}),
                 "at least one parameter to share");
  }
}

TEST(ShareModule, WhatCannotBeSharedIsRefused) {
  TwoLayers model;
  const auto captured = capture(model, inputs_of(3));
  EXPECT_ERROR(share_weights(std::shared_ptr<graph::GraphModule>()), "expected a captured model, got null");
  EXPECT_ERROR(bake_shared(nullptr), "expected a captured model, got null");
  EXPECT_ERROR(share_weights(captured, {.kmeans = {}, .layers = {{"third", 2}}}),
               "expected layers to name parameters of the model, got 'third'");
  EXPECT_ERROR(share_weights(captured, {.kmeans = {}, .layers = {{"*", 0}}}),
               "at least one parameter to share");
  EXPECT_ERROR(share_weights(captured, {.kmeans = {.bits = 9}, .layers = {}}),
               "expected kmeans.bits in [1, 8], got 9");
  {
    const at::NoGradGuard no_grad;
    model->first->weight[0][0] = std::numeric_limits<float>::infinity();
  }
  EXPECT_ERROR(share_weights(captured), "'first.weight' cannot be shared");
}

TEST(DeepCompression, JsonKeepsEveryField) {
  DeepCompression recipe = DeepCompression::lenet_300_100({"first", "second", "third"});
  recipe.validate();
  recipe.amount = 0.5;
  recipe.sharing = {.bits = 5, .init = CentroidInit::density, .iterations = 7, .seed = 3};
  recipe.layers[1].bits = 8;
  recipe.coder = EntropyCoder::huffman;
  recipe.gap_bits = 5;
  EXPECT_EQ(DeepCompression::from_json(recipe.to_json()), recipe);
  EXPECT_EQ(DeepCompression::from_json(R"({"type": "ulp.prune.DeepCompression", "version": 1})"),
            DeepCompression());
  const auto refusal = [](const std::string& fields) {
    return test::error_of([&] {
      DeepCompression::from_json(R"({"type": "ulp.prune.DeepCompression", "version": 1, )" + fields + "}");
    });
  };
  EXPECT_SAYS(refusal(R"("amount": 1)"), "'amount'");
  EXPECT_SAYS(refusal(R"("gap_bits": 9)"), "'gap_bits'");
  EXPECT_SAYS(refusal(R"("coder": "lzma")"), "none, huffman or smallest");
  EXPECT_SAYS(refusal(R"("layers": [{"layer": "a", "bits": 9}])"), "bits");
  EXPECT_SAYS(refusal(R"("prune": 1)"), "'prune'");
}

TEST(DeepCompression, RulesNameAmountsAndBits) {
  const DeepCompression recipe = DeepCompression::lenet_300_100({"fc1", "fc2", "fc3"});
  EXPECT_DOUBLE_EQ(recipe.amount_of("fc1.weight", 2), 0.92);
  EXPECT_DOUBLE_EQ(recipe.amount_of("fc3.weight", 2), 0.74);
  EXPECT_DOUBLE_EQ(recipe.amount_of("other.weight", 4), 0.9);
  EXPECT_DOUBLE_EQ(recipe.amount_of("fc1.bias", 1), 0);
  EXPECT_EQ(recipe.share_options().bits_of("fc1.weight", 2), 6);
  EXPECT_EQ(recipe.share_options().bits_of("fc1.bias", 1), 0);
  EXPECT_ERROR(DeepCompression::lenet_300_100({"fc1"}), "expected the paths of 3 layers, got 1");
}

TEST(DeepCompression, TheRecipeOfItsMasksPrunesEachLayerByItself) {
  DeepCompression recipe;
  recipe.amount = 0.5;
  recipe.layers = {{"second", 0.8, std::nullopt}, {"first", std::nullopt, 4}};
  recipe.mask_recipe().validate();
  TwoLayers model;
  const auto captured = capture(model, inputs_of(3));
  for (int i = 0; i < 2; ++i) {  // amounts are of all: the second time prunes no more
    const PruneReport report = prune(*captured, recipe.mask_recipe());
    ASSERT_EQ(report.layers.size(), 2U);
    EXPECT_EQ(report.layers[0].kept, 120);
    EXPECT_EQ(report.layers[1].kept, 20);
  }
  for (const PrunedLayer& layer : prune(*captured, recipe.mask_recipe()).layers) {
    const double left = 1 - recipe.amount_of(layer.parameter, 2);
    EXPECT_EQ(layer.kept, std::llround(left * static_cast<double>(layer.elements))) << layer.parameter;
  }
  recipe.layers.push_back({"second.bias", 0.5, std::nullopt});
  EXPECT_ERROR(prune(*captured, recipe.mask_recipe()), "'second.bias', which matches none");
}

TEST(DeepCompression, MasksAreMultipliedInFirst) {
  const test::TemporaryFolder folder;
  TwoLayers model;
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.normal_();
  }
  DeepCompression recipe;
  recipe.sharing.bits = 3;
  const auto masked = capture(model, inputs_of(3));
  prune(*masked, recipe.mask_recipe());
  const at::Tensor before = masked->forward(inputs_of(9));
  const CompressedModel made = deep_compress(masked, recipe, folder / "masked");
  EXPECT_EQ(made.accounting, deep_compress(bake(*masked), recipe, folder / "baked").accounting);
  for (const TensorAccount& tensor : made.accounting.tensors) {
    if (tensor.shape.size() < 2) continue;
    EXPECT_EQ(tensor.stored, tensor.elements / 10) << tensor.name;
  }
  const CompressedFile file = load_compressed(folder / "masked");
  for (const ParameterMask& mask : masks(masked->graph())) {
    const at::Tensor keep = find_mask(masked->graph(), mask.parameter);
    EXPECT_TRUE(torch::equal(file.find(mask.parameter)->ne(0), keep)) << mask.parameter;
  }
  EXPECT_EQ(file.tensors.size(), 3U);  // no bits of masks
  EXPECT_TRUE(same_bits(masked->forward(inputs_of(9)), before));
}

TEST(DeepCompression, ATiedWeightIsReadBackCompressed) {
  const test::TemporaryFolder folder;
  TwoNames model, fresh;
  DeepCompression recipe;
  recipe.sharing.bits = 2;
  const CompressedModel made = deep_compress(capture(model, tokens_of(3)), recipe, folder / "tied");
  ASSERT_EQ(made.accounting.tensors.size(), 1U);
  EXPECT_EQ(made.accounting.dense_bytes(), 9 * 8 * 4);
  EXPECT_EQ(made.accounting.file_bytes(), static_cast<int64_t>(std::filesystem::file_size(folder / "tied")));
  const CompressedFile file = load_compressed(folder / "tied");
  EXPECT_EQ(file.accounting, made.accounting);
  io::assign_state(*fresh, file.tensors, true, "tied");
  EXPECT_EQ(std::get<0>(at::_unique(fresh->a->weight)).numel(), 4 + 1);
  EXPECT_TRUE(same_bits(fresh->forward(tokens_of(9)), made.module->forward(tokens_of(9))));
}

TEST(DeepCompression, AFileHoldsTheFineTunedModelBitForBit) {
  const test::TemporaryFolder folder;
  TwoLayers model;
  DeepCompression recipe;
  recipe.sharing.bits = 3;
  int tuned = 0;
  const auto tune = [&](graph::GraphModule& shared) {
    ++tuned;
    const at::NoGradGuard no_grad;
    for (auto& parameter : shared.parameters()) parameter.mul_(1.25);
  };
  const CompressedModel made = deep_compress(capture(model, inputs_of(3)), recipe, folder / "net", tune);
  EXPECT_EQ(tuned, 1);
  EXPECT_EQ(made.report.changes.size(), 2U);
  const CompressedFile file = load_compressed(folder / "net");
  EXPECT_EQ(file.accounting, made.accounting);
  EXPECT_EQ(made.accounting.file_bytes(), static_cast<int64_t>(std::filesystem::file_size(folder / "net")));
  EXPECT_EQ(file.tensors.size(), 3U);
  for (const auto& item : made.module->named_parameters())
    EXPECT_TRUE(same_bits(item.value(), *file.find(item.key())));
  const auto weight = std::ranges::find(file.accounting.tensors, "first.weight", &TensorAccount::name);
  ASSERT_NE(weight, file.accounting.tensors.end());
  EXPECT_EQ(weight->values, "8 numbers F32 in 3 bits");
  EXPECT_LT((*file.find("first.weight") - model->first->weight * 1.25).abs().max().item<double>(), 0.6);
}

}  // namespace
}  // namespace ulp::prune
