// What cannot be captured is refused by an error that names the op; what looks alike is captured.
#include <torch/csrc/autograd/custom_function.h>

#include "same.h"
#include "ulp/graph/capture/trace.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

/// A module whose forward is the given function, with a layer, a buffer and a tensor that is not registered.
struct Holder : nn::Module {
  using Body = std::function<at::Tensor(Holder&, at::Tensor)>;
  explicit Holder(Body body) : body(std::move(body)) {
    fc = register_module("fc", nn::Linear(4, 4));
    state = register_buffer("state", torch::zeros({4}));
    loose = torch::zeros({4});
  }
  at::Tensor forward(const at::Tensor& x) { return body(*this, x); }
  Body body;
  nn::Linear fc{nullptr};
  at::Tensor state, loose;
};

std::string refusal(Holder::Body body) {
  Holder model(std::move(body));
  std::string text = error_of([&] { ulp::capture(model, {torch::randn({2, 4})}); });
  EXPECT_FALSE(graph::recording()) << "a callback was left behind";
  EXPECT_EQ(text.substr(0, 15), "[graph.capture]");
  return text;
}

void expect_refusal(const Holder::Body& body, const std::vector<std::string>& mentions) {
  std::string text = refusal(body);
  for (const std::string& part : mentions)
    EXPECT_NE(text.find(part), std::string::npos) << "it says " << text;
}

void expect_captured(const Holder::Body& body) {
  Holder model(body);
  check(model, {torch::randn({3, 4})});
}

TEST(Refusals, BranchOnData) {
  expect_refusal([](Holder&, at::Tensor x) { return x.sum().item<float>() > 0 ? x * 2 : x + 1; },
                 {"aten::item", "data-dependent"});
}

TEST(Refusals, SizesThatFollowTheData) {
  const std::vector<std::pair<std::string, Holder::Body>> bodies = {
      {"aten::index", [](Holder&, at::Tensor x) { return x.index({x > 0}).sum(); }},
      {"aten::nonzero", [](Holder&, at::Tensor x) { return torch::nonzero(x).to(torch::kFloat); }},
      {"aten::argwhere", [](Holder&, at::Tensor x) { return torch::argwhere(x).to(torch::kFloat); }},
      {"aten::where", [](Holder&, at::Tensor x) { return torch::where(x > 0)[0].to(torch::kFloat); }},
      {"aten::masked_select", [](Holder&, at::Tensor x) { return x.masked_select(x > 0); }},
      {"aten::_unique2", [](Holder&, at::Tensor x) { return std::get<0>(torch::_unique2(x)); }},
      {"aten::unique_dim", [](Holder&, at::Tensor x) { return std::get<0>(torch::unique_dim(x, 0)); }},
      {"aten::unique_consecutive",
       [](Holder&, at::Tensor x) { return std::get<0>(torch::unique_consecutive(x)); }},
      {"aten::bincount",
       [](Holder&, at::Tensor x) { return torch::bincount(x.argmax(1)).to(torch::kFloat); }},
      {"aten::one_hot", [](Holder&, at::Tensor x) { return torch::one_hot(x.argmax(1)).to(torch::kFloat); }},
      {"aten::repeat_interleave",
       [](Holder&, at::Tensor x) { return x.repeat_interleave(x.argmax(1) + 1, 0); }},
      {"aten::masked_select",
       [](Holder& m, at::Tensor x) { return x + m.fc->weight.masked_select(m.fc->weight > 0).sum(); }},
      {"aten::masked_select", [](Holder& m, at::Tensor x) {
         m.state.add_(1);
         return x.masked_select(m.state > 3);
       }}};
  for (const auto& [op, body] : bodies) expect_refusal(body, {"got those of " + op, "follow the data"});
}

/// The mean over what a mask leaves, whose number of elements would be that of the examples.
TEST(Refusals, SizesOfTheDataInArguments) {
  expect_refusal(
      [](Holder&, at::Tensor x) {
        const at::Tensor y = x.index({x > 0});
        return y.sum() / y.size(0);
      },
      {"aten::index", "follow the data", "the result of aten::gt", "where()"});
}

TEST(Refusals, SizesThatFollowConstantsAreCaptured) {
  expect_captured([](Holder& m, at::Tensor x) { return x.index({torch::indexing::Slice(), m.state == 0}); });
  expect_captured([](Holder&, at::Tensor x) {
    const at::Tensor places = torch::nonzero(torch::arange(4) > 1);
    return x.index_select(1, places.flatten()) / places.size(0);
  });
  expect_captured([](Holder&, at::Tensor x) { return x.index({x.argmax(1).remainder(2)}); });
  expect_captured([](Holder&, at::Tensor x) { return torch::index_put(x, {x > 0}, torch::zeros({})); });
  expect_captured([](Holder&, at::Tensor x) { return torch::histc(x, 4, -1, 1) + x; });
  expect_captured([](Holder&, at::Tensor x) { return torch::one_hot(x.argmax(1), 4).to(torch::kFloat); });
}

TEST(Refusals, BranchOnBatchSize) {
  expect_refusal([](Holder&, at::Tensor x) { return x.size(0) > 2 ? x * 2 : x + 1; },
                 {"data-dependent", "aten::add", "aten::mul", "call 0"});
  expect_refusal([](Holder&, at::Tensor x) { return x.size(0) > 2 ? x.relu().tanh() : x.relu(); },
                 {"data-dependent", "aten::tanh"});
}

TEST(Refusals, IntegerThatIsNotLinearInTheBatch) {
  expect_refusal(
      [](Holder&, at::Tensor x) {
        return x.sum(0) + torch::zeros({x.size(0) * x.size(0), 4}).sum(0);
      },
      {"aten::zeros", "'size'", "not linear", "4 at batch size 2", "9 at batch size 3"});
}

TEST(Refusals, NumberThatFollowsTheBatch) {
  expect_refusal([](Holder&, at::Tensor x) { return x * (1.0 / static_cast<double>(x.size(0))); },
                 {"aten::mul", "changes between runs"});
}

TEST(Refusals, WriteThroughAView) {
  expect_refusal(
      [](Holder&, at::Tensor x) {
        at::Tensor y = x * 2;
        y.chunk(2, 1)[0].add_(1);
        return y;
      },
      {"in-place aten::add_", "wrote through a view", "aten::mul", "the result of forward"});
  expect_refusal(
      [](Holder& m, at::Tensor x) {
        m.state.narrow(0, 0, 2).add_(1);
        return x + m.state;
      },
      {"in-place aten::add_", "wrote through a view of 'state'"});
  expect_refusal(
      [](Holder&, at::Tensor x) {
        x.select(1, 0).zero_();
        return x;
      },
      {"in-place aten::zero_ wrote through a view of input 0"});
}

TEST(Refusals, WriteToAnUnregisteredTensor) {
  expect_refusal(
      [](Holder& m, at::Tensor x) {
        m.loose.add_(1);
        return x + m.loose;
      },
      {"aten::add_", "registered buffer"});
}

TEST(Refusals, UnregisteredStateThatChanges) {
  int calls = 0;
  std::vector<std::vector<float>> kept;  // from_blob does not own its memory
  kept.reserve(8);
  expect_refusal([&](Holder&, at::Tensor x) { return x + torch::full({4}, ++calls); }, {"aten::full"});
  expect_refusal(
      [&](Holder&, at::Tensor x) {
        kept.emplace_back(4, static_cast<float>(++calls));
        return x + torch::from_blob(kept.back().data(), {4}).clone();
      },
      {"aten::clone"});
}

TEST(Refusals, BranchOnEqualTensors) {
  expect_refusal([](Holder& m, at::Tensor x) { return torch::equal(x, m.fc(x)) ? x * 2 : x + 1; },
                 {"aten::equal", "data-dependent"});
}

TEST(Refusals, TrainModeThatThrows) {
  expect_refusal(
      [](Holder& m, at::Tensor x) -> at::Tensor {
        if (m.is_training()) throw std::runtime_error("no labels");
        return x.relu();
      },
      {"train mode", "no labels"});
}

TEST(Refusals, CustomAutogradFunction) {
  struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list grads) {
      return {grads[0] * 3};
    }
  };
  expect_refusal([](Holder& m, at::Tensor x) { return Twice::apply(m.fc(x)); },
                 {"aten::mul", "custom autograd function"});
}

TEST(Refusals, OutVariants) {
  expect_refusal(
      [](Holder&, at::Tensor x) {
        at::Tensor y = torch::empty_like(x);
        at::add_out(y, x, x);
        return y;
      },
      {"aten::add.out"});
}

TEST(Refusals, ForwardThatThrowsLeavesNothingBehind) {
  Holder model([](Holder&, at::Tensor x) -> at::Tensor {
    x = x.relu();
    throw std::runtime_error("broken");
  });
  at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 4})}), "aten::relu");
  EXPECT_FALSE(graph::recording());
  EXPECT_TRUE(model.is_training());
  Holder fine([](Holder&, at::Tensor x) { return x.relu(); });
  EXPECT_EQ(ulp::capture(fine, {torch::randn({2, 4})})->graph().nodes().size(), 3);
}

TEST(Refusals, InputsThatDisagree) {
  nn::Bilinear model(3, 4, 5);
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 3}), torch::randn({3, 4})}), "batch size 2");
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 3}), torch::randn({2, 4})}, {.batch_dims = {0}}),
               "each of 2 inputs");
}

TEST(Captured, WritesThatNobodyMisses) {
  expect_captured([](Holder& m, at::Tensor x) { return m.fc(x).view({-1, 2, 2}).mul_(2).relu_(); });
  expect_captured([](Holder& m, at::Tensor x) {  // disjoint parts of one tensor
    at::Tensor y = m.fc(x), left = y.narrow(1, 0, 2), right = y.narrow(1, 2, 2);
    left.sigmoid_();
    return left + right.tanh();
  });
  expect_captured([](Holder& m, at::Tensor x) {
    x.relu_();
    at::Tensor y = m.fc(x);
    y.add_(1).clamp_(0, 6).masked_fill_(x > 0, 0.5);
    return torch::cat({y.transpose(0, 1).contiguous().t(), x}, 1);
  });
}

TEST(Captured, BuffersWrittenInPlace) {
  expect_captured([](Holder& m, at::Tensor x) {
    m.state.mul_(0.9).add_(x.detach().mean(0), 0.1);
    return x - m.state;
  });
  expect_captured([](Holder& m, at::Tensor x) {
    if (m.is_training()) m.state.copy_(x.detach().mean(0));
    return x - m.state;
  });
}

TEST(Captured, ConstantsMadeInForward) {
  expect_captured([](Holder&, at::Tensor x) {
    return x * torch::tensor({1.0f, 2.0f, 3.0f, 4.0f}) + torch::ones({4});
  });
  expect_captured([](Holder& m, at::Tensor x) {
    return x + m.loose + torch::arange(x.size(0)).to(x.dtype()).unsqueeze(1) + at::scalar_tensor(2.5);
  });
}

TEST(Captured, BuffersWithTheNamesOfConstantsKeepTheirNumbers) {
  struct Named : torch::nn::Module {
    Named() { kept = register_buffer("_constant0", torch::tensor({2.0F, 3.0F})); }
    at::Tensor forward(const at::Tensor& x) { return x * kept + torch::tensor({10.0F, 20.0F}); }
    at::Tensor kept;
  } model;
  const auto graph = ulp::capture(model, {torch::randn({3, 2})});
  const at::Tensor x = torch::randn({4, 2});
  EXPECT_TRUE(graph->forward(x).equal(model.forward(x)));
}

TEST(Captured, MasksWrittenPartByPart) {
  expect_captured([](Holder&, at::Tensor x) {
    at::Tensor mask = x.new_zeros({4}), same = torch::zeros_like(mask);
    mask.slice(0, 0, 2).fill_(1);
    mask.slice(0, 3, 4).copy_(torch::full({1}, 3.0));
    same.slice(0, 1, 2).fill_(2);
    return x * mask + same;
  });
  expect_captured([](Holder&, at::Tensor x) {
    at::Tensor mask = x.new_zeros({x.size(0), 4});
    mask.slice(1, 0, 2).fill_(1);
    return x * mask;
  });
}

TEST(Captured, RandomNumbersAndDropoutKeepTheirOrder) {
  expect_captured([](Holder& m, at::Tensor x) {
    at::Tensor noise = torch::zeros_like(x).normal_();
    at::Tensor y = torch::dropout(m.fc(x), 0.5, m.is_training());
    return y + x * noise + torch::rand_like(x) + y.new_empty(y.sizes()).uniform_(0, 1);
  });
}

TEST(Captured, OperationsInOneModeOnly) {
  expect_captured([](Holder& m, at::Tensor x) { return m.is_training() ? x + torch::randn_like(x) : x; });
  expect_captured([](Holder& m, at::Tensor x) { return m.is_training() ? x : x.tanh(); });
  expect_captured([](Holder& m, at::Tensor x) { return x * (m.is_training() ? 2.0 : 1.0); });
  expect_captured(
      [](Holder& m, at::Tensor x) {  // noise of a variational autoencoder, and decoding in eval mode
        const at::Tensor mean = m.fc(x);
        const at::Tensor z = m.is_training() ? mean + torch::exp(0.5 * mean) * torch::randn_like(mean) : mean;
        const at::Tensor y = m.fc(z).relu();
        return m.is_training() ? y : (y.sigmoid() * 2 - 0.5).pow(2);
      });
  expect_captured([](Holder& m, at::Tensor x) {  // stochastic depth
    at::Tensor y = m.fc(x);
    if (m.is_training()) y = y * torch::empty({y.size(0), 1}).bernoulli_(0.8) / 0.8;
    return x + y;
  });
}

TEST(Captured, EinsumAsTheOpsThatItIsMadeOf) {
  expect_captured([](Holder& m, at::Tensor x) {
    const at::Tensor gate = torch::softmax(m.fc(x), 1), all = torch::stack({x, m.fc(x), x * 2, x + 1}, 1);
    return torch::einsum("be,bed->bd", {gate, all}) + torch::einsum("bd,ed->be", {x, m.fc->weight});
  });
  Holder model([](Holder&, at::Tensor x) { return torch::einsum("bi,bj->bij", {x, x}); });
  const auto captured = ulp::capture(model, {torch::randn({2, 4})});
  for (const auto& node : captured->graph().nodes()) EXPECT_FALSE(node->is("aten::einsum"));
}

/// LibTorch composes these of calls that passes and engines know.
TEST(Captured, ComposedCallsAsTheOpsThatTheyAreMadeOf) {
  using T = at::Tensor;
  const std::pair<const char*, std::function<T(const T&)>> all[] = {
      {"tensordot",
       [](const T& x) {
         return torch::tensordot(x, torch::ones({3, 4}), {1}, {1});
       }},
      {"kron",
       [](const T& x) {
         return x.unsqueeze(1) * torch::kron(torch::ones({2, 2}), torch::eye(2));
       }},
      {"hsplit", [](const T& x) { return torch::hsplit(x, 2)[1]; }},
      {"swapaxes", [](const T& x) { return x.unsqueeze(1).swapaxes(1, 2); }},
      {"pairwise_distance", [](const T& x) { return torch::pairwise_distance(x, x.flip({1})); }},
      {"isfinite", [](const T& x) { return torch::isfinite(1 / x).to(torch::kFloat); }},
      {"trapz", [](const T& x) { return torch::trapz(x, 0.5, 1); }},
      {"diff", [](const T& x) { return x.diff(2, 1); }},
      {"column_stack",
       [](const T& x) {
         return torch::column_stack({x, x * 2});
       }},
      {"multiply", [](const T& x) { return torch::multiply(x, x) - torch::absolute(x).divide(3); }},
      {"special_expit", [](const T& x) { return torch::special_expit(x) + torch::special_expm1(x); }}};
  for (const auto& [name, body] : all) {
    SCOPED_TRACE(name);
    Holder model([&](Holder& m, T x) { return body(m.fc(x)); });
    const auto captured = ulp::capture(model, {torch::randn({2, 4})});
    for (const auto& node : captured->graph().nodes()) EXPECT_FALSE(node->is("aten::" + std::string(name)));
    const T x = torch::randn({5, 4}, torch::requires_grad()), again = x.detach().requires_grad_();
    const T wanted = model.forward(x), made = captured->forward(again);
    EXPECT_TRUE(torch::equal(made, wanted));
    if (!wanted.requires_grad()) continue;
    wanted.square().sum().backward();
    made.square().sum().backward();
    EXPECT_TRUE(torch::equal(again.grad(), x.grad()));
  }
}

TEST(Captured, DropoutInPlace) {
  expect_captured([](Holder& m, at::Tensor x) {
    at::Tensor y = m.fc(x);
    torch::nn::functional::dropout(
        y, torch::nn::functional::DropoutFuncOptions().p(0.3).training(m.is_training()).inplace(true));
    return y + x;
  });
}

TEST(Captured, ParametersThatForwardWrites) {
  struct Renormalised : nn::Module {
    Renormalised() {
      table = register_module("table", nn::Embedding(nn::EmbeddingOptions(9, 4).max_norm(0.5)));
    }
    at::Tensor forward(const at::Tensor& ids) { return table(ids).tanh(); }
    nn::Embedding table{nullptr};
  } model;
  const at::Tensor before = model.table->weight.detach().clone();
  const at::Tensor ids = torch::tensor({{1, 2, 3}, {4, 1, 8}});
  const auto graph = ulp::capture(model, {ids});
  EXPECT_TRUE(torch::equal(model.table->weight, before)) << "capture changed the model";
  const at::Tensor from_graph = graph->forward({ids});  // writes to the shared parameter, as the model does
  const at::Tensor after = model.table->weight.detach().clone();
  EXPECT_FALSE(torch::equal(after, before));
  model.table->weight.detach().copy_(before);
  EXPECT_TRUE(torch::equal(model.forward(ids), from_graph));
  EXPECT_TRUE(torch::equal(model.table->weight, after));
}

TEST(Captured, AutocastGuardsInsideForward) {
  class Guard {
   public:
    explicit Guard(bool on) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
      at::autocast::increment_nesting();
      at::autocast::set_autocast_enabled(at::kCPU, on);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    }
    ~Guard() {
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, before_);
    }

   private:
    bool before_;
  };
  for (const bool on : {true, false}) {
    expect_captured([on](Holder& m, at::Tensor x) {
      at::Tensor y = m.fc(x);
      {
        const Guard guard(on);
        y = m.fc(y.to(at::kFloat)).to(at::kFloat);
      }
      return m.fc(y);
    });
  }
}

TEST(Captured, EvalModeAlone) {
  Holder model([](Holder& m, at::Tensor x) {
    if (m.is_training()) throw std::runtime_error("not for training");
    return m.fc(x).relu();
  });
  const at::Tensor x = torch::randn({2, 4});
  const auto graph = ulp::capture(model, {x}, {.modes = graph::Modes::eval_only});
  EXPECT_FALSE(graph->is_training());
  model.eval();
  EXPECT_TRUE(torch::equal(graph->forward({x}), model.forward(x)));
}

TEST(Captured, NoGradInsideForward) {
  expect_captured([](Holder& m, at::Tensor x) {
    at::Tensor scale;
    {
      torch::NoGradGuard guard;
      scale = m.fc->weight.norm();
    }
    return m.fc(x) / scale;
  });
}

}  // namespace
