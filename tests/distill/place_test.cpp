// Places: what a module path, a node, a value, an output and a part of an attention name.
#include <cmath>

#include "networks.h"
#include "ulp/distill/layer_reference.h"
#include "ulp/distill/tap.h"

namespace ulp::distill::tests {
namespace {

/// The call that makes the value at a place, "aten::relu".
std::string op_at(const graph::GraphModule& model, const std::string& name) {
  const auto copy = model.graph().clone();
  const graph::Node& node = *find_layer_output(*copy, name)->producer;
  return std::string(node.kind() == graph::Node::Kind::call ? node.op() : node.target());
}

at::Tensor at_place(const graph::GraphModule& model, const std::string& name, const at::Tensor& input) {
  const std::vector<std::string> places = {name};
  return TappedModel(model, places, Keep::taps).run({input}).taps.at(0);
}

std::string error_at(const graph::GraphModule& model, const std::string& name) {
  return test::error_of([&] { find_layer_output(*model.graph().clone(), name); });
}

TEST(Place, AModuleIsWhatOthersReadOfIt) {
  const Captured model = conv_net(4, 1);
  EXPECT_EQ(op_at(*model, "layer1"), "aten::relu");
  EXPECT_EQ(op_at(*model, "layer1.norm"), "aten::batch_norm");
  EXPECT_EQ(op_at(*model, "layer1.conv"), "aten::conv2d");
  EXPECT_EQ(op_at(*model, "head"), "aten::addmm");
  EXPECT_EQ(op_at(*model, ""), "aten::addmm");
  EXPECT_EQ(op_at(*model, "output"), "aten::addmm");
  EXPECT_EQ(op_at(*model, "output:0"), "aten::addmm");
}

TEST(Place, TheInputOfAModuleOrANodeIsWhatItReadsFirst) {
  const Captured model = conv_net(4, 1);
  EXPECT_EQ(op_at(*model, "layer2:input"), "aten::relu");
  EXPECT_EQ(op_at(*model, "layer2.norm:input"), "aten::conv2d");
  EXPECT_EQ(op_at(*model, "head:input"), "aten::dropout");
  EXPECT_EQ(op_at(*model, "layer1:input"), "input");
  EXPECT_EQ(op_at(*model, "mean:input"), "aten::relu");
}

TEST(Place, NodesAndValuesAreNamedAsInTheListing) {
  const Captured model = conv_net(4, 1);
  for (const auto& node : model->graph().nodes()) {
    if (node->kind() != graph::Node::Kind::call || node->outputs().empty()) continue;
    const auto copy = model->graph().clone();
    EXPECT_EQ(find_layer_output(*copy, node->name())->producer->name(), node->name());
    EXPECT_EQ(find_layer_output(*copy, node->output()->name)->name, node->output()->name);
  }
  EXPECT_EQ(op_at(*model, "input"), "input");
}

/// A name is a whole component of a path.
TEST(Place, AModuleIsNotAnotherOneWhoseNameBeginsLikeIt) {
  torch::manual_seed(2);
  torch::nn::Sequential model;
  for (int i = 0; i < 12; ++i) model->push_back("l" + std::to_string(i), torch::nn::Linear(3, 3));
  const Captured captured = capture(model, {torch::randn({2, 3})});
  const at::Tensor x = torch::randn({2, 3});
  at::Tensor expected = x;
  for (int i = 0; i < 2; ++i) expected = model[i]->as<torch::nn::Linear>()->forward(expected);
  EXPECT_TRUE(same(at_place(*captured, "l1", x), expected));
}

struct TwiceImpl : torch::nn::Module {
  TwiceImpl() : fc(register_module("fc", torch::nn::Linear(3, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return fc(torch::tanh(fc(x))); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Twice);

TEST(Place, AModuleUsedTwiceHasTwoValuesOfWhichOneIsNamed) {
  torch::manual_seed(3);
  Twice model;
  const Captured captured = capture(model, {torch::randn({2, 3})});
  const std::string error = error_at(*captured, "fc");
  EXPECT_SAYS(error, "expected a place with one value, got 'fc', of which others read addmm, addmm_1");
  const at::Tensor x = torch::randn({2, 3});
  EXPECT_TRUE(same(at_place(*captured, "addmm", x), model->fc(x)));
  EXPECT_TRUE(same(at_place(*captured, "addmm_1", x), model(x)));
  EXPECT_TRUE(same(at_place(*captured, "tanh:input", x), model->fc(x)));
}

/// A list and a tuple in one result; of the modes, train has one tensor more.
struct ManyImpl : torch::nn::Module {
  ManyImpl()
      : a(register_module("a", torch::nn::Linear(3, 2))), b(register_module("b", torch::nn::Linear(3, 4))) {}
  torch::nn::Linear a, b;
};
TORCH_MODULE(Many);

TEST(Place, OutputsAreCountedThroughListsAndTuples) {
  torch::manual_seed(4);
  Many model;
  const at::Tensor x = torch::randn({2, 3});
  const Captured captured =
      graph::capture(*model,
                     [&](const std::vector<at::Tensor>& in) {
                       const at::Tensor a = model->a(in[0]), b = model->b(in[0]);
                       return c10::IValue(std::make_tuple(std::vector<at::Tensor>{a, b}, a + 1));
                     },
                     {x});
  EXPECT_TRUE(same(at_place(*captured, "", x), model->a(x)));
  EXPECT_TRUE(same(at_place(*captured, "output:1", x), model->b(x)));
  EXPECT_TRUE(same(at_place(*captured, "output:2", x), model->a(x) + 1));
  EXPECT_SAYS(error_at(*captured, "output:3"),
              "expected one of the 3 tensors that the model returns, got number 3");
  EXPECT_SAYS(error_at(*captured, "output:x"), "expected output:NUMBER, got 'output:x'");
  EXPECT_SAYS(error_at(*captured, "output:-1"), "expected output:NUMBER");
  const std::vector<std::string> none;
  EXPECT_TRUE(same(TappedModel(*captured, none).run({x}).output(), model->a(x)));
}

TEST(Place, AnOutputThatDependsOnTheModeFollowsIt) {
  torch::manual_seed(5);
  Many model;
  const at::Tensor x = torch::randn({2, 3});
  const Captured captured = graph::capture(*model,
                                           [&](const std::vector<at::Tensor>& in) {
                                             const at::Tensor a = model->a(in[0]), b = model->b(in[0]);
                                             if (!model->is_training()) return c10::IValue(a.softmax(1));
                                             return c10::IValue(std::make_tuple(a, b));
                                           },
                                           {x});
  const std::vector<std::string> places = {""};
  const TappedModel both(*captured, places);
  both.module()->train();
  EXPECT_TRUE(same(both.run({x}).taps[0], model->a(x)));
  EXPECT_TRUE(same(both.run({x}).output(), model->a(x)));
  both.module()->eval();
  EXPECT_TRUE(same(both.run({x}).taps[0], model->a(x).softmax(1)));
  EXPECT_TRUE(same(both.run({x}).output(), model->a(x).softmax(1)));
  EXPECT_SAYS(error_at(*captured, "output:1"), "expected one of the 1 tensors");
}

TEST(Place, WhatIsNotThereIsRefusedWithNamesThatAre) {
  const Captured model = conv_net(4, 1);
  EXPECT_SAYS(error_at(*model, "layer3"), "expected a module, node or value of the model, got 'layer3'");
  EXPECT_SAYS(error_at(*model, "layer3"), "its outermost modules are layer1, layer2, head");
  EXPECT_SAYS(error_at(*model, "layer1.bn"), "the modules in 'layer1' are layer1.conv, layer1.norm");
  EXPECT_SAYS(error_at(*model, "layer1.bn.x"), "the modules in 'layer1' are layer1.conv, layer1.norm");
  EXPECT_SAYS(error_at(*model, "layer3:input"), "got 'layer3'");
  EXPECT_SAYS(error_at(*model, ":input"), "expected a name before ':', got ':input'");
  EXPECT_SAYS(error_at(*model, "layer1:middle"),
              "expected 'input', queries, keys, values or scores behind ':', got 'middle'");
  EXPECT_SAYS(error_at(*model, "layer1:scores"), "expected one attention in 'layer1', got 0");
  torch::nn::Module nothing;
  const Captured calls = graph::capture(
      nothing, [](const std::vector<at::Tensor>& in) { return c10::IValue(torch::tanh(in[0]).exp()); },
      {torch::randn({2, 3})});
  EXPECT_SAYS(error_at(*calls, "relu"), "its calls are tanh, exp");
}

/// relu(x + b(relu(a(x)))), as blocks of residual networks are written.
struct ResidualBlockImpl : torch::nn::Module {
  torch::nn::Conv2d a{nullptr}, b{nullptr};
  ResidualBlockImpl() {
    const auto same = torch::nn::Conv2dOptions(4, 4, 3).padding(1);
    a = register_module("a", torch::nn::Conv2d(same));
    b = register_module("b", torch::nn::Conv2d(same));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::relu(x + b(torch::relu(a(x)))); }
};
TORCH_MODULE(ResidualBlock);

TEST(Place, ResidualModulesGiveTheirSum) {
  torch::manual_seed(4);
  ResidualBlock one, two;
  torch::nn::Sequential layer(one, two);
  struct Net : torch::nn::Module {
    torch::nn::Sequential layer;
    torch::nn::Linear head{nullptr};
    explicit Net(const torch::nn::Sequential& blocks)
        : layer(register_module("layer", blocks)), head(register_module("head", torch::nn::Linear(4, 2))) {}
    at::Tensor forward(const at::Tensor& x) { return head(layer->forward(x).mean({2, 3})); }
  } net(layer);
  const at::Tensor x = torch::randn({2, 4, 5, 5});
  const Captured captured = capture(net, {x});
  const at::Tensor first = one->forward(x);
  EXPECT_TRUE(same(at_place(*captured, "layer.0", x), first));
  EXPECT_TRUE(same(at_place(*captured, "layer.1", x), two->forward(first)));
  EXPECT_TRUE(same(at_place(*captured, "layer", x), two->forward(first)));
  EXPECT_TRUE(same(at_place(*captured, "layer.1.b", x), two->b(torch::relu(two->a(first)))));
}

class AttentionPlaces : public ::testing::TestWithParam<Attention> {};

/// softmax(scores) values is what the attention gives, and scores are of queries and keys.
TEST_P(AttentionPlaces, AreThePartsOfIt) {
  const Attention form = GetParam();
  torch::manual_seed(6);
  Transformer model(form);
  const Captured captured = capture(model, {tokens()});
  captured->eval();
  const std::string name = "layers.1.attention";
  const std::vector<std::string> places = {name + ":queries", name + ":keys",       name + ":values",
                                           name + ":scores",  "layers.1.out:input", name + ":input"};
  const TappedModel tapped(*captured, places);
  const std::vector<at::Tensor> taps = tapped.run({tokens()}).taps;
  SelfAttention own = model->attentions[1];
  const bool flat = form == Attention::batched;
  const auto heads = [&](const at::Tensor& x) {
    const at::Tensor split = x.view({3, 5, 2, 4}).transpose(1, 2);
    return flat ? split.flatten(0, 1) : split;
  };
  EXPECT_TRUE(same(taps[0], heads(own->query(taps[5]))));
  EXPECT_TRUE(same(taps[1], heads(own->key(taps[5]))));
  EXPECT_TRUE(same(taps[2], heads(own->value(taps[5]))));
  at::Tensor scores = taps[0].matmul(taps[1].transpose(-1, -2)) * (form == Attention::scaled ? 0.25 : 0.5);
  const at::Tensor hidden = own->mask == 0;
  if (form == Attention::causal || form == Attention::bool_mask)
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (form == Attention::float_mask) scores = scores + own->mask;
  if (form == Attention::written_masked) scores = scores.masked_fill(hidden, -1e4);
  EXPECT_TRUE(torch::allclose(taps[3], scores, 1e-6, 1e-6));
  at::Tensor mixed = taps[3].softmax(-1).matmul(taps[2]);
  if (flat) mixed = mixed.unflatten(0, {3, 2});
  EXPECT_TRUE(torch::allclose(taps[4], mixed.transpose(1, 2).flatten(2), 1e-5, 1e-6));
  // The module's own name is the mixed values, but where its mask, a tensor of its own, breaks its calls in two.
  if (form != Attention::written_masked) {
    EXPECT_TRUE(same(at_place(*captured, name, tokens()), taps[4]));
  } else {
    EXPECT_SAYS(error_at(*captured, name), "expected a place with one value");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionPlaces,
                         ::testing::Values(Attention::fused, Attention::causal, Attention::bool_mask,
                                           Attention::float_mask, Attention::scaled, Attention::written,
                                           Attention::written_masked, Attention::batched));

TEST(AttentionPlace, SeveralInAModuleAreRefused) {
  torch::manual_seed(7);
  Transformer model(Attention::fused);
  const Captured captured = capture(model, {tokens()});
  EXPECT_SAYS(error_at(*captured, "layers:scores"), "expected one attention in 'layers', got 2");
  EXPECT_SAYS(error_at(*captured, "layers.0.out:values"), "expected one attention in 'layers.0.out', got 0");
  EXPECT_EQ(op_at(*captured, "scaled_dot_product_attention_1:queries"), "aten::transpose");
}

/// Attentions as others write them: a bias in front of the scores, a choice between scores and a number, another type between,
/// LibTorch's own module.
TEST(AttentionPlace, OthersWriteTheirsOtherwise) {
  torch::nn::Module nothing;
  using Forward = std::function<at::Tensor(const at::Tensor& scores)>;
  const at::Tensor bias = torch::randn({4, 4}), seen = torch::ones({4, 4}).tril().to(torch::kBool);
  const std::vector<at::Tensor> inputs = {torch::randn({2, 4, 3}), torch::randn({2, 4, 3}),
                                          torch::randn({2, 4, 3})};
  for (const Forward& written :
       {Forward([&](const at::Tensor& s) { return bias + s / 2; }),
        Forward([&](const at::Tensor& s) { return at::where(seen, s, at::full({}, -1e9)); }),
        Forward([&](const at::Tensor& s) { return s.to(torch::kDouble) - 3; }),
        Forward([&](const at::Tensor& s) {
          return at::clamp(s, -5).reshape({-1, 4, 4});
        })}) {
    const Captured captured = graph::capture(
        nothing,
        [&](const std::vector<at::Tensor>& in) {
          const at::Tensor weights = written(in[0].matmul(in[1].transpose(1, 2))).softmax(-1);
          return c10::IValue(weights.to(torch::kFloat).matmul(in[2]));
        },
        inputs);
    const std::vector<std::string> places = {"softmax:queries", "softmax:keys", "softmax:values",
                                             "softmax:scores"};
    const std::vector<at::Tensor> taps = TappedModel(*captured, places, Keep::taps).run(inputs).taps;
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(taps[i], inputs[i])) << i;
    EXPECT_TRUE(same(taps[3], written(inputs[0].matmul(inputs[1].transpose(1, 2)))));
  }
  // A bias that is a product, too: nobody can tell which one is meant.
  const Captured two = graph::capture(
      nothing,
      [&](const std::vector<at::Tensor>& in) {
        const at::Tensor scores = in[0].matmul(in[1].transpose(1, 2)) + in[0].matmul(in[2].transpose(1, 2));
        return c10::IValue(scores.softmax(-1).matmul(in[2]));
      },
      inputs);
  EXPECT_SAYS(error_at(*two, "softmax:keys"), "expected an attention whose keys can be told");
}

/// A layer of LibTorch, whose attention is one product of all heads.
struct LibTorchEncoder : torch::nn::Module {
  torch::nn::TransformerEncoderLayer layer{nullptr};
  torch::nn::Linear head{nullptr};
  LibTorchEncoder() {
    layer =
        register_module("layer", torch::nn::TransformerEncoderLayer(
                                     torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)));
    head = register_module("head", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(layer(x).mean(0)); }
};

TEST(AttentionPlace, LibTorchsOwnLayerHasThem) {
  torch::manual_seed(3);
  auto model = std::make_shared<LibTorchEncoder>();
  const at::Tensor x = torch::randn({5, 2, 8});
  const Captured captured = capture(*model, {x});
  captured->eval();
  const std::vector<std::string> places = {"layer:queries", "layer:keys", "layer:values", "layer:scores"};
  const std::vector<at::Tensor> taps = TappedModel(*captured, places, Keep::taps).run({x}).taps;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(taps[i].sizes(), (std::vector<int64_t>{4, 5, 4})) << i;
  EXPECT_TRUE(torch::allclose(taps[0].matmul(taps[1].transpose(1, 2)), taps[3], 1e-5, 1e-6));
}

/// Keys that come in another order than (N, heads, T, depth) are transposed; other writings are refused.
TEST(AttentionPlace, KeysThatNobodyTransposedAreTransposed) {
  torch::nn::Module nothing;
  const auto forward = [](const std::vector<at::Tensor>& in) {
    return c10::IValue(in[0].matmul(in[1]).softmax(-1).matmul(in[2]));
  };
  const std::vector<at::Tensor> inputs = {torch::randn({2, 3, 4}), torch::randn({2, 4, 5}),
                                          torch::randn({2, 5, 4})};
  const Captured captured = graph::capture(nothing, forward, inputs);
  const std::vector<std::string> places = {"softmax:keys", "softmax:queries", "softmax:values"};
  const std::vector<at::Tensor> taps = TappedModel(*captured, places, Keep::taps).run(inputs).taps;
  EXPECT_TRUE(same(taps[0], inputs[1].transpose(-1, -2)));
  EXPECT_TRUE(same(taps[1], inputs[0]));
  EXPECT_TRUE(same(taps[2], inputs[2]));
  const Captured plain = graph::capture(
      nothing, [](const std::vector<at::Tensor>& in) { return c10::IValue(in[0].exp().softmax(-1)); },
      {torch::randn({2, 3})});
  EXPECT_SAYS(error_at(*plain, "softmax:queries"), "expected an attention whose queries can be told");
  EXPECT_SAYS(error_at(*plain, "softmax:values"), "expected an attention whose values can be told");
}

}  // namespace
}  // namespace ulp::distill::tests
