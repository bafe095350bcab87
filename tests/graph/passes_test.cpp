// canonicalize, fold_batch_norm and strip_training: what they find, what they refuse, and the numbers.
#include <algorithm>

#include "same.h"
#include "ulp/graph/passes/pass.h"

namespace {

using namespace ulp;
using namespace ulp::graph;
using namespace ulp::test;
namespace nn = torch::nn;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Statistics and affine parameters that are not the identity.
template <typename Norm>
void randomize(Norm& norm) {
  at::NoGradGuard no_grad;
  norm->running_mean.normal_(0, 1);
  norm->running_var.uniform_(0.2, 3);
  if (norm->weight.defined()) norm->weight.uniform_(-2, 2), norm->bias.normal_(0, 1);
}

/// |folded - original| per element: the folded weights and bias carry one rounding, and both ways sum
/// `terms` products; `magnitude` bounds the sum of their absolute values.
double fold_bound(int64_t terms, double magnitude) {
  return 4.0 * static_cast<double>(terms + 4) * std::numeric_limits<float>::epsilon() / 2 * magnitude;
}

template <typename Layer, typename Norm>
void expect_folds(Layer layer, Norm norm, const at::Tensor& x, int64_t terms) {
  randomize(norm);
  nn::Sequential model(layer, norm);
  model->eval();
  auto captured = ulp::capture(model, {x});
  at::Tensor want = captured->forward(x);
  canonicalize(captured->graph());
  PassReport report = fold_batch_norm(captured->graph());
  captured->graph().verify();
  captured->recompile();
  ASSERT_EQ(report.changes, std::vector<std::string>{"0 -> 1 folded"}) << joined(report.near_misses);
  EXPECT_EQ(count(captured->graph(), "aten::batch_norm"), 0);
  captured->eval();
  at::Tensor got = captured->forward(x);
  // The largest sum of |w x| over any output, times the largest factor that the norm puts on it.
  at::Tensor factor = (1 / (norm->running_var + 1e-5).sqrt()).abs().max();
  if (norm->weight.defined()) factor = factor * norm->weight.abs().max();
  double magnitude = (layer->weight.abs().max() * x.abs().max() * terms * factor).template item<double>() +
                     (norm->running_mean.abs().max() * factor).template item<double>() + 4;
  EXPECT_LE((want - got).abs().max().template item<double>(), fold_bound(terms, magnitude));
  // All that is left is the layer's own names.
  for (const auto& p : captured->named_parameters()) EXPECT_EQ(p.key().substr(0, 2), "0.") << p.key();
  EXPECT_EQ(captured->named_buffers().size(), 0);
}

TEST(FoldBatchNorm, EveryLayerBeforeIt) {
  torch::manual_seed(2);
  expect_folds(nn::Conv1d(nn::Conv1dOptions(4, 6, 3)), nn::BatchNorm1d(6), torch::randn({2, 4, 9}), 12);
  expect_folds(nn::Conv2d(nn::Conv2dOptions(4, 6, 3).groups(2).bias(false)), nn::BatchNorm2d(6),
               torch::randn({2, 4, 7, 7}), 18);
  expect_folds(nn::Conv3d(nn::Conv3dOptions(2, 3, 2)), nn::BatchNorm3d(3), torch::randn({2, 2, 4, 4, 4}), 16);
  expect_folds(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).stride(2)), nn::BatchNorm2d(6),
               torch::randn({2, 4, 5, 5}), 36);
  expect_folds(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).groups(2)), nn::BatchNorm2d(6),
               torch::randn({2, 4, 5, 5}), 18);
  expect_folds(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3)), nn::BatchNorm1d(6),
               torch::randn({2, 4, 5}), 12);
  expect_folds(nn::Linear(5, 3), nn::BatchNorm1d(3), torch::randn({4, 5}), 5);
  expect_folds(nn::Conv2d(nn::Conv2dOptions(4, 6, 1)),
               nn::BatchNorm2d(nn::BatchNorm2dOptions(6).affine(false)), torch::randn({2, 4, 7, 7}), 4);
}

TEST(FoldBatchNorm, GammaZeroGivesTheShift) {
  nn::Conv2d conv(nn::Conv2dOptions(2, 2, 1));
  nn::BatchNorm2d norm(2);
  randomize(norm);
  norm->weight.data().zero_();
  nn::Sequential model(conv, norm);
  auto captured = ulp::capture(model, {torch::randn({2, 2, 3, 3})});
  fold_batch_norm(captured->graph());
  captured->recompile();
  captured->eval();
  at::Tensor got = captured->forward(torch::randn({1, 2, 3, 3}));
  EXPECT_TRUE(torch::equal(got, norm->bias.view({1, 2, 1, 1}).expand_as(got)));
}

struct TwoReadersImpl : nn::Module {
  TwoReadersImpl() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(2, 2, 1)));
    bn1 = register_module("bn1", nn::BatchNorm2d(2));
    bn2 = register_module("bn2", nn::BatchNorm2d(2));
    bn3 = register_module("bn3", nn::BatchNorm2d(nn::BatchNorm2dOptions(2).track_running_stats(false)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = conv1(x);
    return bn2(torch::relu(bn1(y))) + bn3(conv1(x + 1)) + y;
  }
  nn::Conv2d conv1{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
};

TEST(FoldBatchNorm, SaysWhyNot) {
  auto model = std::make_shared<TwoReadersImpl>();
  auto captured = ulp::capture(*model, {torch::randn({2, 2, 3, 3})});
  PassReport report = fold_batch_norm(captured->graph());
  EXPECT_FALSE(report.changed());
  std::string misses = joined(report.near_misses);
  EXPECT_NE(misses.find("conv1 -> bn1 not folded: conv1's output is also used by add"), std::string::npos)
      << misses;
  EXPECT_NE(misses.find("relu -> bn2 not folded: relu is no convolution"), std::string::npos) << misses;
  EXPECT_NE(misses.find("normalizes by the batch's own statistics"), std::string::npos) << misses;
}

TEST(Canonicalize, LinearFromAddmmIsExact) {
  nn::Linear fc(6, 4);
  auto captured = check(fc, {torch::randn({3, 6})});
  EXPECT_EQ(count(captured->graph(), "aten::addmm"), 1);
  at::Tensor x = torch::randn({5, 6}), want = captured->forward(x);
  EXPECT_TRUE(canonicalize(captured->graph()).changed());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::linear"), 1);
  EXPECT_EQ(count(captured->graph(), "aten::t"), 0);
  EXPECT_TRUE(torch::equal(captured->forward(x), want));
}

TEST(Canonicalize, LinearFromMatmulAndBias) {
  nn::Linear fc(6, 4), plain(nn::LinearOptions(6, 4).bias(false));
  for (nn::Linear layer : {fc, plain}) {
    auto captured = check(layer, {torch::randn({3, 5, 6})});
    at::Tensor x = torch::randn({2, 5, 6}), want = captured->forward(x);
    canonicalize(captured->graph());
    captured->recompile();
    EXPECT_EQ(count(captured->graph(), "aten::linear"), 1) << captured->graph();
    EXPECT_EQ(count(captured->graph(), "aten::matmul") + count(captured->graph(), "aten::add"), 0);
    double bound =
        2 * 7 * std::numeric_limits<float>::epsilon() * (6 * 0.41 * x.abs().max().item<double>() + 0.41);
    EXPECT_LE((captured->forward(x) - want).abs().max().item<double>(), bound);
  }
}

/// weight.matmul(rows.t()), as logits of a language model are written that keeps words in columns.
TEST(Canonicalize, LinearFromAWeightTimesTransposedRows) {
  struct Columns : nn::Module {
    at::Tensor w = register_parameter("w", torch::randn({5, 6}));
    nn::Linear plain = register_module("plain", nn::Linear(6, 6));
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor rows = x.reshape({-1, 6});
      return torch::mm(w, rows.t()) + torch::sigmoid(w).matmul(rows.transpose(0, 1)) +
             rows.matmul(rows.t()).sum();
    }
  } net;
  auto captured = check(net, {torch::randn({3, 4, 6})});
  const at::Tensor x = torch::randn({2, 4, 6}), want = captured->forward(x);
  canonicalize(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::linear"), 3) << captured->graph();
  for (const auto& node : captured->graph().nodes()) {
    if (node->is("aten::linear")) EXPECT_TRUE(node->args[0].value->producer->is("aten::reshape"));
  }
  const double bound = 2 * 7 * std::numeric_limits<float>::epsilon() *
                       (6 * 8 * x.abs().max().item<double>() + want.abs().max().item<double>());
  EXPECT_LE((captured->forward(x) - want).abs().max().item<double>(), bound);
}

TEST(Canonicalize, AttentionFromSoftmax) {
  nn::TransformerEncoderLayer layer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
  auto captured = ulp::capture(layer, {torch::randn({5, 3, 8})}, {.batch_dims = {1}});
  captured->eval();
  at::Tensor x = torch::randn({5, 4, 8}), want = captured->forward(x);
  PassReport before = canonicalize(captured->graph());
  EXPECT_NE(joined(before.near_misses).find("follows the training flag"), std::string::npos);
  strip_training(captured->graph());
  canonicalize(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::scaled_dot_product_attention"), 1) << captured->graph();
  EXPECT_EQ(count(captured->graph(), "aten::softmax"), 0);
  // Layer norm bounds the result by sqrt(8); the paths differ by the rounding of some 100 terms.
  EXPECT_LE((captured->forward(x) - want).abs().max().item<double>(),
            100 * std::numeric_limits<float>::epsilon() * std::sqrt(8.0));
}

struct MeansImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return x.mean({2, 3}) + x.mean({-1, -2}, true).flatten(1) + x.mean({1, 2});
  }
};

TEST(Canonicalize, MeanOverHeightAndWidthIsGlobalPooling) {
  auto model = std::make_shared<MeansImpl>();
  auto captured = check(*model, {torch::randn({3, 4, 4, 4})});
  at::Tensor x = torch::randn({2, 4, 4, 4}), want = captured->forward(x);
  canonicalize(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::adaptive_avg_pool2d"), 2);
  EXPECT_EQ(count(captured->graph(), "aten::mean"), 1);
  EXPECT_TRUE(torch::equal(captured->forward(x), want));
}

struct ConvolutionsImpl : nn::Module {
  ConvolutionsImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(torch::kSame).groups(2)));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 2).stride(2)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::convolution(conv(x), up->weight, up->bias, {2, 2}, {0, 0}, {1, 1}, true, {0, 0}, 1);
    return torch::convolution(y, conv->weight.repeat({1, 3, 1, 1}), {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0},
                              1);
  }
  nn::Conv2d conv{nullptr};
  nn::ConvTranspose2d up{nullptr};
};

TEST(Canonicalize, ConvolutionsBecomePlain) {
  auto model = std::make_shared<ConvolutionsImpl>();
  auto captured = ulp::capture(*model, {torch::randn({3, 4, 6, 6})});
  at::Tensor x = torch::randn({2, 4, 6, 6}), want = captured->forward(x);
  canonicalize(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::convolution"), 0);
  EXPECT_EQ(count(captured->graph(), "aten::conv_transpose2d"), 1);
  EXPECT_EQ(count(captured->graph(), "aten::conv2d"), 2);
  EXPECT_EQ(count(captured->graph(), "aten::conv2d.padding"), 0);
  EXPECT_TRUE(torch::equal(captured->forward(x), want));
}

void expect_folded(nn::Sequential model, const at::Tensor& x) {
  model->to(torch::kDouble);
  model->train();
  model->forward(x);  // running statistics that are not 0 and 1
  model->eval();
  auto captured = ulp::capture(model, {x});
  const at::Tensor want = captured->forward(x);
  fold_batch_norm(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::batch_norm"), 0);
  EXPECT_TRUE(torch::allclose(captured->forward(x), want, 1e-10, 1e-10));
}

TEST(FoldBatchNorm, IntoConvolutionsOfEveryDimension) {
  torch::manual_seed(3);
  const auto image = [](std::vector<int64_t> shape) { return torch::randn(shape, torch::kDouble); };
  expect_folded(nn::Sequential(nn::Conv1d(2, 3, 3), nn::BatchNorm1d(3)), image({4, 2, 6}));
  expect_folded(nn::Sequential(nn::Conv3d(2, 3, 2), nn::BatchNorm3d(3)), image({4, 2, 4, 4, 4}));
  expect_folded(nn::Sequential(nn::ConvTranspose1d(2, 3, 3), nn::BatchNorm1d(3)), image({4, 2, 6}));
  expect_folded(nn::Sequential(nn::ConvTranspose2d(2, 3, 2), nn::BatchNorm2d(3)), image({4, 2, 4, 4}));
  expect_folded(nn::Sequential(nn::ConvTranspose3d(2, 3, 2), nn::BatchNorm3d(3)), image({4, 2, 3, 3, 3}));
}

TEST(StripTraining, LeavesWhatInferenceNeeds) {
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(2, 4, 3)), nn::BatchNorm2d(4), nn::Dropout(0.5),
                       nn::ReLU(), nn::Flatten(), nn::Linear(16, 3));
  at::Tensor x = torch::randn({3, 2, 4, 4});
  auto captured = ulp::capture(model, {x});
  captured->eval();
  at::Tensor want = captured->forward(x);
  PassReport report = strip_training(captured->graph());
  captured->recompile();
  EXPECT_EQ(count(captured->graph(), "aten::dropout"), 0);
  EXPECT_EQ(count(captured->graph(), "aten::add_"), 0) << "the counter of batches";
  EXPECT_NE(joined(report.changes).find("it does nothing in eval mode"), std::string::npos);
  captured->train();  // nothing is left that would listen
  EXPECT_TRUE(torch::equal(captured->forward(x), want));
}

/// One spelling of a channel shuffle with two groups.
struct Spelling {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> shuffle;
};

/// Two linear layers and what stands between them.
struct Between : nn::Module {
  using Middle = std::function<at::Tensor(const at::Tensor&)>;
  explicit Between(Middle middle) : middle(std::move(middle)) {
    first = register_module("first", nn::Linear(4, 6));
    second = register_module("second", nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(middle(first(x))); }
  Middle middle;
  nn::Linear first{nullptr}, second{nullptr};
};

/// The targets of the graph's calls after canonicalize and strip_training; the bits have to stay.
std::vector<std::string> plain_targets(const Between::Middle& middle) {
  Between model(middle);
  model.eval();
  const auto captured = ulp::capture(model, {torch::randn({3, 4})});
  const auto graph = captured->graph().clone();
  canonicalize(*graph);
  strip_training(*graph);
  graph->verify();
  GraphModule module(graph);
  module.eval();
  for (const int64_t batch : {1, 5}) {
    const at::Tensor x = torch::randn({batch, 4});
    EXPECT_TRUE(module.forward(x).equal(model.forward(x)));
  }
  std::vector<std::string> targets;
  for (const auto& node : graph->nodes()) {
    if (node->kind() == Node::Kind::call && !node->is("aten::linear")) targets.push_back(node->target());
  }
  return targets;
}

TEST(Canonicalize, CallsOfTheFrontendAreThoseOfPython) {
  using Targets = std::vector<std::string>;
  const at::Tensor low = torch::full({6}, -0.5), high = torch::full({6}, 0.25);
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return 1.0 - x; }), Targets{"aten::sub.Tensor"});
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return 3.0 / x; }), Targets{"aten::div.Tensor"});
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return torch::tensor(2.0) * x; }),
            Targets{"aten::mul.Tensor"});
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return x / x.norm(2, 1, /*keepdim=*/true); }),
            (Targets{"aten::linalg_vector_norm", "aten::div.Tensor"}));
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return x.norm(3, 1, true, torch::kFloat) * x; }),
            (Targets{"aten::linalg_vector_norm", "aten::mul.Tensor"}));
  EXPECT_EQ(plain_targets([&](const at::Tensor& x) { return x.clamp(low, high); }),
            (Targets{"aten::maximum", "aten::minimum"}));
  EXPECT_EQ(plain_targets([&](const at::Tensor& x) { return x.clamp(low, std::nullopt); }),
            Targets{"aten::maximum"});
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return x.relu().clone().neg(); }),
            (Targets{"aten::relu", "aten::neg"}));
  EXPECT_EQ(plain_targets([](const at::Tensor& x) { return torch::dropout(x, 0.0, true); }), Targets{});
  const auto padded = [](auto mode) {
    return plain_targets([mode](const at::Tensor& x) {
      namespace F = nn::functional;
      return F::pad(x.unsqueeze(1), F::PadFuncOptions({1, 1}).mode(mode)).slice(2, 1, -1).squeeze(1);
    });
  };
  for (const Targets& targets : {padded(torch::kReflect), padded(torch::kReplicate), padded(torch::kCircular),
                                 padded(torch::kConstant)})
    EXPECT_EQ(targets.at(1), "aten::pad");
}

TEST(Canonicalize, ClampsBetweenTensorsStayInGraphsThatTrain) {
  const at::Tensor low = torch::zeros({6});
  Between model([&](const at::Tensor& x) { return x.relu().clamp(low, std::nullopt); });
  const auto captured = ulp::capture(model, {torch::randn({3, 4})});
  const auto graph = captured->graph().clone();
  canonicalize(*graph);
  EXPECT_EQ(test::count(*graph, "aten::clamp"), 1);  // at its bounds the gradient of maximum is another one
  strip_training(*graph);
  EXPECT_EQ(test::count(*graph, "aten::clamp"), 0);
}

/// A struct whose second part train mode has alone, as Inception and segmentation networks do.
struct WithAuxiliary {
  at::Tensor output, auxiliary;
  ULP_TENSOR_FIELDS(output, auxiliary)
};

struct AuxiliaryNet : nn::Module {
  AuxiliaryNet() {
    body = register_module("body", nn::Conv2d(nn::Conv2dOptions(3, 8, 3)));
    head = register_module("head", nn::Conv2d(nn::Conv2dOptions(8, 4, 1)));
    side = register_module("side", nn::Conv2d(nn::Conv2dOptions(8, 4, 1)));
  }
  WithAuxiliary forward(const at::Tensor& x) {
    const at::Tensor y = torch::relu(body(x));
    WithAuxiliary result;
    if (is_training()) result.auxiliary = side(torch::avg_pool2d(y, 2)).mean({2, 3});
    result.output = head(y).mean({2, 3});
    return result;
  }
  nn::Conv2d body{nullptr}, head{nullptr}, side{nullptr};
};

TEST(StripTraining, TakesAwayWhatPassesMadeForTrainModeAlone) {
  AuxiliaryNet model;
  const auto captured = ulp::capture(model, {torch::randn({2, 3, 12, 12})});
  for (const auto& node : captured->graph().nodes()) {
    if (node->train_only) EXPECT_TRUE(node->output()->meta) << node->name();
  }
  const auto graph = captured->graph().clone();
  canonicalize(*graph);
  strip_training(*graph);
  graph->verify();
  EXPECT_EQ(test::count(*graph, "aten::adaptive_avg_pool2d"), 1);
  EXPECT_EQ(test::count(*graph, "aten::avg_pool2d"), 0);
  GraphModule module(graph);
  module.eval();
  model.eval();
  const at::Tensor x = torch::randn({3, 3, 12, 12});
  EXPECT_TRUE(module.forward_all({x}).at(0).allclose(model.forward(x).output, 0, 1e-6));
}

TEST(Canonicalize, FilledTensorsThatAreLargerThanWhatReadsThemStay) {
  const std::vector<std::string> targets = plain_targets([](const at::Tensor& x) {
    return torch::empty_like(x).fill_(2.0) * x.sum(1, /*keepdim=*/true);  // the result is as large as x
  });
  EXPECT_EQ(targets, (std::vector<std::string>{"aten::zeros_like", "aten::fill.Scalar",
                                               "aten::sum.dim_IntList", "aten::mul.Tensor"}));
}

TEST(Canonicalize, ChannelShufflesHaveOneForm) {
  const std::vector<Spelling> spellings = {
      {"torchvision",
       [](const at::Tensor& x) {
         const at::Tensor parts = x.view({x.size(0), 2, x.size(1) / 2, x.size(2), x.size(3)});
         return parts.transpose(1, 2).contiguous().view({x.size(0), -1, x.size(2), x.size(3)});
       }},
      {"permute",
       [](const at::Tensor& x) {
         return x.reshape({-1, 2, 3, 4, 5}).permute({0, 2, 1, 3, 4}).reshape(x.sizes());
       }},
      {"flatten", [](const at::Tensor& x) {
         return x.view({x.size(0), 2, 3, 4, 5}).transpose(-3, -4).flatten(1, 2);
       }}};
  for (const Spelling& spelling : spellings) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(2, 6, 1)), nn::Functional(spelling.shuffle),
                           nn::Conv2d(nn::Conv2dOptions(6, 2, 1)));
      const at::Tensor x = torch::randn({3, 2, 4, 5}).contiguous(format);
      auto captured = ulp::capture(model, {x});
      const at::Tensor want = captured->forward(x);
      want.sum().backward();
      const at::Tensor gradient = captured->parameters()[0].grad().clone();
      const PassReport report = canonicalize(captured->graph());
      captured->graph().verify();
      captured->recompile();
      EXPECT_EQ(count(captured->graph(), "aten::channel_shuffle"), 1) << spelling.name << "\n"
                                                                      << joined(report.changes);
      EXPECT_EQ(count(captured->graph(), "aten::transpose") + count(captured->graph(), "aten::permute"), 0);
      captured->zero_grad();
      const at::Tensor got = captured->forward(x);
      EXPECT_TRUE(torch::allclose(got, want, 1e-6, 1e-6)) << spelling.name;
      got.sum().backward();
      EXPECT_TRUE(torch::allclose(captured->parameters()[0].grad(), gradient, 1e-5, 1e-5));
    }
  }
}

TEST(Canonicalize, OtherTransposesAreNoShuffles) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> others = {
      [](const at::Tensor& x) {
        return x.view({-1, 2, 3, 4, 4}).transpose(3, 4).reshape(x.sizes());
      },
      [](const at::Tensor& x) {
        return x.view({-1, 2, 2, 6, 4}).transpose(1, 2).reshape(x.sizes());
      },
      [](const at::Tensor& x) {
        return x.view({-1, 2, 3, 4, 4}).transpose(1, 2).reshape({-1, 6, 16, 1});
      }};
  for (const auto& other : others) {
    nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(2, 6, 1)), nn::Functional(other));
    auto captured = ulp::capture(model, {torch::randn({3, 2, 4, 4})});
    canonicalize(captured->graph());
    EXPECT_EQ(count(captured->graph(), "aten::channel_shuffle"), 0);
    EXPECT_EQ(count(captured->graph(), "aten::transpose"), 1);
  }
}

}  // namespace
