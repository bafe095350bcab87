#include "ulp/prune/masks/masks.h"

#include <sstream>

#include "support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/masks/bit_mask.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::prune::tests {
namespace {

using graph::GraphModule;

/// Every kind of reader: embedding and output layer with one weight of two names, LSTM, attention, convolution.
struct AllKindsImpl : torch::nn::Module {
  AllKindsImpl() {
    table = register_module("table", torch::nn::Embedding(11, 8));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 8).batch_first(true)));
    attention = register_module("attention", torch::nn::MultiheadAttention(8, 2));
    conv = register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 8, 3).padding(1)));
    tied = register_parameter("tied", table->weight);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = std::get<0>(lstm(table(ids)));
    const at::Tensor t = x.transpose(0, 1);
    x = x + std::get<0>(attention(t, t, t)).transpose(0, 1);
    x = torch::relu(conv(x.transpose(1, 2))).transpose(1, 2);
    return torch::linear(x, tied);
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::MultiheadAttention attention{nullptr};
  torch::nn::Conv1d conv{nullptr};
  at::Tensor tied;
};
TORCH_MODULE(AllKinds);

const char* const kWeights[] = {"table.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0",
                                "attention.in_proj_weight", "conv.weight"};

NewMasks some_masks(const GraphModule& module, const std::vector<std::string>& names, uint64_t seed = 5) {
  NewMasks made;
  for (const std::string& name : names)
    made.emplace_back(name, random_mask(module.named_parameters()[name].sizes(), seed++));
  return made;
}

TEST(Masks, EveryReaderSeesTheMaskedWeightAndTheDenseOnesComeBack) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;  // an LSTM has another kernel with gradients
  AllKinds model;
  const at::Tensor ids = torch::randint(0, 11, {2, 6});
  const auto captured = capture(model, {ids});
  const at::Tensor dense = captured->forward(ids);
  const NewMasks chosen = some_masks(*captured, {std::begin(kWeights), std::end(kWeights)});
  set_masks(*captured, chosen);
  const at::Tensor masked = captured->forward(ids);

  std::vector<at::Tensor> before;
  for (const auto& [name, keep] : chosen) {
    at::Tensor weight = model->named_parameters()[name];
    before.push_back(weight.clone());
    weight.mul_(keep);  // shared with the graph: its dense values are zero for a moment
  }
  // Matrix products round by where their operands lie in memory: a few units in the last place.
  EXPECT_TRUE(torch::allclose(model->forward(ids), masked, 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(masked, dense, 1e-2, 1e-3));
  for (size_t i = 0; i < chosen.size(); ++i) model->named_parameters()[chosen[i].first].copy_(before[i]);
  EXPECT_TRUE(torch::equal(captured->forward(ids), masked));
  const auto baked = bake(*captured);
  EXPECT_TRUE(torch::allclose(baked->forward(ids), masked, 1e-5, 1e-6));
  EXPECT_TRUE(masks(baked->graph()).empty());
  EXPECT_TRUE(torch::equal(find_mask(captured->graph(), "tied"), chosen[0].second));
  EXPECT_EQ(masks(captured->graph()).size(), chosen.size());
  EXPECT_TRUE(same_bits(baked->named_parameters()["tied"], baked->named_parameters()["table.weight"]));
  remove_masks(*captured);
  EXPECT_TRUE(torch::equal(captured->forward(ids), dense));
  for (size_t i = 0; i < chosen.size(); ++i)
    EXPECT_TRUE(same_bits(captured->named_parameters()[chosen[i].first], before[i]));
}

TEST(Masks, ListingSaysWhatIsKept) {
  const auto module = two_layers();
  EXPECT_TRUE(masks(module->graph()).empty());
  const at::Tensor keep = random_mask({5, 20}, 8, 0.3);
  set_mask(*module, "fc2.weight", keep);
  const auto found = masks(module->graph());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].parameter, "fc2.weight");
  EXPECT_EQ(found[0].elements, 100);
  EXPECT_EQ(found[0].kept, keep.sum().item<int64_t>());
  EXPECT_TRUE(torch::equal(find_mask(module->graph(), "fc2.weight"), keep));
  EXPECT_FALSE(find_mask(module->graph(), "fc1.weight").defined());
  ASSERT_NE(module->named_buffers().find("fc2.weight_mask"), nullptr);
  EXPECT_EQ(module->named_buffers()["fc2.weight_mask"].numel(), 13);
}

TEST(Masks, AMaskIsReplacedAndTheModuleKeepsItsModeAndParameters) {
  const auto module = two_layers();
  module->eval();
  const at::Tensor weight = module->named_parameters()["fc1.weight"];
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 1));
  const at::Tensor keep = random_mask({20, 12}, 2);
  set_mask(*module, "fc1.weight", keep);
  EXPECT_EQ(masks(module->graph()).size(), 1u);
  EXPECT_TRUE(torch::equal(find_mask(module->graph(), "fc1.weight"), keep));
  EXPECT_TRUE(module->named_parameters()["fc1.weight"].is_same(weight));
  EXPECT_FALSE(module->is_training());
  remove_mask(*module, "fc1.weight");
  EXPECT_TRUE(masks(module->graph()).empty());
  EXPECT_EQ(module->named_buffers().size(), 0u);
}

TEST(Masks, ACloneKeepsItsOwn) {
  const auto module = two_layers();
  const at::Tensor x = torch::randn({4, 12});
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 1));
  const auto clone = std::make_shared<GraphModule>(module->graph().clone());
  const at::Tensor masked = module->forward(x);
  remove_masks(*module);
  EXPECT_TRUE(torch::equal(clone->forward(x), masked));
  EXPECT_EQ(masks(clone->graph()).size(), 1u);
}

TEST(Masks, GradientsAndAutocastAreThoseOfTheMaskedWeight) {
  const auto module = two_layers();
  const at::Tensor x = torch::randn({4, 12}), keep = random_mask({20, 12}, 1);
  set_mask(*module, "fc1.weight", keep);
  const auto baked = bake(*module);
  module->forward(x).pow(2).sum().backward();
  baked->forward(x).pow(2).sum().backward();
  const at::Tensor gradient = module->named_parameters()["fc1.weight"].grad();
  EXPECT_TRUE(torch::equal(gradient, baked->named_parameters()["fc1.weight"].grad() * keep));
  EXPECT_TRUE(baked->named_parameters()["fc1.weight"].requires_grad());
  const amp::Autocast guard(torch::kCPU, torch::kBFloat16);
  const at::Tensor low = module->forward(x);
  EXPECT_EQ(low.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(torch::equal(low, baked->forward(x)));
}

TEST(Masks, OtherTypesOfTheModelKeepTheBits) {
  const auto module = two_layers();
  const at::Tensor keep = random_mask({20, 12}, 1), x = torch::randn({4, 12}, at::kBFloat16);
  set_mask(*module, "fc1.weight", keep);
  module->to(at::kBFloat16);
  EXPECT_EQ(module->named_buffers()["fc1.weight_mask"].scalar_type(), at::kByte);
  EXPECT_TRUE(torch::equal(find_mask(module->graph(), "fc1.weight"), keep));
  EXPECT_TRUE(torch::equal(module->forward(x), bake(*module)->forward(x)));
}

TEST(Masks, BadOnesAreErrorsAndChangeNothing) {
  const auto module = two_layers();
  const std::string before = (std::ostringstream() << module->graph()).str();
  const auto error = [&](const std::string& name, const at::Tensor& keep) {
    return error_of([&] { set_masks(*module, {{"fc2.weight", random_mask({5, 20}, 1)}, {name, keep}}); });
  };
  EXPECT_SAYS(error("fc3.weight", random_mask({20, 12}, 1)),
              "expected the name of a parameter, got 'fc3.weight'");
  EXPECT_SAYS(error("fc1.weight", random_mask({12, 20}, 1)), "[20, 12] for 'fc1.weight'");
  EXPECT_SAYS(error("fc1.weight", torch::ones({20, 12})), "expected bools");
  EXPECT_SAYS(error("fc1.weight", {}), "got no tensor");
  EXPECT_SAYS(error_of([&] { remove_mask(*module, "fc1.weight"); }), "expected a parameter with a mask");
  EXPECT_EQ((std::ostringstream() << module->graph()).str(), before);
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 1));
  module->named_buffers()["fc1.weight_mask"].set_data(torch::zeros({29}, at::kByte));
  EXPECT_SAYS(error_of([&] { masks(module->graph()); }), "a mask for 'fc1.weight' of 30 bytes");
  EXPECT_SAYS(error_of([&] { bake(*module); }), "a mask for 'fc1.weight' of 30 bytes");
}

TEST(Masks, EnginesTakeTheZerosIn) {
  const auto module = two_layers();
  set_mask(*module, "fc1.weight", random_mask({20, 12}, 1));
  module->eval();
  const at::Tensor x = torch::randn({3, 12});
  const auto run = [&](GraphModule& from) {
    runtime::Engine engine(lower(from));
    return run_engine(engine, x);
  };
  const at::Tensor got = run(*module);
  EXPECT_TRUE(torch::equal(got, run(*bake(*module))));
  EXPECT_LT((got - module->forward(x)).abs().max().item<float>(), 1e-5);
  EXPECT_EQ(masks(module->graph()).size(), 1u) << "lowering changes a copy";
}

TEST(Masks, QuantizationSeesTheZeros) {
  const auto module = two_layers();
  const at::Tensor keep = random_mask({20, 12}, 1), x = torch::randn({64, 12});
  set_mask(*module, "fc1.weight", keep);
  module->eval();
  const auto baked = bake(*module);
  const auto quantized = [&](const std::shared_ptr<GraphModule>& from) {
    const auto prepared = quant::prepare(from, quant::Recipe::x86_int8());
    prepared->forward(x);
    return quant::convert(prepared)->forward(x);
  };
  EXPECT_TRUE(torch::equal(quantized(module), quantized(baked)));
  EXPECT_TRUE(
      torch::equal(quant::quantize_weights(module)->forward(x), quant::quantize_weights(baked)->forward(x)));
  const auto training = quant::prepare_qat(module, quant::QatRecipe().tensors);
  training->forward(x);
  const at::Tensor weight = training->named_parameters()["fc1.weight"];
  EXPECT_TRUE(torch::equal(weight != 0, keep));
  EXPECT_FALSE(torch::equal(module->named_parameters()["fc1.weight"] != 0, keep));
}

}  // namespace
}  // namespace ulp::prune::tests
