// CaptureOptions::check: what tracing cannot see is found at other inputs, and named.
#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

/// A block with a layer and a batch norm; what the layer's result goes through is the test's.
struct CheckedBlock : nn::Module {
  using Body = std::function<at::Tensor(CheckedBlock&, at::Tensor)>;
  explicit CheckedBlock(Body body) : body(std::move(body)) {
    fc = register_module("fc", nn::Linear(4, 4));
    state = register_buffer("state", torch::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) { return body(*this, x); }
  Body body;
  nn::Linear fc{nullptr};
  at::Tensor state;
};

struct CheckedModel : nn::Module {
  explicit CheckedModel(CheckedBlock::Body body) {
    norm = register_module("norm", nn::BatchNorm1d(4));
    block = register_module("block1", std::make_shared<CheckedBlock>(std::move(body)));
    drop = register_module("drop", nn::Dropout(0.3));
  }
  at::Tensor forward(const at::Tensor& x) { return drop(block->forward(norm(x))); }
  nn::BatchNorm1d norm{nullptr};
  std::shared_ptr<CheckedBlock> block;
  nn::Dropout drop{nullptr};
};

constexpr int64_t kLarge = 9;  // capture sees batches of 2 to 4

at::Tensor rows(int64_t batch) {
  torch::manual_seed(7);
  return torch::randn({batch, 4});
}

/// What capture says with this check; without it the model is captured.
std::string found_by_check(const CheckedBlock::Body& body, const std::vector<Tensors>& check,
                           graph::Modes modes = graph::Modes::both) {
  CheckedModel model(body);
  ulp::capture(model, {rows(2)}, {.modes = modes, .far_sizes = false});
  return error_of(
      [&] { ulp::capture(model, {rows(2)}, {.modes = modes, .far_sizes = false, .check = check}); });
}

TEST(CaptureCheck, PassesWhereTheGraphIsTheModel) {
  CheckedModel model([](CheckedBlock& m, at::Tensor x) {
    m.state.mul_(0.9).add_(x.detach().mean(0), 0.1);
    x.relu_();
    return (m.fc(x).log() + torch::rand_like(x)).clone();  // NaN of negative numbers, and empty memory
  });
  const at::Tensor given = rows(kLarge), before = given.clone();
  const auto module = ulp::capture(model, {rows(2)}, {.check = {{given}, {rows(1).zero_()}, {rows(5)}}});
  EXPECT_TRUE(torch::equal(given, before)) << "capture wrote to an input";
  EXPECT_TRUE(torch::isnan(module->forward(given)).any().item<bool>());
}

TEST(CaptureCheck, NamesTheFirstCallThatTheModelMakesOtherwise) {
  const auto branch = [](CheckedBlock& m, at::Tensor x) {
    return x.size(0) > 8 ? m.fc(x).relu() : torch::gelu(m.fc(x));
  };
  const std::string text = found_by_check(branch, {{rows(3)}, {rows(kLarge)}});
  EXPECT_SAYS(text, "[graph.capture] check[1] in eval mode: the result has");
  EXPECT_SAYS(
      text, "the model calls aten::relu where the graph has aten::gelu (node 'gelu', module path 'block1')");
  const auto longer = [](CheckedBlock& m, at::Tensor x) {
    const at::Tensor y = m.fc(x);
    return x.size(0) > 8 ? y : y * 2;
  };
  EXPECT_SAYS(found_by_check(longer, {{rows(kLarge)}}),
              "the model calls aten::dropout where the graph has aten::mul.Scalar (node 'mul'");
}

TEST(CaptureCheck, NamesTheFirstValueThatDiffers) {
  const auto scale = [](CheckedBlock& m, at::Tensor x) { return m.fc(x) * (x.size(0) > 8 ? 2.0 : 1.0) + 1; };
  const std::string text = found_by_check(scale, {{rows(kLarge)}});
  EXPECT_SAYS(text,
              "first of all, aten::mul.Scalar (node 'mul', module path 'block1') has 36 of 36 elements");
  EXPECT_SAYS(text, "its argument 'other' is 2 in the model and 1 in the graph");
  const auto limit = [](CheckedBlock& m, at::Tensor x) {
    return m.fc(x).clamp(0, x.size(0) > 8 ? 0.25 : 0.125);
  };
  EXPECT_SAYS(found_by_check(limit, {{rows(kLarge)}}), "its argument 'max' is 0.25 in the model and 0.125");
}

TEST(CaptureCheck, FindsBranchesOnNumbersReadBehindTheDispatcher) {
  const auto peek = [](CheckedBlock& m, at::Tensor x) {
    const at::Tensor y = m.fc(x);
    return m.state.const_data_ptr<float>()[0] > 0 && y.size(0) > 4 ? y.tanh() : y.sigmoid();
  };
  EXPECT_SAYS(found_by_check(peek, {{rows(5)}}), "aten::tanh where the graph has aten::sigmoid");
  struct Peeks : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return *x.const_data_ptr<float>() > 0 ? x * 2 : x * 3; }
  } model;
  EXPECT_ERROR(ulp::capture(model, {torch::ones({2, 4})}, {.check = {{-torch::ones({2, 4})}}}),
               "its argument 'other' is 3 in the model and 2 in the graph");
}

TEST(CaptureCheck, TellsSignsOfZeroAndDtypesApart) {
  struct Signs : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * (x.size(0) > 8 ? -1.0 : 1.0); }
  } signs;
  EXPECT_ERROR(
      ulp::capture(signs, {torch::ones({2, 4})}, {.far_sizes = false, .check = {{torch::zeros({9, 4})}}}),
      "the first is -0 in the model and 0 in the graph");
  struct Types : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x.to(x.size(0) > 8 ? at::kDouble : at::kHalf); }
  } types;
  EXPECT_ERROR(
      ulp::capture(types, {torch::ones({2, 4})}, {.far_sizes = false, .check = {{torch::ones({9, 4})}}}),
      "the result is Double[9, 4] in the model and Half[9, 4] in the graph");
}

TEST(CaptureCheck, RunsTrainModeToo) {
  const auto forgets = [](CheckedBlock& m, at::Tensor x) {
    if (m.is_training()) m.state.mul_(x.size(0) > 8 ? 0.5 : 0.75);
    return m.fc(x);
  };
  const std::string text = found_by_check(forgets, {{rows(kLarge)}});
  EXPECT_SAYS(text, "check[0] in train mode: 'block1.state' has 4 of 4 elements that differ");
  EXPECT_SAYS(text, "the first is 0.5 in the model and 0.75 in the graph after forward");
  EXPECT_SAYS(text, "first of all, aten::mul_.Scalar");
  CheckedModel model(forgets);
  EXPECT_NO_THROW(
      ulp::capture(model, {rows(2)}, {.modes = graph::Modes::eval_only, .check = {{rows(kLarge)}}}));
}

TEST(CaptureCheck, WhatTheModelRefusesInTrainModeIsNotCompared) {
  CheckedModel model([](CheckedBlock& m, at::Tensor x) { return m.fc(x); });
  EXPECT_NO_THROW(ulp::capture(model, {rows(2)}, {.check = {{rows(1)}}})) << "one row for a batch norm";
}

TEST(CaptureCheck, SaysWhereNoCallDiffers) {
  const auto chooses = [](CheckedBlock& m, at::Tensor x) {
    const at::Tensor y = m.fc(x), z = y.tanh();
    return x.size(0) > 8 ? y.view({-1, 4}) : z.view({-1, 4});
  };
  EXPECT_SAYS(found_by_check(chooses, {{rows(kLarge)}}),
              "aten::view (node 'view', module path 'block1') has");
  struct Chooses : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(4, 4));
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = fc(x), z = y.tanh();
      return x.size(0) > 8 ? y : z;
    }
  } other;
  EXPECT_ERROR(ulp::capture(other, {rows(2)}, {.far_sizes = false, .check = {{rows(kLarge)}}}),
               "although every call gives the same: forward does something else with what they give");
}

TEST(CaptureCheck, SaysWhereForwardKeepsState) {
  struct Counts : nn::Module {
    explicit Counts(int64_t odd) : odd(odd) {}
    at::Tensor forward(const at::Tensor& x) { return ++calls == odd ? x * 3 : x * 2; }
    int64_t calls = 0, odd;
  } counting(-1);
  ulp::capture(counting, {rows(2)});
  Counts model(counting.calls + 1);  // the first run of the check
  EXPECT_ERROR(ulp::capture(model, {rows(2)}, {.check = {{rows(2)}}}), "a state that capture cannot see");
}

TEST(CaptureCheck, RefusesInputsThatForwardDoesNotTake) {
  CheckedModel model([](CheckedBlock& m, at::Tensor x) { return m.fc(x); });
  EXPECT_ERROR(ulp::capture(model, {rows(2)}, {.check = {{torch::randn({2, 5})}}}),
               "[graph.capture] check[0] in eval mode: expected size 4 in dimension 1 of 'input'");
  EXPECT_ERROR(ulp::capture(model, {rows(2)}, {.check = {{rows(2)}, {}}}), "check[1]");
  EXPECT_ERROR(ulp::capture(model, {rows(2)}, {.check = {{at::Tensor()}}}), "a defined tensor");
}

TEST(CaptureCheck, LeavesTheModelAsItWas) {
  for (const bool fails : {false, true}) {
    CheckedModel model([fails](CheckedBlock& m, at::Tensor x) {
      if (m.is_training()) m.state.add_(x.detach().mean(0));
      return fails && x.size(0) > 8 ? m.fc(x).relu() : m.fc(x).tanh();
    });
    model.train();
    model.norm->eval();
    model.norm->running_mean.fill_(0.5);
    const graph::CaptureOptions options{.far_sizes = false, .check = {{rows(kLarge)}}};
    const at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
    if (fails) {
      EXPECT_ERROR(ulp::capture(model, {torch::ones({2, 4})}, options), "aten::relu");
    } else {
      EXPECT_NO_THROW(ulp::capture(model, {torch::ones({2, 4})}, options));
    }
    EXPECT_TRUE(torch::equal(random, at::detail::getDefaultCPUGenerator().get_state()));
    EXPECT_TRUE(model.is_training() && model.block->is_training() && model.drop->is_training());
    EXPECT_FALSE(model.norm->is_training());
    EXPECT_TRUE(torch::equal(model.block->state, torch::ones({4})));
    EXPECT_TRUE(torch::equal(model.norm->running_mean, torch::full({4}, 0.5)));
    for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
  }
}

}  // namespace
