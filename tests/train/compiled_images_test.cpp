// Compiled steps of convolutional networks beside LibTorch in float64: convolutions, batch norm, pooling and
// what joins them.
#include "compiled_support.h"
#include "error_of.h"
#include "ulp/models/registry.h"
#include "ulp/prune/masks/apply_mask.h"
#include "ulp/prune/masks/bit_mask.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::Tensors;

at::Tensor randn(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

at::Tensor head(const at::Tensor& x, const at::Tensor& weight) {
  return torch::linear(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1), weight);
}

TEST(CompiledImages, ConvolutionsOfAnySizes) {
  torch::manual_seed(1);
  struct Case {
    const char* name;
    int64_t in, out, kernel, stride, pad, dilation, groups;
  };
  for (const Case& c : std::vector<Case>{{"3x3", 3, 8, 3, 1, 1, 1, 1},
                                         {"1x1", 5, 7, 1, 1, 0, 1, 1},
                                         {"strided", 4, 6, 3, 2, 1, 1, 1},
                                         {"strided 1x1", 4, 6, 1, 2, 0, 1, 1},
                                         {"dilated", 2, 40, 3, 1, 2, 2, 1},
                                         {"groups", 6, 9, 3, 2, 1, 1, 3},
                                         {"depthwise", 6, 6, 3, 1, 1, 1, 6},
                                         {"depthwise strided", 20, 20, 5, 2, 2, 1, 20},
                                         {"a filter and a half a channel", 4, 8, 3, 1, 1, 1, 4},
                                         {"wide pad", 3, 5, 2, 3, 3, 1, 1}}) {
    for (const bool biased : {true, false}) {
      const Tensors parameters = {randn({c.in, 3, 1, 1}), randn({c.out, c.in / c.groups, c.kernel, c.kernel}),
                                  randn({c.out}), randn({2, c.out})};
      const test::Function net = [&](const Tensors& p, const Tensors& x) {
        const at::Tensor h = torch::relu(torch::conv2d(x[0], p[0]));
        return head(torch::tanh(torch::conv2d(h, p[1], biased ? p[2] : at::Tensor(), c.stride, c.pad,
                                              c.dilation, c.groups)),
                    p[3]);
      };
      expect_gradients(c.name, net, parameters, {randn({3, 3, 9, 11})}, LossFunction::mse(), randn({3, 2}),
                       9 * 11);
    }
  }
}

TEST(CompiledImages, TransposedConvolutions) {
  torch::manual_seed(2);
  for (const int64_t groups : {1, 2}) {
    for (const int64_t stride : {1, 2, 3}) {
      const Tensors parameters = {randn({4, 3, 3, 3}), randn({4, 6 / groups, 2, 3}), randn({6}),
                                  randn({2, 6})};
      const test::Function net = [=](const Tensors& p, const Tensors& x) {
        const at::Tensor h = torch::conv2d(x[0], p[0]);
        return head(torch::tanh(torch::conv_transpose2d(h, p[1], p[2], stride, {0, 1}, stride - 1, groups)),
                    p[3]);
      };
      expect_gradients("transposed", net, parameters, {randn({2, 3, 7, 6})}, LossFunction::mse(),
                       randn({2, 2}), 400);
    }
  }
  const Tensors parameters = {randn({4, 3, 3, 3}), randn({4, 1, 3, 3}), randn({2, 4})};
  const test::Function net = [=](const Tensors& p, const Tensors& x) {
    return head(torch::tanh(torch::conv_transpose2d(torch::conv2d(x[0], p[0]), p[1], {}, 2, 1, 1, 4)), p[2]);
  };
  expect_gradients("depthwise", net, parameters, {randn({2, 3, 7, 6})}, LossFunction::mse(), randn({2, 2}),
                   100);
}

TEST(CompiledImages, BatchNormWithAndWithoutReluAndSum) {
  torch::manual_seed(3);
  const Tensors parameters = {randn({5, 3, 3, 3}), randn({5}), randn({5}),    randn({5, 5, 3, 3}),
                              randn({5}),          randn({5}), randn({2, 5}), randn({5, 3, 1, 1})};
  const auto norm = [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return torch::batch_norm(x, weight, bias, {}, {}, true, 0.1, 1e-3, false);
  };
  const std::vector<std::pair<std::string, std::function<at::Tensor(const Tensors&, const at::Tensor&)>>>
      blocks = {
          {"plain", [&](const Tensors& p, const at::Tensor& x) { return torch::tanh(norm(x, p[1], p[2])); }},
          {"relu", [&](const Tensors& p, const at::Tensor& x) { return torch::relu(norm(x, p[1], p[2])); }},
          {"relu6", [&](const Tensors& p, const at::Tensor& x) { return torch::relu6(norm(x, p[4], p[5])); }},
          {"relu and itself",
           [&](const Tensors& p, const at::Tensor& x) {
             const at::Tensor y = norm(x, p[1], p[2]);
             return torch::relu(y) + y * 0.5;
           }},
          {"without parameters", [&](const Tensors&, const at::Tensor& x) { return norm(x, {}, {}); }},
          {"residual",
           [&](const Tensors& p, const at::Tensor& x) {
             const at::Tensor y = torch::relu(norm(x, p[1], p[2]));
             return torch::relu(norm(torch::conv2d(y, p[3], {}, 1, 1), p[4], p[5]) + y);
           }},
          {"residual from the right",
           [&](const Tensors& p, const at::Tensor& x) {
             const at::Tensor y = torch::relu(norm(x, p[1], p[2]));
             return torch::relu(torch::add(y, norm(torch::conv2d(y, p[3], {}, 1, 1), p[4], p[5])));
           }},
          {"twice the same",
           [&](const Tensors& p, const at::Tensor& x) {
             const at::Tensor y = norm(x, p[1], p[2]);
             return torch::relu(y + y);
           }},
          {"sum that is read twice",
           [&](const Tensors& p, const at::Tensor& x) {
             const at::Tensor y = norm(x, p[1], p[2]) + x;
             return torch::relu(y) * torch::sigmoid(y);
           }},
          {"two norms",
           [&](const Tensors& p, const at::Tensor& x) {
             return torch::relu(norm(x, p[1], p[2]) + norm(torch::conv2d(x, p[3], {}, 1, 1), p[4], p[5]));
           }},
      };
  for (const auto& [name, block] : blocks) {
    const test::Function net = [&, f = block](const Tensors& p, const Tensors& x) {
      return head(f(p, torch::conv2d(x[0], p[0])), p[6]);
    };
    expect_gradients(name, net, parameters, {randn({4, 3, 8, 9})}, LossFunction::mse(), randn({4, 2}),
                     6 * 7 * 4);
  }
  const Tensors rows = {randn({9, 6}), randn({9}), randn({9}), randn({3, 9})};
  const test::Function flat = [&](const Tensors& p, const Tensors& x) {
    return torch::linear(torch::relu(norm(torch::linear(x[0], p[0]), p[1], p[2])), p[3]);
  };
  expect_gradients("rows", flat, rows, {randn({17, 6})}, LossFunction::mse(), randn({17, 3}), 64);
}

TEST(CompiledImages, Pools) {
  torch::manual_seed(4);
  const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> pools = {
      {"max 2", [](const at::Tensor& x) { return torch::max_pool2d(x, 2); }},
      {"max 3 stride 2", [](const at::Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); }},
      {"max dilated",
       [](const at::Tensor& x) {
         return torch::max_pool2d(x, {2, 3}, {1, 2}, {1, 1}, 2);
       }},
      {"max ceil", [](const at::Tensor& x) { return torch::max_pool2d(x, 2, 2, 0, 1, true); }},
      {"average", [](const at::Tensor& x) { return torch::avg_pool2d(x, 2); }},
      {"average padded", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1); }},
      {"average inside", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1, true, false); }},
      {"average ceil", [](const at::Tensor& x) { return torch::avg_pool2d(x, 4, 3, 1, true); }},
      {"average divisor", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 1, 0, false, true, 5); }},
      {"adaptive",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {3, 4});
       }},
      {"adaptive larger",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {11, 13});
       }},
      {"mean",
       [](const at::Tensor& x) {
         return x.mean({2, 3}, true);
       }},
      {"equal numbers", [](const at::Tensor& x) { return torch::max_pool2d(torch::relu(x), 3, 1); }},
  };
  for (const auto& [name, pool] : pools) {
    const Tensors parameters = {randn({6, 3, 3, 3}), randn({2, 6})};
    const test::Function net = [f = pool](const Tensors& p, const Tensors& x) {
      return head(torch::tanh(f(torch::conv2d(x[0], p[0]))), p[1]);
    };
    expect_gradients(name, net, parameters, {randn({3, 3, 9, 10})}, LossFunction::mse(), randn({3, 2}), 150);
  }
}

TEST(CompiledImages, BothOrdersOfNumbersMeet) {
  torch::manual_seed(5);
  const Tensors parameters = {randn({4, 3, 3, 3}), randn({2, 4 * 5 * 6}), randn({4, 3, 3, 3}), randn({4, 6})};
  const std::vector<std::pair<std::string, test::Function>> nets = {
      {"flatten", [](const Tensors& p,
                     const Tensors& x) { return torch::linear(torch::conv2d(x[0], p[0]).flatten(1), p[1]); }},
      {"parameter added",
       [](const Tensors& p, const Tensors& x) {
         return torch::linear((torch::conv2d(x[0], p[0]) + p[3].sum()).flatten(1), p[1]);
       }},
      {"linear over columns",
       [](const Tensors& p, const Tensors& x) {
         return torch::linear(torch::conv2d(x[0], p[0]), p[3]).mean(-1);
       }},
      {"back again",
       [](const Tensors& p, const Tensors& x) {
         const at::Tensor h = torch::conv2d(x[0], p[0]);
         const at::Tensor soft = torch::softmax(h, -1);
         return torch::linear((soft * h + torch::conv2d(x[0], p[2])).flatten(1), p[1]);
       }},
      {"input itself",
       [](const Tensors& p, const Tensors& x) {
         const at::Tensor h = torch::conv2d(torch::tanh(x[0]) + x[0], p[0]);
         return torch::linear(torch::cat({h, h.detach()}, 1).narrow(1, 2, 4).flatten(1), p[1]);
       }},
      {"concat of channels",
       [](const Tensors& p, const Tensors& x) {
         const at::Tensor a = torch::conv2d(x[0], p[0]), b = torch::conv2d(x[0], p[2]);
         const Tensors parts = torch::cat({a, torch::tanh(b)}, 1).chunk(2, 1);
         return torch::linear((parts[0] * parts[1]).flatten(1), p[1]);
       }},
      {"numbers for each channel",
       [](const Tensors& p, const Tensors& x) {
         const at::Tensor h = torch::conv2d(x[0], p[0]);
         const at::Tensor gate = torch::hardsigmoid(torch::adaptive_avg_pool2d(h, {1, 1}));
         const at::Tensor row = p[3].select(1, 0).view({1, 4, 1, 1}),
                          plain = p[3].select(1, 1).view({4, 1, 1});
         return torch::linear((h * gate * row + plain).flatten(1), p[1]);
       }},
      {"larger images",
       [](const Tensors& p, const Tensors& x) {
         namespace F = torch::nn::functional;
         const at::Tensor h = torch::conv2d(x[0], p[0]);
         const at::Tensor twice =
             F::interpolate(h, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 3}));
         const at::Tensor sized = torch::upsample_nearest2d(torch::tanh(twice), {20, 36});
         return torch::linear(torch::avg_pool2d(sized, {4, 6}).flatten(1), p[1]);
       }},
      {"images as a result", [](const Tensors& p, const Tensors& x) { return torch::conv2d(x[0], p[0]); }},
  };
  for (const auto& [name, net] : nets) {
    const at::Tensor x = randn({3, 3, 7, 8});
    Tensors like;
    for (const at::Tensor& p : parameters) like.push_back(p);
    expect_gradients(name, net, parameters, {x}, LossFunction::mse(), randn(net(parameters, {x}).sizes()),
                     60);
  }
}

/// Running statistics and counters of both, after the same steps.
TEST(CompiledImages, RunningStatisticsAndCountersAreLibTorchs) {
  torch::manual_seed(6);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3)), torch::nn::BatchNorm2d(6),
                              torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(),
                              torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6).momentum(0.3)),
                              torch::nn::Linear(6, 4));
  const at::Tensor x = randn({8, 3, 9, 7}), y = torch::randint(4, {8}, at::kLong);
  const auto graph = capture(model, {x}, {.far_sizes = false});
  auto same = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  graph->train();
  same->train();
  same->to(torch::kDouble);
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  torch::optim::SGD sgd(same->parameters(), torch::optim::SGDOptions(0.1));
  CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor images = randn({i % 2 == 0 ? 8 : 5, 3, 9, 7});
    const at::Tensor classes = torch::randint(4, {images.size(0)}, at::kLong);
    sgd.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(same->forward(images.to(torch::kDouble)), classes);
    loss.backward();
    sgd.step();
    // A look at the result changes nothing.
    std::vector<float> result(static_cast<size_t>(step.result_size(images.size(0))));
    step.forward(images.const_data_ptr<float>(), images.size(0), result.data());
    EXPECT_NEAR(double{step.step(images, classes)}, loss.item<double>(), 1e-5);
  }
  const auto made = graph->named_buffers(), expected = same->named_buffers();
  ASSERT_EQ(made.size(), expected.size());
  for (const auto& entry : expected) {
    const at::Tensor own = made[entry.key()];
    if (entry.value().scalar_type() == at::kLong) {
      EXPECT_EQ(own.item<int64_t>(), 5) << entry.key();
      continue;
    }
    const double largest = entry.value().abs().max().item<double>();
    EXPECT_LE((own.to(torch::kDouble) - entry.value()).abs().max().item<double>(), 0x1p-18 * (1 + largest))
        << entry.key();
  }
  EXPECT_GT(made["1.running_mean"]._version(), 0U);
  // Without gradients of its own, eval mode reads them.
  graph->eval();
  same->eval();
  CompiledStep eval = compile(graph, LossFunction::cross_entropy(), optimizer);
  same->zero_grad();
  const at::Tensor loss = torch::cross_entropy_loss(same->forward(x.to(torch::kDouble)), y);
  loss.backward();
  EXPECT_NEAR(double{eval.step(x, y)}, loss.item<double>(), 1e-5);
  const auto parameters = same->parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor gradient = eval.gradient(graph->parameters()[p]).to(torch::kDouble);
    EXPECT_LE((gradient - parameters[p].grad()).abs().max().item<double>(),
              1e-4 * parameters[p].grad().abs().max().item<double>());
  }
  EXPECT_EQ(graph->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 5);
}

TEST(CompiledImages, NothingChangesWhereAStepIsRefused) {
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3)), torch::nn::BatchNorm2d(6),
                              torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(),
                              torch::nn::BatchNorm1d(6));
  const auto graph = capture(model, {randn({8, 3, 9, 7})}, {.far_sizes = false});
  graph->train();
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer);
  const auto values = [&] {
    Tensors made;
    for (const at::Tensor& one : graph->parameters()) made.push_back(one.detach().clone());
    for (const at::Tensor& one : graph->buffers()) made.push_back(one.detach().clone());
    return made;
  };
  const Tensors before = values();
  const auto expect_unchanged = [&] {
    const Tensors after = values();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
  };
  // One number of each channel has no variance.
  const std::string message = error_of([&] { step.step(randn({1, 3, 9, 7}), torch::zeros({1}, at::kLong)); });
  EXPECT_TRUE(contains(message, "batch norm in train mode") && contains(message, "two numbers")) << message;
  expect_unchanged();
  EXPECT_TRUE(contains(error_of([&] {
                         step.step(randn({2, 3, 9, 7}), torch::full({2}, 6, at::kLong));
                       }),
                       "[0, 6)"));
  expect_unchanged();
  // A rule out of range is found after the gradients.
  optimizer.param_groups()[0].options().set_lr(-1);
  EXPECT_FALSE(error_of([&] { step.step(randn({2, 3, 9, 7}), torch::zeros({2}, at::kLong)); }).empty());
  expect_unchanged();
}

/// The networks of ulp::models, with the gradients of LibTorch in float64. Numbers near the kinks of relu
/// fall on different sides in both, so that the difference of all gradients of a parameter is measured:
/// LibTorch in fp32 has no other.
TEST(CompiledImages, ReferenceNetworks) {
  for (const char* name : {"resnet8", "mobilenet_v2", "lenet5", "unet"}) {
    SCOPED_TRACE(name);
    torch::manual_seed(11);
    const bool lenet = std::string(name) == "lenet5";
    const models::ModelOptions options{.in_channels = lenet ? 1 : 3, .image_size = lenet ? 28 : 32};
    const auto model = models::make_model(name, options);
    const at::Tensor x = randn({2, options.in_channels, options.image_size, options.image_size});
    const bool pixels = std::string(name) == "unet";
    const at::Tensor y =
        pixels ? torch::randint(10, {2, 32, 32}, at::kLong) : torch::randint(10, {2}, at::kLong);
    const auto graph = capture(model, {x}, {.far_sizes = false});
    const bool training = std::string(name) != "mobilenet_v2";  // which has dropout in train mode
    graph->train(training);
    amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
    CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer);
    const float loss = step.step(x, y);
    std::vector<float> result(static_cast<size_t>(step.result_size(2)));
    step.forward(x.const_data_ptr<float>(), 2, result.data());
    model->to(torch::kDouble);
    model->train(training);
    const at::Tensor expected = model->forward(x.to(torch::kDouble));
    const at::Tensor made = torch::from_blob(result.data(), expected.sizes()).to(torch::kDouble);
    EXPECT_LE((made - expected).abs().max().item<double>(), 1e-4 * expected.abs().max().item<double>());
    const at::Tensor exact = torch::cross_entropy_loss(expected, y);
    exact.backward();
    EXPECT_NEAR(double{loss}, exact.item<double>(), 1e-5 * exact.item<double>());
    const auto parameters = model->parameters();
    double error = 0, norm = 0;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const at::Tensor gradient = step.gradient(graph->parameters()[p]).to(torch::kDouble);
      error += (gradient - parameters[p].grad()).square().sum().item<double>();
      norm += parameters[p].grad().square().sum().item<double>();
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-4);
  }
}

TEST(CompiledImages, LosesWhatLibTorchLoses) {
  torch::manual_seed(14);
  const auto model = models::make_model("resnet8", {.image_size = 16});
  const at::Tensor x = randn({32, 3, 16, 16}), y = torch::randint(10, {32}, at::kLong);
  const auto graph = capture(model, {x}, {.far_sizes = false});
  graph->train();
  const auto wide = models::make_model("resnet8", {.image_size = 16});
  {
    const torch::NoGradGuard no_grad;
    for (size_t p = 0; p < model->parameters().size(); ++p)
      wide->parameters()[p].copy_(model->parameters()[p]);
  }
  wide->to(torch::kDouble);
  wide->train();
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.05, .momentum = 0.9});
  torch::optim::SGD sgd(wide->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  CompiledStep step = compile(graph, LossFunction::cross_entropy(), optimizer);
  double first = 0, last = 0;
  for (int i = 0; i < 12; ++i) {
    sgd.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(wide->forward(x.to(torch::kDouble)), y);
    loss.backward();
    sgd.step();
    last = loss.item<double>();
    if (i == 0) first = last;
    // Rounding grows along a run; a wrong gradient, update or statistic would part the two in a few steps.
    ASSERT_NEAR(double{step.step(x, y)}, last, 1e-3 * last) << i;
  }
  EXPECT_LT(last, 0.5 * first);
  for (const auto& entry : wide->named_buffers()) {
    const at::Tensor own = graph->named_buffers()[entry.key()].to(torch::kDouble);
    EXPECT_LE((own - entry.value()).abs().max().item<double>(), 1e-3 * (1 + own.abs().max().item<double>()))
        << entry.key();
  }
}

TEST(CompiledImages, WeightsThatLieChannelsLast) {
  torch::manual_seed(8);
  const auto make = [](bool channels_last) {
    torch::manual_seed(9);
    torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3)),
                                torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 6, 3).groups(6)),
                                torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten());
    for (at::Tensor& p : model->parameters()) {
      if (channels_last && p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
    }
    const auto graph = capture(model, {torch::ones({2, 3, 9, 7})}, {.far_sizes = false});
    graph->train();
    return graph;
  };
  const auto plain = make(false), last = make(true);
  amp::FusedOptimizer a(plain->parameters(), amp::AdamRule{}), b(last->parameters(), amp::AdamRule{});
  CompiledStep one = compile(plain, LossFunction::mse(), a), other = compile(last, LossFunction::mse(), b);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = randn({2, 3, 9, 7}), y = randn({2, 6});
    EXPECT_EQ(one.step(x, y), other.step(x, y));
  }
  for (size_t p = 0; p < plain->parameters().size(); ++p)
    EXPECT_TRUE(torch::equal(plain->parameters()[p], last->parameters()[p]));
}

TEST(CompiledImages, MaskedWeights) {
  torch::manual_seed(12);
  const Tensors parameters = {randn({6, 3, 3, 3}), randn({6, 1, 3, 3}), randn({6, 4, 2, 3}),
                              randn({4}),          randn({4}),          randn({2, 4})};
  Tensors bits;
  for (size_t p = 0; p < 4; ++p) bits.push_back(prune::pack_mask(torch::rand(parameters[p].sizes()) < 0.6));
  for (const bool dense : {false, true}) {
    const test::Function net = [=](const Tensors& p, const Tensors& x) {
      const auto masked = [&](size_t i) { return prune::apply_mask(p[i], bits[i], dense); };
      at::Tensor h = torch::relu(torch::conv2d(x[0], masked(0)));
      h = torch::conv_transpose2d(torch::conv2d(h, masked(1), {}, 1, 1, 1, 6), masked(2));
      return head(torch::relu(torch::batch_norm(h, masked(3), p[4], {}, {}, true, 0.1, 1e-3, false)), p[5]);
    };
    expect_gradients("masked", net, parameters, {randn({3, 3, 8, 7})}, LossFunction::mse(), randn({3, 2}),
                     150);
  }
}

TEST(CompiledImages, BackwardMovesRunningStatisticsAsForwardDoes) {
  const auto make = [] {
    torch::manual_seed(13);
    torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3)),
                                torch::nn::BatchNorm2d(6), torch::nn::AdaptiveAvgPool2d(1),
                                torch::nn::Flatten());
    const auto graph = capture(model, {torch::ones({4, 3, 9, 7})}, {.far_sizes = false});
    graph->train();
    return graph;
  };
  const auto one = make(), two = make();
  amp::FusedOptimizer a(one->parameters(), amp::SgdRule{.lr = 0.1}),
      b(two->parameters(), amp::SgdRule{.lr = 0.1});
  CompiledStep step = compile(one, LossFunction::mse(), a), halves = compile(two, LossFunction::mse(), b);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = randn({4, 3, 9, 7}), y = randn({4, 6});
    EXPECT_EQ(step.step(x, y), halves.backward({x}, y));
    for (const auto& entry : one->named_buffers())
      EXPECT_TRUE(torch::equal(entry.value(), two->named_buffers()[entry.key()])) << entry.key();
    halves.apply();
  }
  EXPECT_EQ(two->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
}

TEST(CompiledImages, RefusesByName) {
  torch::manual_seed(10);
  const auto refusal = [](const test::Function& function, const Tensors& parameters, const at::Tensor& x) {
    test::FunctionNet net(parameters);
    const auto graph = test::capture_function(net, function, {x});
    amp::FusedOptimizer optimizer(graph->parameters(), amp::AdamRule{});
    return error_of([&] { compile(graph, LossFunction::mse(), optimizer); });
  };
  std::string message = refusal(
      [](const Tensors& p, const Tensors& x) {
        return torch::conv2d(x[0], p[0], {}, 1, 8).mean({2, 3});
      },
      {randn({2, 1, 17, 17})}, randn({2, 1, 9, 9}));
  EXPECT_TRUE(contains(message, "256 taps") && contains(message, "17 by 17")) << message;
  message = refusal(
      [](const Tensors& p, const Tensors& x) {
        return torch::batch_norm(torch::conv1d(x[0], p[0]), {}, {}, {}, {}, true, 0.1, 1e-5, false);
      },
      {randn({2, 3, 1})}, randn({2, 3, 9}));
  EXPECT_TRUE(contains(message, "conv1d")) << message;
}

}  // namespace
}  // namespace ulp::train
