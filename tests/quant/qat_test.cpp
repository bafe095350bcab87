#include "ulp/quant/qat/qat.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/static/quantized_average.h"

namespace ulp::quant {
namespace {

using graph::GraphModule;
using test::data;
using test::make_net;
using test::Net;
using ulp::test::error_of;

constexpr BatchNormFolding kFoldings[] = {BatchNormFolding::fast, BatchNormFolding::exact};

const char* name_of(BatchNormFolding folding) {
  return folding == BatchNormFolding::fast ? "fast" : "exact";
}

using Tensors = std::map<std::string, at::Tensor>;

// Gradients of the parameters and copies of the buffers that the captured model has.
Tensors state_of(const torch::nn::Module& module, const torch::nn::Module& names) {
  Tensors state;
  const auto parameters = module.named_parameters(), buffers = module.named_buffers();
  for (const auto& p : names.named_parameters()) state["d " + p.key()] = parameters[p.key()].grad().clone();
  for (const auto& b : names.named_buffers()) state[b.key()] = buffers[b.key()].clone();
  return state;
}

at::Tensor step(GraphModule& module, const at::Tensor& x) {
  const at::Tensor y = module.forward(x);
  torch::manual_seed(77);
  (y * torch::randn_like(y)).sum().backward();
  return y.detach();
}

void train_some(QatModule& module, int steps, double lr = 0.01) {
  torch::optim::SGD optimizer(module.parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
  module.train();
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor x = data(static_cast<uint64_t>(100 + i), 8);
    torch::cross_entropy_loss(module.forward(x), (x.mean({1, 2, 3}) > 0.5).to(at::kLong)).backward();
    optimizer.step();
  }
}

TEST(PrepareQat, WithoutRoundingItTrainsLikeTheModelItself) {
  for (const auto folding : kFoldings) {
    Net model = make_net(), twin = make_net();
    const at::Tensor x = data(1, 8);
    auto captured = capture(model, {x});
    captured->train();
    const at::Tensor expected = step(*captured, x);
    const Tensors wanted = state_of(*captured, *model);
    auto qat = prepare_qat(capture(twin, {x}), Recipe::x86_int8(), {.folding = folding});
    EXPECT_TRUE(qat->is_training());
    qat->set_fake_quant_enabled(false);
    EXPECT_TRUE(at::allclose(step(*qat, x), expected, 1e-4, 1e-4)) << name_of(folding);
    for (const auto& [name, tensor] : state_of(*qat, *twin)) {
      const at::Tensor difference = (tensor - wanted.at(name)).to(at::kFloat),
                       size = wanted.at(name).to(at::kFloat);
      EXPECT_LE(difference.norm().item<float>(), 1e-2F * size.norm().item<float>() + 1e-5F)
          << name_of(folding) << ' ' << name;
    }
    EXPECT_GT((wanted.at("block1.bn1.running_var") - 1).abs().max().item<float>(), 0.01F);
  }
}

// A convolution and a batch norm spelled out with LibTorch's operators.
struct Reference {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 6, 3).padding(1)};
  torch::nn::BatchNorm2d bn{6};

  Reference() {
    torch::manual_seed(3);
    const at::NoGradGuard no_grad;
    conv->weight.normal_(0, 0.3);
    conv->bias.normal_();
    bn->weight.normal_(1, 0.5);
    bn->bias.normal_();
    bn->running_mean.normal_();
    bn->running_var.uniform_(0.5, 4);
  }
  static at::Tensor channels(const at::Tensor& v) { return v.view({1, -1, 1, 1}); }
  at::Tensor factor() const { return bn->weight / (bn->running_var + bn->options.eps()).sqrt(); }
  at::Tensor quantized_weight(const at::Tensor& f) const {
    const at::Tensor w = conv->weight * f.view({-1, 1, 1, 1});
    const at::Tensor scale = w.detach().abs().amax({1, 2, 3}) / 127;
    return at::fake_quantize_per_channel_affine(w, scale, torch::zeros({6}, at::kInt), 0, -127, 127);
  }
  static at::Tensor quantized_input(const at::Tensor& x) {
    const QParams p = choose_qparams(x.min(), x.max(), Scheme{});
    return at::fake_quantize_per_tensor_affine(x, p.scale.item<double>(), p.zero_point.item<int>(), 0, 255);
  }
  at::Tensor fast(const at::Tensor& x) {
    const at::Tensor f = factor();
    const at::Tensor y = at::conv2d(quantized_input(x), quantized_weight(f), {}, 1, 1) / channels(f);
    return bn(y + channels(conv->bias));
  }
  at::Tensor exact(const at::Tensor& x) {
    const at::Tensor input = quantized_input(x), y = at::conv2d(input, conv->weight, {}, 1, 1);
    bn(y.detach() + channels(conv->bias.detach()));
    const at::Tensor deviation = (bn->running_var + bn->options.eps()).sqrt();
    const at::Tensor mean = y.mean({0, 2, 3}), batch = (y.var({0, 2, 3}, false) + bn->options.eps()).sqrt();
    const at::Tensor z = at::conv2d(input, quantized_weight(factor()), {}, 1, 1);
    return z * channels(deviation / batch) + channels(bn->bias - bn->weight * mean / batch);
  }
};

TEST(PrepareQat, BothFoldingsComputeTheirFormulas) {
  for (const auto folding : kFoldings) {
    const bool fast = folding == BatchNormFolding::fast;
    Reference ours, theirs;
    const at::Tensor x = data(2, 4);
    torch::nn::Sequential model(ours.conv, ours.bn);
    auto qat = prepare_qat(capture(model, {x}), Recipe::x86_int8(), {.folding = folding});
    theirs.bn->train();
    const at::Tensor got = step(*qat, x), expected = fast ? theirs.fast(x) : theirs.exact(x);
    torch::manual_seed(77);
    (expected * torch::randn_like(expected)).sum().backward();
    EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4)) << name_of(folding);
    const auto near = [&](const at::Tensor& a, const at::Tensor& b, const char* what) {
      EXPECT_TRUE(at::allclose(a, b, 1e-3, 1e-3)) << name_of(folding) << ' ' << what << '\n' << a << b;
    };
    near(ours.conv->weight.grad(), theirs.conv->weight.grad(), "weight");
    near(ours.bn->weight.grad(), theirs.bn->weight.grad(), "gamma");
    near(ours.bn->bias.grad(), theirs.bn->bias.grad(), "beta");
    near(ours.bn->running_mean, theirs.bn->running_mean, "mean");
    near(ours.bn->running_var, theirs.bn->running_var, "variance");
    EXPECT_EQ(ours.bn->num_batches_tracked.item<int>(), 1);
  }
}

TEST(PrepareQat, FrozenBatchNormTrainsThroughTheFoldedWeight) {
  for (const auto folding : kFoldings) {
    Reference ours, theirs;
    const at::Tensor x = data(2, 4);
    torch::nn::Sequential model(ours.conv, ours.bn);
    auto qat = prepare_qat(capture(model, {x}), Recipe::x86_int8(), {.folding = folding});
    qat->freeze_batch_norm();
    const at::Tensor got = step(*qat, x), f = theirs.factor();
    const at::Tensor expected =
        at::conv2d(Reference::quantized_input(x), theirs.quantized_weight(f),
                   theirs.bn->bias + f * (theirs.conv->bias - theirs.bn->running_mean), 1, 1);
    torch::manual_seed(77);
    (expected * torch::randn_like(expected)).sum().backward();
    EXPECT_TRUE(at::allclose(got, expected, 1e-3, 1e-3)) << (got - expected).abs().max();
    const auto wanted = torch::nn::Sequential(theirs.conv, theirs.bn)->named_parameters();
    for (const auto& p : model->named_parameters()) {
      EXPECT_TRUE(at::allclose(p.value().grad(), wanted[p.key()].grad(), 1e-3, 1e-3))
          << name_of(folding) << ' ' << p.key();
    }
  }
}

TEST(PrepareQat, AGammaOfZeroIsNoNaNAndCanLearn) {
  for (const auto folding : kFoldings) {
    for (const bool tiny : {false, true}) {
      Reference model;
      {
        const at::NoGradGuard no_grad;
        model.bn->weight[2] = tiny ? -1e-20F : 0.0F;
      }
      const at::Tensor x = data(3, 4);
      torch::nn::Sequential layers(model.conv, model.bn);
      auto qat = prepare_qat(capture(layers, {x}), Recipe::x86_int8(), {.folding = folding});
      const at::Tensor y = step(*qat, x);
      EXPECT_TRUE(at::isfinite(y).all().item<bool>()) << name_of(folding);
      EXPECT_TRUE(at::allclose(y.select(1, 2), model.bn->bias[2].expand_as(y.select(1, 2)), 1e-4, 1e-5));
      for (const auto& p : qat->named_parameters())
        EXPECT_TRUE(at::isfinite(p.value().grad()).all().item<bool>()) << name_of(folding) << ' ' << p.key();
      EXPECT_GT(std::abs(model.bn->weight.grad()[2].item<float>()), 0.1F) << name_of(folding);
      qat->eval();
      EXPECT_TRUE(convert_qat(qat)->forward(x).equal(qat->forward(x))) << name_of(folding);
    }
  }
}

struct Variant {
  const char* name;
  QatOptions options;
  int64_t weight_bits;
  bool frozen;
};

TEST(ConvertQat, GivesTheIntegersOfTheForwardPassBitForBit) {
  using Fold = BatchNormFolding;
  using Learn = LearnedParameters;
  for (const Variant& v :
       {Variant{"fast", {}, 8, false}, Variant{"exact", {Fold::exact}, 8, true},
        Variant{"4 bits", {}, 4, true}, Variant{"lsq", {Fold::fast, Learn::scale}, 4, false},
        Variant{"lsq+", {Fold::exact, Learn::scale_and_zero_point}, 8, true}}) {
    Net model = make_net();
    Recipe recipe = Recipe::x86_int8();
    recipe.weight.scheme.bits = v.weight_bits;
    auto qat = prepare_qat(capture(model, {data(1, 4)}), recipe, v.options);
    train_some(*qat, 4);
    if (v.frozen) {
      qat->set_observers_enabled(false);
      qat->freeze_batch_norm();
      train_some(*qat, 2);
    }
    qat->eval();
    graph::PassReport report;
    const auto converted = convert_qat(qat, &report);
    converted->graph().verify();
    const at::Tensor x = data(50, 16);
    const at::Tensor trained = qat->forward(x), integers = converted->forward(x);
    EXPECT_TRUE(trained.equal(integers)) << v.name << ": " << (trained - integers).abs().max();
    EXPECT_EQ(report.changes, qat->report().changes);
    const auto buffers = converted->named_buffers();
    const at::Tensor codes = buffers["block1.conv1.weight.int8"];
    EXPECT_LE(codes.abs().max().item<int>(), v.weight_bits == 8 ? 127 : 7) << v.name;
    EXPECT_GE(codes.abs().max().item<int>(), v.weight_bits == 8 ? 100 : 5) << v.name;
    EXPECT_TRUE(converted->parameters().empty());
  }
}

// Two branches that are joined, an average pool whose result has to be rounded, a linear layer with batch
// norm and a dropout, which are there in train mode only.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    torch::manual_seed(9);
    left = register_module("left", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
    right = register_module("right", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    hidden = register_module("hidden", torch::nn::Linear(10 * 16, 12));
    hidden_norm = register_module("hidden_norm", torch::nn::BatchNorm1d(12));
    out = register_module("out", torch::nn::Linear(12, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::cat({at::relu(left(x)), at::relu(norm(right(x)))}, 1);
    y = at::avg_pool2d(y, {4, 4}).flatten(1);
    y = at::dropout(at::relu(hidden_norm(hidden(y))), 0.2, is_training());
    return out(y);
  }
  torch::nn::Conv2d left{nullptr}, right{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::BatchNorm1d hidden_norm{nullptr};
  torch::nn::Linear hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(Branches);

TEST(ConvertQat, GivesTheSameIntegersThroughCatPoolAndLinearBatchNorm) {
  for (const auto folding : kFoldings) {
    Branches model;
    auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8(), {.folding = folding});
    EXPECT_EQ(qat->report().changes.size(), 4U);
    train_some(*qat, 4);
    qat->eval();
    const at::Tensor x = data(50, 16);
    EXPECT_TRUE(qat->forward(x).equal(convert_qat(qat)->forward(x))) << name_of(folding);
    EXPECT_TRUE(qat->forward(x).equal(qat->forward(x))) << "nothing is dropped in eval mode";
  }
}

/// Operations of one mode between layers: stochastic depth in training, a scale in eval mode.
struct DepthImpl : torch::nn::Module {
  DepthImpl() {
    torch::manual_seed(9);
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3).padding(1)));
    second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 6, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(6));
    out = register_module("out", torch::nn::Linear(6, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = at::relu(first(x));
    at::Tensor z = norm(second(y));
    z = is_training() ? z * torch::empty({z.size(0), 1, 1, 1}).bernoulli_(0.8) : z * 0.8;
    return out(at::relu(y + z).mean({2, 3}));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(Depth);

TEST(ConvertQat, GivesTheSameIntegersWhereTheModesDoDifferentThings) {
  for (const auto folding : kFoldings) {
    Depth model;
    auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8(), {.folding = folding});
    EXPECT_GE(qat->report().changes.size(), 3U);
    train_some(*qat, 4);
    qat->eval();
    const at::Tensor x = data(50, 16);
    EXPECT_TRUE(qat->forward(x).equal(convert_qat(qat)->forward(x))) << name_of(folding);
  }
}

/// A detector: eval mode decodes by a layer of its own what train mode gives as it is.
struct DecoderImpl : torch::nn::Module {
  torch::nn::Conv2d body{torch::nn::Conv2dOptions(3, 8, 3).padding(1)}, head{8, 8, 1}, decode{4, 1, 1};
  DecoderImpl() {
    register_module("body", body);
    register_module("head", head);
    register_module("decode", decode);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor map = head(torch::relu(body(x)));
    if (is_training()) return map;
    const at::Tensor bins = torch::softmax(map.view({map.size(0), 2, 4, -1}).transpose(1, 2), 1);
    return torch::cat({decode(bins), decode(bins + bins)}, 1);
  }
};
TORCH_MODULE(Decoder);

TEST(ConvertQat, LeavesWhatEvalModeAloneCallsInFloat) {
  torch::manual_seed(7);
  Decoder net;
  const auto captured = ulp::capture(net, {torch::randn({2, 3, 6, 6})});
  for (const Recipe& recipe : {Recipe::x86_int8(), Recipe::tflite_int8()}) {
    const auto module = prepare_qat(captured, recipe);
    EXPECT_TRUE(std::ranges::any_of(module->report().near_misses, [](const std::string& line) {
      return ulp::test::contains(line, "decode") && ulp::test::contains(line, "train mode does not call it");
    }));
    for (int step = 0; step < 2; ++step)
      module->forward(torch::randn({4, 3, 6, 6})).square().sum().backward();
    const auto converted = convert_qat(module);
    module->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::randn({3, 3, 6, 6}), want = converted->forward(x);
    EXPECT_EQ(want.size(1), 2);
    EXPECT_TRUE(torch::equal(module->forward(x), want));
  }
}

TEST(ConvertQat, HasTheFormOfStaticQuantization) {
  Net model = make_net();
  const auto captured = capture(model, {data(1, 4)});
  const auto prepared = prepare(captured, Recipe::x86_int8());
  prepared->forward(data(1, 8));
  auto qat = prepare_qat(captured, Recipe::x86_int8());
  qat->forward(data(1, 8));
  const auto nodes = [](const GraphModule& module) {
    std::vector<std::string> lines;
    for (const auto& node : module.graph().nodes()) lines.push_back(node->target() + " " + node->name());
    return lines;
  };
  const auto trained = convert_qat(qat);
  average_on_codes(trained->graph());  // lowering does; what was trained stays as it was
  EXPECT_EQ(nodes(*trained), nodes(*convert(prepared)));
  EXPECT_EQ(qat->report().changes, prepared->report().changes);
}

TEST(QatModule, FreezingIsRespectedByTrainAndCanBeUndone) {
  for (const auto folding : kFoldings) {
    Net model = make_net();
    auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8(), {.folding = folding});
    train_some(*qat, 1);
    const auto buffers = [&] {
      Tensors copies;
      for (const auto& b : qat->named_buffers()) copies[b.key()] = b.value().clone();
      return copies;
    };
    const auto differing = [&](const Tensors& before) {
      std::vector<std::string> names;
      for (const auto& b : qat->named_buffers()) {
        if (!b.value().equal(before.at(b.key()))) names.push_back(b.key());
      }
      return names;
    };
    qat->freeze_batch_norm();
    qat->set_observers_enabled(false);
    Tensors before = buffers();
    qat->eval();
    train_some(*qat, 2);
    EXPECT_EQ(differing(before), std::vector<std::string>{}) << name_of(folding);
    EXPECT_GT(model->block1->bn1->weight.grad().abs().max().item<float>(), 0) << "gamma still learns";
    qat->freeze_batch_norm(false);
    train_some(*qat, 1);
    // Both batch norms of both blocks: mean, variance, counter.
    EXPECT_EQ(differing(before).size(), 12U) << name_of(folding);
    before = buffers();
    qat->set_observers_enabled(true);
    qat->eval();
    qat->forward(data(9, 4));
    EXPECT_EQ(differing(before), std::vector<std::string>{}) << "eval changes nothing";
    train_some(*qat, 1);
    EXPECT_GT(differing(before).size(), 20U) << name_of(folding);
  }
}

TEST(QatModule, BatchNormsOfTheirOwnAreFrozenToo) {
  torch::nn::Sequential model(torch::nn::BatchNorm2d(3),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
  auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8());
  const auto bn = model[0]->as<torch::nn::BatchNorm2d>();
  qat->forward(data(2, 4));
  const at::Tensor mean = bn->running_mean.clone();
  EXPECT_GT(mean.abs().max().item<float>(), 0.01F);
  qat->freeze_batch_norm();
  qat->train();
  qat->forward(data(3, 4));
  EXPECT_TRUE(bn->running_mean.equal(mean));
  EXPECT_EQ(bn->num_batches_tracked.item<int>(), 1);
}

TEST(QatModule, WeightsAreObservedWhileNothingIsRounded) {
  torch::nn::Sequential model(torch::nn::Linear(3, 2));
  auto qat = prepare_qat(capture(model, {torch::zeros({2, 3})}), Recipe::x86_int8());
  const at::NoGradGuard no_grad;
  at::Tensor weight = model[0]->as<torch::nn::Linear>()->weight;
  qat->set_fake_quant_enabled(false);
  weight.fill_(1.27F);
  EXPECT_TRUE(at::allclose(qat->forward(torch::ones({1, 3})),
                           model[0]->as<torch::nn::Linear>()->forward(torch::ones({1, 3}))));
  qat->set_observers_enabled(false);
  weight.fill_(12.7F);
  qat->forward(torch::ones({1, 3}));
  qat->set_fake_quant_enabled(true);
  // Frozen at 0.01: what grew beyond it saturates.
  const auto buffers = convert_qat(qat)->named_buffers();
  EXPECT_TRUE(at::allclose(buffers["0.weight.scale"], torch::full({2}, 0.01F))) << buffers["0.weight.scale"];
  EXPECT_TRUE((buffers["0.weight.int8"] == 127).all().item<bool>());
}

TEST(QatSchedule, SetsTheSwitchesOfEveryMoment) {
  Net model = make_net();
  auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8());
  const QatSchedule schedule{.fake_quantize_from = 1, .freeze_observers_at = 3, .freeze_batch_norm_at = 2};
  const auto at = [&](int64_t now) {
    schedule.apply(*qat, now);
    return std::vector<bool>{qat->fake_quant_enabled(), qat->observers_enabled(), qat->batch_norm_frozen()};
  };
  EXPECT_EQ(at(0), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(at(1), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(at(2), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(at(7), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(at(1), (std::vector<bool>{true, true, false}));  // of a run that was taken back
  QatSchedule{}.apply(*qat, 1000);
  EXPECT_TRUE(qat->fake_quant_enabled() && qat->observers_enabled() && !qat->batch_norm_frozen());
  EXPECT_THROW((QatSchedule{.freeze_observers_at = 0}.apply(*qat, 0)), Error);
}

TEST(LearnedQuantizers, StartFromTheFirstBatchAndLearn) {
  Net model = make_net();
  auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8(),
                         {.learned = LearnedParameters::scale_and_zero_point});
  std::vector<std::string> learned;
  for (const auto& p : qat->named_parameters()) {
    if (p.key().ends_with("scale") || p.key().ends_with("zero_point")) learned.push_back(p.key());
  }
  // Eight activations with zero points, and the scales of seven layers' weights.
  EXPECT_EQ(learned.size(), 8U * 2 + 7U);
  qat->forward(data(1, 8));
  const auto values = qat->named_parameters();
  const at::Tensor scale = values["quantizer_input.scale"];
  EXPECT_LT(scale.item<float>(), 0.2F);  // no longer 1
  const at::Tensor first = scale.detach().clone();
  train_some(*qat, 2, 1e-3);
  for (const std::string& name : learned) {
    EXPECT_TRUE(values[name].grad().defined() && at::isfinite(values[name].grad()).all().item<bool>())
        << name;
  }
  EXPECT_FALSE(scale.equal(first));
  // A scale that the optimizer pushed below zero does not end training.
  const at::NoGradGuard no_grad;
  scale.fill_(-5);
  EXPECT_TRUE(at::isfinite(qat->forward(data(1, 8))).all().item<bool>());
}

TEST(Qat, TrainsUnderBf16AutocastWithFp32Masters) {
  for (const auto folding : kFoldings) {
    Net model = make_net();
    auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8(), {.folding = folding});
    torch::optim::SGD optimizer(qat->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
    const at::Tensor x = data(5, 32), labels = (x.mean({1, 2, 3}) > 0.5).to(at::kLong);
    std::vector<float> losses;
    at::ScalarType seen = at::kFloat;
    for (int i = 0; i < 12; ++i) {
      optimizer.zero_grad();
      at::Tensor y;
      {
        const amp::Autocast guard(torch::kCPU, torch::kBFloat16);
        y = qat->forward(x);
      }
      seen = y.scalar_type();
      const at::Tensor loss = torch::cross_entropy_loss(y.to(at::kFloat), labels);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    EXPECT_EQ(seen, at::kBFloat16);
    EXPECT_LT(losses.back(), 0.5F * losses.front()) << name_of(folding);
    for (const auto& p : qat->named_parameters()) {
      EXPECT_EQ(p.value().scalar_type(), at::kFloat) << p.key();
      EXPECT_EQ(p.value().grad().scalar_type(), at::kFloat) << p.key();
    }
  }
}

TEST(ActivationQuantizer, FollowsTheAverageOfTheRecipeOrItsFixedBounds) {
  torch::nn::Sequential model(torch::nn::Linear(1, 1));
  const auto captured = capture(model, {torch::zeros({2, 1})});
  Recipe recipe = Recipe::x86_int8();
  recipe.activation.averaging_constant = 0.25;
  const auto scale_after = [&](std::initializer_list<double> largest) {
    const auto qat = prepare_qat(captured, recipe);
    for (const double v : largest) qat->forward(torch::tensor({{0.0F}, {static_cast<float>(v)}}));
    return convert_qat(qat)->named_buffers()["quant.input.scale"].item<float>();
  };
  EXPECT_FLOAT_EQ(scale_after({4}), 4.0F / 255);
  EXPECT_FLOAT_EQ(scale_after({4, 8}), 5.0F / 255);
  recipe.activation.observer = ObserverKind::fixed;
  recipe.activation.fixed_max = 2;
  EXPECT_FLOAT_EQ(scale_after({4, 8}), 2.0F / 255);
}

TEST(QatErrors, NameWhatIsMissing) {
  Net model = make_net();
  const auto captured = capture(model, {data(1, 4)});
  EXPECT_THROW(prepare_qat(nullptr, Recipe::x86_int8()), Error);
  Recipe wrong = Recipe::x86_int8();
  wrong.activation.averaging_constant = 0;
  EXPECT_THROW(prepare_qat(captured, wrong), Error);
  EXPECT_THROW(convert_qat(nullptr), Error);
  const auto fresh = prepare_qat(captured, Recipe::x86_int8());
  EXPECT_NE(error_of([&] { convert_qat(fresh); }).find("got none for '"), std::string::npos);
  fresh->eval();
  EXPECT_NE(error_of([&] { fresh->forward(data(1, 4)); }).find("got none for 'input'"), std::string::npos);
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_modules = {"blok1"};
  EXPECT_NE(error_of([&] { prepare_qat(captured, recipe); }).find("'blok1'"), std::string::npos);
  const at::NoGradGuard no_grad;
  fresh->train();
  fresh->forward(data(1, 4));
  model->fc->weight[0][0] = NAN;
  EXPECT_NE(error_of([&] { convert_qat(fresh); }).find("'fc.weight'"), std::string::npos);
}

TEST(QatErrors, ValuesThatAreNotFiniteAreLeftOutAndReported) {
  Net model = make_net();
  auto qat = prepare_qat(capture(model, {data(1, 4)}), Recipe::x86_int8());
  const at::NoGradGuard no_grad;
  qat->forward(data(1, 4));
  at::Tensor x = data(2, 4);
  x[0][0][0][0] = INFINITY;
  qat->forward(x);
  graph::PassReport report;
  convert_qat(qat, &report);
  const auto& lines = report.near_misses;
  EXPECT_NE(
      std::find(lines.begin(), lines.end(), "input: 1 infinite or NaN values were left out of observation"),
      lines.end());
}

}  // namespace
}  // namespace ulp::quant
