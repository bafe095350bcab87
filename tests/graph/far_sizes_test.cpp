// Numbers that follow the sizes near the example and bend far from it: refused by name. Straight ones are
// captured.
#include <torch/script.h>

#include "same.h"
#include "ulp/graph/capture/capture.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

using graph::CaptureOptions;
using graph::Modes;

struct FarNet : nn::Module {
  using Body = std::function<at::Tensor(FarNet&, at::Tensor)>;
  explicit FarNet(Body body) : body(std::move(body)) {
    fc = register_module("fc", nn::Linear(4, 4));
    other = register_module("other", nn::Linear(4, 4));
    bn = register_module("bn", nn::BatchNorm1d(4));
    seen = register_buffer("seen", torch::zeros({}, torch::kLong));
  }
  at::Tensor forward(const at::Tensor& x) { return body(*this, x); }
  Body body;
  nn::Linear fc{nullptr}, other{nullptr};
  nn::BatchNorm1d bn{nullptr};
  at::Tensor seen;
};

void expect_bent(const FarNet::Body& body, const std::vector<std::string>& mentions, int64_t batch = 2) {
  for (const Modes modes : {Modes::both, Modes::eval_only}) {
    FarNet model(body);
    const std::string text = error_of([&] {
      ulp::capture(model, {torch::randn({batch, 4})}, {.modes = modes});
    });
    EXPECT_EQ(text.substr(0, 15), "[graph.capture]");
    for (const std::string& part : mentions)
      EXPECT_NE(text.find(part), std::string::npos) << "without " << part << " it says " << text;
  }
}

/// Captured, and right at sizes near and far.
void expect_straight(const FarNet::Body& body, int64_t batch = 2,
                     const std::vector<int64_t>& sizes = {1, 2, 5, 8, 40, 700}) {
  FarNet model(body);
  model.eval();
  const auto captured = ulp::capture(model, {torch::randn({batch, 4})});
  for (const int64_t size : sizes) {
    const at::Tensor x = torch::randn({size, 4});
    EXPECT_TRUE(torch::equal(captured->forward(x), model.forward(x))) << "at batch size " << size;
  }
}

FarNet::Body first_rows(const std::function<int64_t(int64_t)>& rows) {
  return [rows](FarNet&, at::Tensor x) { return x.flatten().slice(0, 0, rows(x.size(0))) * 2; };
}

TEST(FarSizes, NumbersThatBendAreRefused) {
  const std::vector<std::string> end = {"argument 'end' of aten::slice", "is not linear in the batch size",
                                        "at batch size 1"};
  expect_bent(first_rows([](int64_t n) { return n % 8; }), end);
  expect_bent(first_rows([](int64_t n) { return n / 8 + 1; }), end);
  expect_bent(first_rows([](int64_t n) { return (n + 7) / 8 * 8; }), end);
  expect_bent(first_rows([](int64_t n) { return n - n / 6; }), end);
  expect_bent(first_rows([](int64_t n) { return std::min<int64_t>(n, 5); }), end);
  expect_bent(first_rows([](int64_t n) { return std::min<int64_t>(n, 100); }), end);
  expect_bent(first_rows([](int64_t n) { return std::max<int64_t>(n, 5); }), end);
  expect_bent(first_rows([](int64_t n) { return std::clamp<int64_t>(n, 2, 64); }), end);
  expect_bent(first_rows([](int64_t n) { return n / 2; }), {"argument 'end' of aten::slice"});
  expect_bent(first_rows([](int64_t n) { return std::lround(static_cast<double>(n) / 2); }),
              {"argument 'end' of aten::slice"});
  expect_bent(first_rows([](int64_t n) { return static_cast<int64_t>(std::sqrt(static_cast<double>(n))); }),
              {"argument 'end' of aten::slice"});
  expect_bent([](FarNet&, at::Tensor x) { return x * static_cast<double>(x.size(0) > 8); },
              {"argument 'other' of aten::mul", "changes between runs", "at batch size 1031"});
  expect_bent(
      [](FarNet&, at::Tensor x) {
        return x.view({-1, x.size(0) % 8 == 0 ? 8 : 4});
      },
      {"argument 'size' of aten::view", "at batch size 512"});
}

TEST(FarSizes, NumbersThatBendBelowTheExampleAreRefused) {
  expect_bent(first_rows([](int64_t n) { return std::max<int64_t>(n, 5); }), {"5 at batch size 1"}, 9);
  expect_bent(first_rows([](int64_t n) { return std::min<int64_t>(n, 5); }), {"1 at batch size 1"}, 9);
  expect_bent(first_rows([](int64_t n) { return n % 64; }), {"1 at batch size 1"}, 64);
  expect_bent([](FarNet&, at::Tensor x) { return x.size(0) == 1 ? x.relu() : x + 1; },
              {"aten::relu at batch size 1"});
}

TEST(FarSizes, OtherCallsAndTensorsAreRefused) {
  expect_bent([](FarNet&, at::Tensor x) { return x.size(0) > 100 ? x.relu() : x + 1; },
              {"call 0 is aten::add", "aten::relu at batch size 1031"});
  expect_bent([](FarNet&, at::Tensor x) { return x.size(0) > 8 ? x.relu().tanh() : x.relu(); },
              {"the first one more is aten::tanh"});
  expect_bent([](FarNet& m, at::Tensor x) { return x.size(0) > 8 ? m.other(x) : m.fc(x); },
              {"is a different tensor in some of the runs"});
  expect_bent(
      [](FarNet&, at::Tensor x) {
        const at::Tensor y = x.relu(), z = x.tanh();
        return (x.size(0) > 8 ? y : z) * y.sum() * z.sum();
      },
      {"is a different tensor in some of the runs"});
  expect_bent(
      [](FarNet&, at::Tensor x) {
        return torch::cat(std::vector<at::Tensor>(static_cast<size_t>(x.size(0) > 8 ? 3 : 2), x));
      },
      {"its length changes between runs"});
  expect_bent([](FarNet&, at::Tensor x) { return x.size(0) > 8 ? x.detach() : x.view_as(x); },
              {"aten::detach"});
  expect_bent(
      [](FarNet&, at::Tensor x) {
        torch::AutoGradMode grad(x.size(0) <= 8);
        return x * 2;
      },
      {"data-dependent control flow"});
}

TEST(FarSizes, NumbersThatBendInTrainModeAreRefused) {
  const auto in_train = [](const FarNet::Body& body, const std::string& mention) {
    FarNet model(body);
    EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 4})}), mention);
    ulp::capture(model, {torch::randn({2, 4})}, {.modes = Modes::eval_only});
  };
  in_train(
      [](FarNet& m, at::Tensor x) {
        return x.slice(0, 0, m.is_training() ? std::min<int64_t>(x.size(0), 5) : x.size(0));
      },
      "argument 'end' of aten::slice");
  in_train(
      [](FarNet& m, at::Tensor x) { return torch::dropout(x, x.size(0) > 8 ? 0.5 : 0.25, m.is_training()); },
      "argument 'p' of aten::dropout");
  in_train([](FarNet& m, at::Tensor x) { return m.is_training() ? x * (x.size(0) % 8) : x; },
           "argument 'other' of aten::mul");
  in_train(
      [](FarNet& m, at::Tensor x) { return x * (m.is_training() ? static_cast<double>(x.size(0)) : 0.0); },
      "argument 'other' of aten::mul");
  in_train([](FarNet& m, at::Tensor x) { return m.is_training() && x.size(0) > 8 ? x.relu() : x + 1; },
           "aten::relu");
  in_train([](FarNet& m, at::Tensor x) { return (m.is_training() && x.size(0) > 8 ? m.other : m.fc)(x); },
           "a tensor of aten::t ");
}

TEST(FarSizes, StraightNumbersAreCaptured) {
  expect_straight(first_rows([](int64_t n) { return n * 2 + 1; }));
  expect_straight(first_rows([](int64_t n) { return n / 1; }));
  expect_straight(first_rows([](int64_t n) { return n * 8 / 8; }));
  expect_straight(first_rows([](int64_t n) { return 4 * n - 3; }));
  expect_straight(first_rows([](int64_t n) { return n; }), 7);
  expect_straight([](FarNet& m, at::Tensor x) { return m.bn(m.fc(x)).view({x.size(0), 2, 2}); });
  expect_straight([](FarNet&, at::Tensor x) { return x.matmul(x.t()); });
  expect_straight(
      [](FarNet&, at::Tensor x) {
        return x.new_ones({x.size(0), x.size(0), x.size(0)}) * 2;
      },
      1, {1, 5, 30});
}

TEST(FarSizes, ListsWithTensorsInPartStayLists) {
  FarNet model([](FarNet&, at::Tensor x) {
    return x.index({torch::indexing::Slice(), torch::tensor({2, 0})});
  });
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  EXPECT_NO_THROW(captured->graph().verify());
  const at::Tensor x = torch::randn({9, 4});
  EXPECT_TRUE(torch::equal(captured->forward(x), model.forward(x)));
}

TEST(FarSizes, ProductsOfFreeSizesAreCaptured) {
  struct Product : nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor table = torch::ones({x.size(1) * x.size(2)});
      return x.flatten(1) * table * (x.size(1) * x.size(2) + x.size(1) * x.size(1)) + x.size(0);
    }
  } model;
  const auto captured =
      ulp::capture(model, {torch::randn({2, 6, 5})}, {.free = {{0, 1, "height", 64}, {0, 2, "width", 48}}});
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{1, 1, 1}, {3, 64, 2}, {7, 11, 48}}) {
    const at::Tensor x = torch::randn(sizes);
    EXPECT_TRUE(torch::equal(captured->forward(x), model.forward(x)));
  }
}

TEST(FarSizes, FreeDimensionsAreHeldAtTheirLimits) {
  const auto captured = [](const FarNet::Body& body, int64_t max) {
    FarNet model(body);
    return ulp::capture(model, {torch::randn({2, 16})}, {.free = {{0, 1, "time", max}}});
  };
  EXPECT_ERROR(captured([](FarNet&, at::Tensor x) { return x * std::max<int64_t>(x.size(1), 8); }, 16),
               "8 at batch size 2, time 1");
  EXPECT_ERROR(captured([](FarNet&, at::Tensor x) { return x * std::min<int64_t>(x.size(1), 20); }, 32),
               "20 at batch size 2, time 32");
  EXPECT_ERROR(captured([](FarNet&, at::Tensor x) { return x * (x.size(1) % 12); }, 16),
               "at batch size 2, time 1");
  captured([](FarNet&, at::Tensor x) { return x * (x.size(1) * 3 + 1); }, 256);
}

/// A size that is no polynomial is unknown from then on: those who need it refuse it.
TEST(FarSizes, SizesThatBendAreUnknown) {
  FarNet model([](FarNet&, at::Tensor x) { return at::max_pool1d(x, {4}, {20}); });
  const auto captured = ulp::capture(model, {torch::randn({2, 16})}, {.free = {{0, 1, "time", 64}}});
  EXPECT_FALSE(captured->graph().output_node()->args[0].value->meta);
  EXPECT_EQ(captured->forward(torch::randn({2, 64})).size(1), 4);
}

/// C++ leaves out slices of the whole length, and einsum goes another way at sizes of one: the graph is right
/// there.
TEST(FarSizes, OtherCallsOfTheSameResultsAreCaptured) {
  using torch::indexing::Slice;
  FarNet slices([](FarNet&, at::Tensor x) { return x.index({Slice(), Slice(0, 10)}) * 2; });
  const auto cut = ulp::capture(slices, {torch::zeros({2, 16})}, {.free = {{0, 1, "time", 32}}});
  for (const int64_t time : {1, 9, 10, 11, 32}) {
    const at::Tensor x = torch::randn({3, time});
    EXPECT_TRUE(torch::equal(cut->forward(x), slices.forward(x))) << "at time " << time;
  }
  FarNet sums([](FarNet&, at::Tensor x) {
    return torch::einsum("ni,nj->nij", {x, x}) + torch::einsum("ni,ni->n", {x, x}).view({-1, 1, 1});
  });
  const auto products = ulp::capture(sums, {torch::randn({2, 4})});
  for (const int64_t batch : {1, 2, 30}) {
    const at::Tensor x = torch::randn({batch, 4});
    EXPECT_TRUE(torch::allclose(products->forward(x), sums.forward(x)));
  }
  FarNet rows([](FarNet&, at::Tensor x) { return x.index({Slice(0, 131)}) * 2; });
  const auto first = ulp::capture(rows, {torch::zeros({2, 4})});
  for (const int64_t batch : {1, 130, 131, 132})
    EXPECT_EQ(first->forward(torch::randn({batch, 4})).size(0), std::min<int64_t>(batch, 131));
}

TEST(FarSizes, SizesThatTheModelCannotRunAreLeftOut) {
  const auto up_to = [](int64_t most) {
    return [most](FarNet&, at::Tensor x) {
      TORCH_CHECK(x.size(0) <= most && x.size(0) > 1, "not at this size");
      return x.slice(0, 0, std::min<int64_t>(x.size(0), 40));
    };
  };
  FarNet few(up_to(39));  // never bends
  const auto captured = ulp::capture(few, {torch::randn({2, 4})});
  EXPECT_EQ(captured->forward(torch::randn({30, 4})).size(0), 30);
  expect_bent(up_to(90), {"40 at batch size 67"});
}

TEST(FarSizes, FixedAndAskedSizes) {
  FarNet model(first_rows([](int64_t n) { return std::min<int64_t>(n, 5); }));
  ulp::capture(model, {torch::randn({2, 4})}, {.batch_dims = {-1}});
  const auto loose = ulp::capture(model, {torch::randn({2, 4})}, {.far_sizes = false});
  EXPECT_EQ(loose->forward(torch::randn({9, 4})).size(0), 9);
}

/// squeeze() takes away the batch of one sample: the sizes are still those of the others.
TEST(FarSizes, SqueezeOfOneSample) {
  FarNet model([](FarNet&, at::Tensor x) { return x.unsqueeze(2).squeeze() * 2; });
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  ASSERT_TRUE(captured->graph().output_node()->args[0].value->meta);
  EXPECT_EQ(captured->graph().output_node()->args[0].value->meta->sizes.size(), 2U);
  EXPECT_EQ(captured->forward(torch::randn({1, 4})).dim(), 1);
}

/// What a run in train mode adds to a buffer follows the batch.
TEST(FarSizes, UpdatesByTheBatchSize) {
  FarNet model([](FarNet& m, at::Tensor x) {
    if (m.is_training()) m.seen.add_(x.size(0));
    return m.fc(x);
  });
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  captured->train();
  captured->forward(torch::randn({9, 4}));
  EXPECT_EQ(model.seen.item<int64_t>(), 9);
  FarNet bent([](FarNet& m, at::Tensor x) {
    if (m.is_training()) m.seen.add_(std::min<int64_t>(x.size(0), 8));
    return m.fc(x);
  });
  EXPECT_ERROR(ulp::capture(bent, {torch::randn({2, 4})}), "argument 'other' of aten::add_");
}

TEST(FarSizes, LeaveNoTrace) {
  FarNet model([](FarNet& m, at::Tensor x) {
    const at::NoGradGuard no_grad;
    m.other->weight.mul_(0.5);
    m.seen.add_(1);
    return torch::dropout(m.bn(m.fc(x)), 0.5, m.is_training()) + torch::rand_like(x);
  });
  model.train();
  model.fc->weight.mutable_grad() = torch::ones({4, 4});
  std::vector<at::Tensor> before, after;
  for (const at::Tensor& tensor : model.parameters()) before.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : model.buffers()) before.push_back(tensor.clone());
  torch::manual_seed(3);
  const at::Tensor wanted = torch::rand({5});
  torch::manual_seed(3);
  ulp::capture(model, {torch::randn({2, 4}, at::detail::createCPUGenerator(1))});
  EXPECT_TRUE(torch::equal(torch::rand({5}), wanted));
  for (const at::Tensor& tensor : model.parameters()) after.push_back(tensor.detach());
  for (const at::Tensor& tensor : model.buffers()) after.push_back(tensor);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
  EXPECT_TRUE(model.is_training());
  EXPECT_TRUE(torch::equal(model.fc->weight.grad(), torch::ones({4, 4})));
  EXPECT_FALSE(model.other->weight.grad().defined());
}

TEST(FarSizes, TorchScript) {
  const auto module_of = [](const std::string& body) {
    torch::jit::Module module("far");
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define("def forward(self, x):\n" + body);
    return module;
  };
  const std::vector<std::pair<std::string, std::string>> bent = {
      {"    return x.flatten()[:x.size(0) % 8] * 2\n", "argument 'end' of aten::slice"},
      {"    return x.flatten()[:x.size(0) // 8 + 1] * 2\n", "argument 'end' of aten::slice"},
      {"    return x.flatten()[:min(x.size(0), 5)] * 2\n", "argument 'end' of aten::slice"},
      {"    return x.flatten()[:max(x.size(0), 5)] * 2\n", "argument 'end' of aten::slice"},
      {"    return x.flatten()[:int(round(x.size(0) / 2))] * 2\n", "argument 'end' of aten::slice"},
      {"    if x.size(0) > 100:\n        return x.relu()\n    return x + 1\n",
       "aten::relu at batch size 1031"},
      {"    return x * (2.0 if self.training and x.size(0) > 8 else 1.0)\n",
       "argument 'other' of aten::mul"}};
  for (const auto& [body, mention] : bent) {
    torch::jit::Module module = module_of(body);
    EXPECT_ERROR(ulp::capture(module, {torch::randn({2, 4})}), mention);
  }
  torch::jit::Module straight =
      module_of("    return x.flatten()[:x.size(0) * 2 + 1 + x.size(0) // 1] * 2\n");
  const auto captured = ulp::capture(straight, {torch::randn({2, 4})});
  const at::Tensor x = torch::randn({50, 4});
  EXPECT_TRUE(torch::equal(captured->forward(x), straight.forward({x}).toTensor()));
}

}  // namespace
