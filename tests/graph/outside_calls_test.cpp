// What forward does to tensors without a call: set_data(), data(), custom functions that hand their argument on.
#include <torch/csrc/autograd/custom_function.h>

#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A moving average of the inputs in a buffer, or in a parameter, written as `write` does.
struct MovingBook : nn::Module {
  using Write = std::function<void(at::Tensor& kept, const at::Tensor& fresh)>;
  MovingBook(Write write, bool parameter) : write(std::move(write)), parameter(parameter) {
    book = register_buffer("book", torch::ones({4}));
    weight = register_parameter("weight", torch::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x * book * weight;
    at::Tensor& kept = parameter ? weight : book;
    if (is_training()) write(kept, (0.5 * kept + 0.5 * x.detach().mean(0)).detach());
    return y;
  }
  Write write;
  bool parameter;
  at::Tensor book, weight;
};

void give_other_memory(at::Tensor& kept, const at::Tensor& fresh) {
  kept.set_data(fresh);
}

void copy_into_data(at::Tensor& kept, const at::Tensor& fresh) {
  kept.data().copy_(fresh);
}

TEST(OutsideCalls, OtherMemoryIsRefusedByNameAndTakenBack) {
  for (const bool parameter : {false, true}) {
    MovingBook model(give_other_memory, parameter);
    const void* book = model.book.data_ptr();
    const void* weight = model.weight.data_ptr();
    const std::string text = error_of([&] { ulp::capture(model, {torch::randn({3, 4})}); });
    EXPECT_SAYS(text, parameter ? "[graph.capture] forward gives 'weight' other memory with set_data()"
                                : "[graph.capture] forward gives 'book' other memory with set_data()");
    EXPECT_EQ(model.book.data_ptr(), book);
    EXPECT_EQ(model.weight.data_ptr(), weight);
    EXPECT_TRUE(model.book.eq(1).all().item<bool>());
    EXPECT_TRUE(model.weight.eq(1).all().item<bool>());
  }
}

TEST(OutsideCalls, OtherMemoryIsTakenBackWhereForwardThrows) {
  MovingBook model(
      [](at::Tensor& kept, const at::Tensor& fresh) {
        kept.set_data(fresh.to(torch::kDouble));
        throw std::runtime_error("the book is full");
      },
      /*parameter=*/false);
  EXPECT_SAYS(error_of([&] { ulp::capture(model, {torch::randn({3, 4})}); }), "the book is full");
  EXPECT_EQ(model.book.scalar_type(), torch::kFloat);
  EXPECT_TRUE(model.book.eq(1).all().item<bool>());
}

TEST(OutsideCalls, WritesThroughTheDataOfABufferAreWritesOfTheBuffer) {
  MovingBook model(copy_into_data, /*parameter=*/false), twin(copy_into_data, false);
  const auto graph = ulp::capture(model, {torch::randn({3, 4})});
  for (const bool training : {true, false}) {
    graph->train(training);
    twin.train(training);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = torch::randn({5, 4});
      EXPECT_TRUE(graph->forward(x).equal(twin.forward(x)));
      EXPECT_TRUE(model.book.equal(twin.book));
    }
  }
}

TEST(OutsideCalls, ReadsOfTheDataOfABufferSeeItsWrites) {
  struct Reader : nn::Module {
    Reader() { count = register_buffer("count", torch::zeros({2})); }
    at::Tensor forward(const at::Tensor& x) {
      count.add_(1);
      return x * count.data() + count.data().sum();
    }
    at::Tensor count;
  } model, twin;
  const auto graph = ulp::capture(model, {torch::randn({3, 2})});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = torch::randn({4, 2});
    EXPECT_TRUE(graph->forward(x).equal(twin.forward(x)));
  }
}

TEST(OutsideCalls, DataOfAParameterIsRefused) {
  MovingBook model(copy_into_data, /*parameter=*/true);
  EXPECT_SAYS(error_of([&] {
                ulp::capture(model, {torch::randn({3, 4})});
              }),
              "the model took the data of 'weight' out of autograd with data()");
}

/// Hands its argument on and marks it as written: no call shows its gradient.
struct ReversedInPlace : torch::autograd::Function<ReversedInPlace> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x) {
    context->mark_dirty({x});
    return {x};
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return {-gradients[0]}; }
};

TEST(OutsideCalls, AFunctionThatHandsItsArgumentOnIsRefused) {
  struct Model : nn::Module {
    Model() {
      first = register_module("first", nn::Linear(4, 4));
      second = register_module("second", nn::Linear(4, 2));
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = ReversedInPlace::apply(first(x))[0];
      return last ? y : second(y);
    }
    bool last = false;
    nn::Linear first{nullptr}, second{nullptr};
  } model;
  for (const bool last : {false, true}) {
    model.last = last;
    const std::string text = error_of([&] { ulp::capture(model, {torch::randn({3, 4})}); });
    EXPECT_SAYS(text, "custom autograd function");
    EXPECT_SAYS(text, "ReversedInPlace");
    EXPECT_SAYS(text, last ? "the result of forward" : "an argument of aten::addmm");
  }
}

/// x sigmoid(x), which keeps x alone for its gradient. `Wrong`: the gradient of another function.
template <bool Wrong>
struct SavingSwish : torch::autograd::Function<SavingSwish<Wrong>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const at::Tensor gate = torch::sigmoid(x);
    return x * gate;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0], gate = torch::sigmoid(x);
    return {gradients[0] * (Wrong ? gate : gate * (1 + x * (1 - gate)))};
  }
};

/// The sign, with the gradient of a straight line.
struct StraightSign : torch::autograd::Function<StraightSign> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.sign(); }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return gradients; }
};

struct CustomModel : nn::Module {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit CustomModel(Function function) : function(std::move(function)) {
    first = register_module("first", nn::Linear(4, 6));
    second = register_module("second", nn::Linear(6, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(function(first(x)).tanh()); }
  Function function;
  nn::Linear first{nullptr}, second{nullptr};
};

std::vector<at::Tensor> parameter_gradients(CustomModel& model, const at::Tensor& result) {
  model.zero_grad();
  result.square().sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST(CustomFunctions, WithTheGradientsOfTheirOperationsAreCaptured) {
  CustomModel model([](const at::Tensor& x) { return SavingSwish<false>::apply(x); });
  const auto graph = ulp::capture(model, {torch::randn({3, 4})});
  for (const bool training : {false, true}) {
    graph->train(training);
    model.train(training);
    const at::Tensor x = torch::randn({5, 4});
    const at::Tensor want = model.forward(x), got = graph->forward(x);
    EXPECT_TRUE(got.equal(want));
    const auto wanted = parameter_gradients(model, want), made = parameter_gradients(model, got);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::allclose(made[i], wanted[i], 1e-4, 1e-5));
  }
}

/// Layers with batch norms behind biases, whose gradients are 0 but for rounding, and a function after each.
template <bool Wrong>
struct DeepCustom : nn::Module {
  nn::ModuleList layers;
  DeepCustom() {
    for (int i = 0; i < 6; ++i)
      layers->push_back(nn::Sequential(nn::Linear(i == 0 ? 4 : 8, 8), nn::BatchNorm1d(8)));
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) x = SavingSwish<Wrong>::apply(layer->as<nn::Sequential>()->forward(x));
    return x;
  }
};

TEST(CustomFunctions, InDeepNetworksAreComparedBeyondRounding) {
  torch::manual_seed(3);
  DeepCustom<false> model;
  const auto graph = ulp::capture(model, {torch::randn({5, 4})});
  EXPECT_EQ(model.parameters()[0].scalar_type(), at::kFloat);
  model.train();
  graph->train();
  const at::Tensor x = torch::randn({7, 4});
  EXPECT_TRUE(graph->forward(x).equal(model.forward(x)));
  DeepCustom<true> other;
  EXPECT_SAYS(error_of([&] { ulp::capture(other, {torch::randn({5, 4})}); }), "its gradients are not those");
  for (const at::Tensor& parameter : other.parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST(CustomFunctions, WithOtherGradientsAreRefusedAndInferInEvalMode) {
  const std::vector<CustomModel::Function> functions = {
      [](const at::Tensor& x) { return SavingSwish<true>::apply(x); },
      [](const at::Tensor& x) { return StraightSign::apply(x); },
      [](const at::Tensor& x) { return ReversedInPlace::apply(x)[0]; }};
  for (const CustomModel::Function& function : functions) {
    CustomModel model(function);
    const at::Tensor example = torch::randn({3, 4});
    const std::string text = error_of([&] { ulp::capture(model, {example}); });
    EXPECT_SAYS(text, "custom autograd function");
    EXPECT_SAYS(text, "its gradients are not those of its operations; with Modes::eval_only");
    const auto graph = ulp::capture(model, {example}, {.modes = graph::Modes::eval_only});
    EXPECT_SAYS(graph->notes().at(0), "custom autograd functions");
    model.eval();
    const at::Tensor x = torch::randn({5, 4}), got = graph->forward(x);
    EXPECT_TRUE(got.equal(model.forward(x)));
    EXPECT_FALSE(got.requires_grad());
  }
}

TEST(OutsideCalls, MemoryThatIsSwappedForACallAloneIsRefused) {
  MovingBook model(
      [](at::Tensor& kept, const at::Tensor& fresh) {
        const at::Tensor own = kept.variable_data();
        kept.set_data(fresh);
        (fresh + kept).sum();
        kept.set_data(own);
      },
      /*parameter=*/false);
  EXPECT_SAYS(error_of([&] {
                ulp::capture(model, {torch::randn({3, 4})});
              }),
              "forward gives 'book' other memory with set_data()");
}

TEST(CustomFunctions, BehindGatesThatAreZeroAtFirstAreRefused) {
  struct Gated : nn::Module {
    Gated() {
      fc = register_module("fc", nn::Linear(4, 4));
      gate = register_parameter("gate", torch::zeros({1}));
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = fc(x);
      return y + gate * StraightSign::apply(y);
    }
    nn::Linear fc{nullptr};
    at::Tensor gate;
  } model;
  EXPECT_SAYS(error_of([&] { ulp::capture(model, {torch::randn({3, 4})}); }), "its gradients are not those");
  EXPECT_EQ(model.gate.item<float>(), 0);
}

/// A branch whose gradients are so many times as small as the others.
template <bool Wrong>
struct FaintCustom : nn::Module {
  explicit FaintCustom(double share) : share(share) {
    main = register_module("main", nn::Sequential(nn::Linear(4, 6), nn::BatchNorm1d(6), nn::Tanh()));
    faint = register_module("faint", nn::Linear(4, 6));
  }
  at::Tensor forward(const at::Tensor& x) {
    return main->forward(x) + SavingSwish<Wrong>::apply(faint(x)) * share;
  }
  double share;
  nn::Sequential main{nullptr};
  nn::Linear faint{nullptr};
};

TEST(CustomFunctions, WithFaintGradientsAreCompared) {
  torch::manual_seed(5);
  for (const double share : {1e-6, 1e-10, 1e-12}) {
    SCOPED_TRACE(share);
    FaintCustom<false> right(share);
    EXPECT_NO_THROW(ulp::capture(right, {torch::randn({5, 4})}));
    FaintCustom<true> wrong(share);
    EXPECT_SAYS(error_of([&] {
                  ulp::capture(wrong, {torch::randn({5, 4})});
                }),
                "its gradients are not those");
  }
}

TEST(CustomFunctions, OnTheInputsAreSeen) {
  struct First : nn::Module {
    First() { fc = register_module("fc", nn::Linear(4, 2)); }
    at::Tensor forward(const at::Tensor& x) { return fc(StraightSign::apply(x)); }
    nn::Linear fc{nullptr};
  } model;
  EXPECT_SAYS(error_of([&] { ulp::capture(model, {torch::randn({3, 4})}); }), "custom autograd function");
  const auto graph = ulp::capture(model, {torch::randn({3, 4})}, {.modes = graph::Modes::eval_only});
  const at::Tensor x = torch::randn({5, 4}).requires_grad_();
  EXPECT_TRUE(graph->forward(x).equal(model.forward(x)));
  EXPECT_FALSE(graph->forward(x).requires_grad());
}

}  // namespace
