// Writes through views of a model's own intermediate tensors.
#include "error_of.h"
#include "same.h"

namespace {

using namespace ulp;
using at::indexing::Ellipsis;
using at::indexing::Slice;
using torch::Tensor;
namespace nn = torch::nn;

struct Net : nn::Module {
  std::function<Tensor(Net&, const Tensor&)> body;
  nn::Linear layer{6, 6};
  Tensor bias;
  explicit Net(std::function<Tensor(Net&, const Tensor&)> forward) : body(std::move(forward)) {
    register_module("layer", layer);
    bias = register_parameter("bias", torch::randn({6}));
  }
  Tensor forward(const Tensor& x) { return body(*this, x); }
};

std::shared_ptr<graph::GraphModule> expect_captured(std::function<Tensor(Net&, const Tensor&)> body,
                                                    const std::vector<int64_t>& sizes = {3, 4, 6}) {
  torch::manual_seed(3);
  Net net(std::move(body));
  const auto module = test::check(net, {torch::randn(sizes)});
  ulp::capture(net, {torch::randn(sizes)}, {.check = {{torch::randn(sizes)}}});
  return module;
}

TEST(WrittenViews, ASelectedColumn) {
  const auto module = expect_captured([](Net& net, const Tensor& x) {
    Tensor y = net.layer(x);
    y.select(1, 0).add_(1);
    return y.tanh();
  });
  EXPECT_EQ(test::count(module->graph(), "aten::select_scatter"), 1);
}

TEST(WrittenViews, BoxesOfADetector) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor y = net.layer(x) * 2;
    y.index_put_({Ellipsis, Slice(0, 2)}, y.index({Ellipsis, Slice(0, 2)}) * 2 - 0.5);
    y.index_put_({Ellipsis, Slice(2, 4)}, (y.index({Ellipsis, Slice(2, 4)}) * 2).pow(2));
    return y;
  });
}

TEST(WrittenViews, PartsOfEmptyMemory) {
  expect_captured([](Net& net, const Tensor& x) {
    const Tensor y = net.layer(x);
    Tensor all = torch::empty({x.size(0), 8, 6}, x.options());
    all.slice(1, 0, 4).copy_(y);
    all.slice(1, 4).copy_(y.flip(1));
    return all * 2;
  });
}

TEST(WrittenViews, ALoopOverTime) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor states = torch::zeros({x.size(0), 5, 6}, x.options());
    for (int64_t t = 0; t < 4; ++t)
      states.index_put_({Slice(), t + 1},
                        torch::tanh(net.layer(x.index({Slice(), t})) + states.select(1, t)));
    return states;
  });
}

TEST(WrittenViews, ViewsOfViews) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor y = net.layer(x);
    y.transpose(1, 2).slice(1, 1, 4).select(2, 2).mul_(3);
    y.view({-1, 2, 2, 6}).select(1, 1).select(2, 0).sub_(1);
    y.permute({2, 0, 1}).narrow(0, 1, 2).unsqueeze(0).clamp_(-0.5, 0.5);
    y.diagonal(0, 1, 2).zero_();
    return torch::cat({y, y.flatten(1).slice(1, 0, 6).unsqueeze(1)}, 1);
  });
}

TEST(WrittenViews, APartOfACopyOfAParameter) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor bias = net.bias.clone();
    bias.slice(0, 2, 4).zero_();
    return nn::functional::linear(x, net.layer->weight, bias);
  });
}

TEST(WrittenViews, WholeAndPartInTurn) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor y = net.layer(x);
    y.slice(2, 0, 3).mul_(2);
    y.add_(1);
    y.slice(2, 2, 5).sub_(3);
    const Tensor before = y.sum(1, true);
    y.select(1, 3).copy_(before.squeeze(1));
    return y + before;
  });
}

TEST(WrittenViews, NegativeBegins) {
  expect_captured([](Net& net, const Tensor& x) {
    Tensor y = net.layer(x);
    y.narrow(1, -2, 2).mul_(3);
    y.slice(2, -3, -1).add_(1);
    y.select(1, -1).sub_(2);
    return y.tanh();
  });
}

void expect_refused(std::function<Tensor(Net&, const Tensor&)> body, const std::string& says) {
  Net net(std::move(body));
  const std::string text = test::error_of([&] { ulp::capture(net, {torch::randn({3, 4, 6})}); });
  EXPECT_NE(text.find(says), std::string::npos) << text;
}

TEST(WrittenViews, WhatCannotBeUndoneIsRefused) {
  const std::string view = "wrote through a view";
  // A view that another view's write has changed, written to in another part.
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x);
        const Tensor a = y.slice(1, 0, 4), c = a.slice(1, 2, 4);
        y.slice(1, 0, 2).mul_(3);
        c.add_(1);
        return y * 2;
      },
      view);
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x);
        const Tensor second = y.view({-1, 4, 2, 3}).select(2, 1);
        y.slice(2, 0, 3).mul_(2);
        second.add_(1);
        return y * 2;
      },
      view);
  // A view that is read after the whole was written.
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x);
        const Tensor part = y.slice(1, 0, 2);
        y.add_(1);
        return part * 2;
      },
      view);
  // Other numbers in the same bytes, and views without an inverse.
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x).detach().clone();
        y.view(torch::kInt).bitwise_and_(0x7fffffff);
        return y * 2;
      },
      view);
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x).detach().clone();
        y.chunk(2, 1)[0].mul_(2);
        return y * 2;
      },
      view);
  // Sizes that change after the view was made.
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x) * 1;
        y.view({-1, 4, 2, 3}).select(2, 0).mul_(2);
        y.unsqueeze_(1);
        return y;
      },
      view);
}

TEST(WrittenViews, MasksWhoseRowsFollowTheBatch) {
  const auto ones = [](const Tensor& x) { return torch::ones({x.size(0), x.size(1), x.size(2)}); };
  const std::vector<std::function<void(Tensor&)>> parts = {
      [](Tensor& mask) {
        mask.index_put_({Slice(), Slice(0, 3)}, 0.0);
      },
      [](Tensor& mask) { mask.slice(1, 0, 3).fill_(0.5); },
      [](Tensor& mask) { mask.slice(1, 0, 3).zero_(); },
      [](Tensor& mask) {
        mask.index_put_({Slice(), Slice(0, 3)}, torch::zeros({1}));
      },
      [](Tensor& mask) { mask.select(1, 1).mul_(3); },
      [](Tensor& mask) { mask.slice(1, 0, 3) = 0.0 * mask.slice(1, 0, 3) + 0; }};
  for (const auto& part : parts) {
    for (const bool like : {false, true}) {
      const auto module = expect_captured([&](Net& net, const Tensor& x) {
        Tensor mask = like ? torch::ones_like(x) : ones(x);
        part(mask);
        return net.layer(x) * mask;
      });
      for (const auto& [name, attribute] : module->graph().attributes())
        EXPECT_LT(attribute.tensor.dim(), 3) << name;
    }
  }
  expect_captured([](Net& net, const Tensor& x) {
    Tensor mask = torch::empty({x.size(0), 4, 6});
    mask.slice(1, 0, 2).fill_(1);
    mask.slice(1, 2).fill_(0.25);
    return net.layer(x) * mask;
  });
}

TEST(WrittenViews, MasksOfOneSizeStayConstants) {
  const auto module = expect_captured([](Net& net, const Tensor& x) {
    Tensor mask = torch::ones({4, 6});
    mask.slice(0, 0, 3).fill_(0);
    return net.layer(x) * mask;
  });
  EXPECT_EQ(test::count(module->graph(), "aten::slice_scatter"), 0);
}

TEST(WrittenViews, NumbersThatNoCallWritesAreConstantsOrRefused) {
  // One mask follows the batch; the numbers of torch::tensor() come by no call and are the same in each run.
  expect_captured([](Net& net, const Tensor& x) {
    Tensor mask = torch::ones({x.size(0), 4, 6});
    mask.slice(1, 0, 2).fill_(0);
    return net.layer(x) * mask + torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  });
  Net net([](Net& net, const Tensor& x) {
    const std::vector<float> numbers(static_cast<size_t>(x.size(0)), 3);
    return net.layer(x) + torch::tensor(numbers).view({-1, 1, 1});
  });
  EXPECT_SAYS(test::error_of([&] {
                ulp::capture(net, {torch::randn({3, 4, 6})});
              }),
              "it changes between runs");
  Net partly([](Net& net, const Tensor& x) {
    Tensor mask = torch::ones({x.size(0), 4, 6});
    mask.data_ptr<float>()[0] = 7;
    mask.slice(1, 0, 2).mul_(2);
    return net.layer(x) * mask;
  });
  EXPECT_SAYS(test::error_of([&] {
                ulp::capture(partly, {torch::randn({3, 4, 6})});
              }),
              "is written by C++ itself");
}

TEST(WrittenViews, WritesThatAutogradDoesNotSeeAreRefused) {
  // LibTorch keeps the gradient of what was there before; values in a graph have that of what made them.
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x);
        const torch::NoGradGuard guard;
        y.select(1, 0).zero_();
        return y;
      },
      "wrote through a view");
  expect_refused(
      [](Net& net, const Tensor& x) {
        Tensor y = net.layer(x);
        const torch::NoGradGuard guard;
        y.mul_(2);
        return y;
      },
      "without autograd");
}

}  // namespace
