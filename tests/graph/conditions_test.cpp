// Numbers that forward reads of buffers and does what they say, and where in the model a refusal is.
#include "ulp/graph/conditions.h"

#include "error_of.h"
#include "same.h"
#include "ulp/graph/graph_module.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

/// Sets itself up by the first batch, as ActNorm does.
struct SetUpOnceImpl : nn::Module {
  at::Tensor ready, scale;
  bool by_data = false;
  explicit SetUpOnceImpl(bool is_ready, bool through_data = false) : by_data(through_data) {
    ready = register_buffer("ready", torch::tensor(is_ready));
    scale = register_parameter("scale", torch::ones({8}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (!ready.item<bool>()) {
      const torch::NoGradGuard no_grad;
      by_data ? scale.set_data(1 / x.std(0)) : void(scale.copy_(1 / x.std(0)));
      ready.fill_(true);
    }
    return x * scale;
  }
};
TORCH_MODULE(SetUpOnce);

/// A counter that forward reads: a network that switches a branch on after some steps.
struct WarmUpImpl : nn::Module {
  at::Tensor steps = register_buffer("steps", torch::zeros({}, torch::kLong));
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) steps.add_(1);
    return steps.item<int64_t>() >= 3 ? x.tanh() : x;
  }
};
TORCH_MODULE(WarmUp);

/// A loop over the samples, in a module without parameters.
struct LoopImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(x[i].cumsum(0));
    return torch::stack(rows);
  }
};
TORCH_MODULE(Loop);

struct DataBranchImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.sum().item<float>() > 0 ? x * 2 : x + 1; }
};
TORCH_MODULE(DataBranch);

/// A network with the layer as "body.1".
template <typename Layer>
struct Around : nn::Module {
  nn::Sequential body;
  nn::Linear head{nullptr};
  explicit Around(Layer layer) {
    body = register_module("body", nn::Sequential(nn::Linear(8, 8), layer));
    head = register_module("head", nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return head(body->forward(x)); }
};

template <typename Layer>
std::string refusal_around(Layer layer) {
  Around<Layer> model(layer);
  std::vector<at::Tensor> before;
  for (const auto& list : {model.parameters(), model.buffers()}) {
    for (const at::Tensor& tensor : list) before.push_back(tensor.detach().clone());
  }
  std::string text = error_of([&] { ulp::capture(model, {torch::randn({4, 8})}); });
  size_t i = 0;
  for (const auto& list : {model.parameters(), model.buffers()}) {
    for (const at::Tensor& tensor : list)
      EXPECT_TRUE(torch::equal(tensor, before[i++])) << "capture changed the model";
  }
  return text;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Conditions, AFlagThatIsSetIsFollowedAsLongAsItIsSet) {
  Around<SetUpOnce> model(SetUpOnce(true));
  const auto graph = ulp::capture(model, {torch::randn({4, 8})});
  const at::Tensor x = torch::randn({5, 8});
  for (const bool training : {false, true}) {
    model.train(training);
    graph->train(training);
    EXPECT_TRUE(torch::equal(graph->forward(x), model.forward(x)));
  }
  ASSERT_EQ(graph->notes().size(), 1U);
  expect_parts(graph->notes()[0], {"'body.1.ready'"});
  const graph::GraphModule copy(graph->graph().clone());
  model.body->named_buffers()["1.ready"].fill_(false);
  EXPECT_ERROR(graph->forward(x), "expected 'body.1.ready' to hold the numbers that it held at capture");
  EXPECT_ERROR(const_cast<graph::GraphModule&>(copy).forward(x), "'body.1.ready'");
  model.body->named_buffers()["1.ready"].fill_(true);
  graph->to(torch::kBFloat16);
  EXPECT_NO_THROW(graph->forward(x.to(torch::kBFloat16)));
}

TEST(Conditions, NumbersThatAreComputedFromBuffersAreFollowedToo) {
  struct Window : nn::Module {
    at::Tensor sizes = register_buffer("sizes", torch::tensor({2, 3}));
    at::Tensor forward(const at::Tensor& x) { return x.narrow(1, 0, (sizes.sum() - 1).item<int64_t>()) * 2; }
  } model;
  const auto graph = ulp::capture(model, {torch::randn({4, 8})});
  const at::Tensor x = torch::randn({2, 8});
  EXPECT_TRUE(torch::equal(graph->forward(x), model.forward(x)));
  model.sizes.fill_(1);
  EXPECT_ERROR(graph->forward(x), "expected 'sizes'");
}

/// A schedule that train mode alone looks at, and a flag of eval mode.
TEST(Conditions, CountInTheModeThatReadsThem) {
  struct Scheduled : nn::Module {
    at::Tensor phase = register_buffer("phase", torch::tensor(1));
    at::Tensor calibrated = register_buffer("calibrated", torch::tensor(true));
    at::Tensor forward(const at::Tensor& x) {
      if (is_training()) return phase.item<int64_t>() == 1 ? x * 2 : x * 3;
      return calibrated.item<bool>() ? x + 1 : x;
    }
  } model;
  const auto graph = ulp::capture(model, {torch::randn({2, 4})});
  const at::Tensor x = torch::randn({3, 4});
  const auto runs = [&](bool training) {
    graph->train(training);
    model.train(training);
    try {
      return torch::equal(graph->forward(x), model.forward(x)) ? "equal" : "other";
    } catch (const Error& error) {
      return training
                 ? (test::contains(error.what(), "'phase'") && test::contains(error.what(), "in train mode")
                        ? "phase"
                        : "refused")
                 : (test::contains(error.what(), "'calibrated'") ? "calibrated" : "refused");
    }
  };
  EXPECT_STREQ(runs(false), "equal");
  EXPECT_STREQ(runs(true), "equal");
  model.phase.fill_(2);
  EXPECT_STREQ(runs(false), "equal");
  EXPECT_STREQ(runs(true), "phase");
  EXPECT_NO_THROW(graph::check_conditions(graph->graph(), "test.case"));
  model.phase.fill_(1);
  model.calibrated.fill_(false);
  EXPECT_STREQ(runs(false), "calibrated");
  EXPECT_STREQ(runs(true), "equal");
  EXPECT_ERROR(graph::check_conditions(graph->graph(), "test.case"), "'calibrated'");
}

TEST(Conditions, OfBothModesCountInBoth) {
  struct Flagged : nn::Module {
    at::Tensor ready = register_buffer("ready", torch::tensor(true));
    at::Tensor forward(const at::Tensor& x) { return ready.item<bool>() ? x * 2 : x; }
  } model;
  const auto graph = ulp::capture(model, {torch::randn({2, 4})});
  model.ready.fill_(false);
  for (const bool training : {false, true}) {
    graph->train(training);
    EXPECT_ERROR(graph->forward(torch::randn({3, 4})), "expected 'ready'");
  }
}

/// Each sum has two ways back to the input.
TEST(Conditions, NumbersOfDeepNetworksAreRefusedAtOnce) {
  struct Deep : nn::Module {
    at::Tensor forward(at::Tensor x) {
      for (int i = 0; i < 60; ++i) x = x + x.tanh();
      return x.isnan().any().item<bool>() ? x.zero_() : x;
    }
  } model;
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 4})}), "reads a number from a tensor");
}

TEST(Conditions, BuffersOfNaNAreThemselves) {
  struct Limited : nn::Module {
    at::Tensor limit = register_buffer("limit", torch::full({}, NAN));
    at::Tensor forward(const at::Tensor& x) {
      return limit.isnan().item<bool>() ? x : torch::minimum(x, limit);
    }
  } model;
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  const at::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal(captured->forward(x), x));
  model.limit.fill_(0.5);
  EXPECT_ERROR(captured->forward(x), "expected 'limit' to hold the numbers that it held at capture");
}

TEST(Conditions, DataOfABufferIsTheBuffer) {
  struct Flagged : nn::Module {
    at::Tensor ready = register_buffer("ready", torch::tensor(true));
    at::Tensor forward(const at::Tensor& x) { return ready.data().item<bool>() ? x * 2 : x; }
  } model;
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  model.ready.fill_(false);
  EXPECT_ERROR(captured->forward(torch::randn({3, 4})), "expected 'ready' to hold the numbers");
}

/// Passes that take dead values away leave what has to be asked.
TEST(Conditions, StayWhereNothingElseReadsTheBuffer) {
  SetUpOnce model(true);
  const auto captured = ulp::capture(*model, {torch::randn({2, 8})});
  const std::shared_ptr<graph::Graph> copy = captured->graph().clone();
  copy->remove_dead(/*attributes=*/true);
  model->ready.fill_(false);
  EXPECT_ERROR(graph::check_conditions(*copy, "test.case"), "[test.case] expected 'ready' to hold");
}

TEST(Conditions, AFlagThatForwardSetsIsRefusedWithWhatToDo) {
  expect_parts(refusal_around(SetUpOnce(false)),
               {"aten::item", "in 'body.1'", "'body.1.ready'", "run one batch before capture"});
  expect_parts(refusal_around(SetUpOnce(false, true)),
               {"'body.1.scale'", "set_data()", "run one batch before capture"});
  // After one batch the flag is set.
  Around<SetUpOnce> model(SetUpOnce(false));
  model.forward(torch::randn({4, 8}));
  const auto graph = ulp::capture(model, {torch::randn({4, 8})});
  const at::Tensor x = torch::randn({5, 8});
  EXPECT_TRUE(torch::equal(graph->forward(x), model.forward(x)));
}

TEST(Conditions, ACounterThatForwardCountsIsRefusedInTrainModeAlone) {
  expect_parts(refusal_around(WarmUp()), {"in 'body.1'", "'body.1.steps'", "Modes::eval_only"});
  Around<WarmUp> model{WarmUp()};
  model.eval();
  const auto graph = ulp::capture(model, {torch::randn({4, 8})}, {.modes = graph::Modes::eval_only});
  const at::Tensor x = torch::randn({2, 8});
  EXPECT_TRUE(torch::equal(graph->forward(x), model.forward(x)));
  for (at::Tensor& steps : model.buffers()) steps.fill_(5);
  EXPECT_ERROR(graph->forward(x), "'body.1.steps'");
}

TEST(Refusals, SayInWhichModuleTheyAreAndWhatToDo) {
  expect_parts(
      refusal_around(Loop()),
      {"data-dependent control flow after 'body.0' and before 'head', perhaps in 'body.1' (", "LoopImpl)",
       "aten::select.int", "aten::stack", "loop over the samples", "operations on whole tensors"});
  expect_parts(refusal_around(DataBranch()), {"aten::item", "after 'body.0'", "'body.1' (", "torch::where"});
}

}  // namespace
