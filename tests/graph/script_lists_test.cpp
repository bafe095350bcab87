// Lists of scripted models, which change after a call has read them.
#include <torch/csrc/jit/api/module.h>

#include "same.h"

namespace {

using namespace ulp;

void expect_captured(const char* forward) {
  torch::jit::Module model("model");
  model.define(forward);
  const at::Tensor x = torch::randn({2, 3});
  const auto graph = ulp::capture(model, {x});
  for (const int64_t batch : {1, 2, 5}) {
    const at::Tensor input = torch::randn({batch, 3});
    EXPECT_TRUE(torch::equal(graph->forward({input}), model.forward({input}).toTensor())) << forward;
  }
}

TEST(ScriptLists, AnItemThatIsReplaced) {
  expect_captured(R"(
def forward(self, x):
    xs = [x, x * 2]
    y = torch.cat(xs, 1)
    xs[0] = x + 5
    return torch.cat([y, torch.cat(xs, 1)], 1)
)");
}

TEST(ScriptLists, ItemsThatComeAndGo) {
  expect_captured(R"(
def forward(self, x):
    xs = [x]
    for i in range(3):
        y = torch.cat(xs, 1)
        xs.append(y.sum(1, True) * x)
    last = xs.pop()
    z = torch.cat(xs, 1)
    xs.reverse()
    return torch.cat([z, torch.cat(xs, 1), last], 1)
)");
}

TEST(ScriptLists, ADictionaryOfResults) {
  torch::jit::Module model("model");
  model.define(R"(
def forward(self, x):
    return {"twice": x * 2, "first": x.tanh()}
)");
  const auto graph = ulp::capture(model, {torch::randn({2, 3})}, {.check = {{torch::randn({7, 3})}}});
  const at::Tensor x = torch::randn({4, 3});
  const auto results = graph->call<std::map<std::string, at::Tensor>>(x);
  ASSERT_EQ(results.size(), 2);
  EXPECT_TRUE(torch::equal(results.at("twice"), x * 2));
  EXPECT_TRUE(torch::equal(results.at("first"), x.tanh()));
}

}  // namespace
