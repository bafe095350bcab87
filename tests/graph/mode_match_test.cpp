// Train mode makes calls of its own among those of both modes, with the same operators: which is which.
#include <random>

#include "same.h"
#include "ulp/base/error.h"

namespace {

using namespace ulp::test;
using torch::Tensor;
namespace nn = torch::nn;

struct ModeNet : nn::Module {
  using Body = std::function<Tensor(const Tensor&, bool)>;
  Body body;
  Tensor shift = register_parameter("shift", torch::randn({4}));
  Tensor forward(const Tensor& x) { return body(x, is_training()); }
};

std::shared_ptr<ulp::graph::GraphModule> check_body(const ModeNet::Body& body) {
  torch::manual_seed(6);
  ModeNet net;
  net.body = body;
  return check(net, {torch::randn({3, 4})});
}

TEST(ModesMatch, WhereTrainModeBeginsWithCallsOfItsOwn) {
  const auto both = [](const Tensor& x) { return (2 * x - 1).sigmoid(); };
  check_body([&](const Tensor& x, bool training) {
    return both(training ? (x * 255. + torch::rand_like(x)) / 256. : x);
  });
  check_body([&](const Tensor& x, bool training) { return both(training ? x * 3 - 5 : x); });
  check_body([&](const Tensor& x, bool training) { return both(training ? x.mul(2).sub(1) : x); });
  check_body(
      [&](const Tensor& x, bool training) { return both(training ? x + torch::randn_like(x) : x) + x; });
}

TEST(ModesMatch, WhereTrainModeEndsWithCallsOfItsOwn) {
  check_body([](const Tensor& x, bool training) {
    const Tensor y = (2 * x - 1).sigmoid();
    return training ? 3 * y - 5 : y;
  });
}

TEST(ModesMatch, WhereEachModeHasANumberOfItsOwn) {
  check_body([](const Tensor& x, bool training) { return (x * (training ? 0.5 : 0.8)).relu() + 1; });
  check_body([](const Tensor& x, bool training) { return (x * (training ? 2 : 3)).relu() + 1; });
}

/// A chain of calls with a few numbers, some of them in train mode alone: the graph does it, or capture says
/// why not.
TEST(ModesMatch, RandomChainsAreTheModelOrRefused) {
  int captured = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    struct Step {
      int op;
      double number;
      bool train_only;
    };
    std::vector<Step> steps;
    for (int i = 0; i < 7; ++i) {
      const std::array numbers = {0.5, 2.0, 3.0};
      const bool alone = random() % 3 == 0;
      steps.push_back({static_cast<int>(random() % 6), numbers[random() % 3], alone});
    }
    torch::manual_seed(6);
    ModeNet net;
    net.body = [&](const Tensor& input, bool training) {
      Tensor x = input;
      for (const Step& step : steps) {
        if (step.train_only && !training) continue;
        if (step.op == 0) x = x * step.number;
        if (step.op == 1) x = x + step.number;
        if (step.op == 2) x = x + net.shift;
        if (step.op == 3) x = torch::tanh(x);
        if (step.op == 4) x = torch::dropout(x, 0.5, training);
        if (step.op == 5) x = x + input;
      }
      return x;
    };
    try {
      check(net, {torch::randn({3, 4})});
      ++captured;
    } catch (const ulp::Error& error) {
      EXPECT_SAYS(error.what(), "[graph.capture]");
    }
  }
  EXPECT_GE(captured, 36);
}

}  // namespace
