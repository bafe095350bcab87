// Networks as users write them and the reference networks over text, in small: the cut one is the masked one.
#include "cut_networks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "networks/networks.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"

namespace ulp::test {
namespace {

using Inputs = std::vector<at::Tensor>;

/// Everything in double, also what the graph makes itself.
void to_double(graph::GraphModule& module) {
  for (const auto& node : module.graph().nodes()) {
    if (node->kind() != graph::Node::Kind::call) continue;
    for (graph::Argument& arg : node->args) {
      if (&arg == &node->args[0] || arg.kind != graph::Argument::Kind::literal || !arg.literal.isInt())
        continue;
      const auto& name = node->schema().arguments()[static_cast<size_t>(&arg - node->args.data())].name();
      if (name == "dtype" && arg.literal.toInt() == static_cast<int64_t>(torch::kFloat))
        arg.literal = static_cast<int64_t>(torch::kDouble);
    }
  }
  for (const auto& [name, attribute] : module.graph().attributes()) {
    at::Tensor tensor = attribute.tensor;
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(torch::kDouble));
  }
  module.recompile();
}

Inputs doubled(Inputs inputs) {
  for (at::Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(torch::kDouble);
  }
  return inputs;
}

/// The same results whatever the random state.
bool is_deterministic(graph::GraphModule& module, const Inputs& inputs) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const auto first = module.forward_all(inputs);
  torch::manual_seed(2);
  const auto second = module.forward_all(inputs);
  for (size_t i = 0; i < first.size(); ++i) {
    if (!torch::equal(first[i], second[i])) return false;
  }
  return true;
}

void expect_cuts(const Captured& module, const std::function<Inputs(int64_t)>& inputs, size_t fewest_groups) {
  to_double(*module);
  const prune::Groups groups = prune::groups(module->graph());
  SCOPED_TRACE(words(groups));
  EXPECT_GE(groups.groups.size(), fewest_groups);
  module->train();
  const bool train = is_deterministic(*module, doubled(inputs(4)));
  const std::vector<Inputs> batches{doubled(inputs(2)), doubled(inputs(5))};
  expect_cut_is_masked(module, batches, groups, some_units(groups, 0.4, 7), 1e-7, train);
  expect_cut_is_masked(module, {batches[0]}, groups, some_units(groups, 1, 7), 1e-7, false);
}

class CutNetwork : public testing::TestWithParam<size_t> {
  void SetUp() override { torch::set_num_threads(1); }
};

TEST_P(CutNetwork, IsTheMaskedOne) {
  const Network& network = networks()[GetParam()];
  torch::manual_seed(1);
  const Instance model = network.make();
  // Both layers of forecast make its result, weights of realnvp are computed, and rnn_lm shares its table
  // with the result.
  const bool has_none = network.name == "forecast" || network.name == "realnvp" || network.name == "rnn_lm";
  const size_t fewest = has_none ? 0 : 1;
  expect_cuts(graph::capture(*model.root, model.forward, network.inputs(2)), network.inputs, fewest);
}

INSTANTIATE_TEST_SUITE_P(All, CutNetwork, testing::Range<size_t>(0, networks().size()),
                         [](const auto& info) { return networks()[info.param].name; });

template <typename Model>
void expect_text_cuts(const Model& model, int64_t vocabulary, size_t groups) {
  const auto ids = [vocabulary](int64_t batch) { return Inputs{torch::randint(1, vocabulary, {batch, 9})}; };
  torch::manual_seed(1);
  expect_cuts(capture(*model, ids(2)), ids, groups);
}

TEST(CutText, BertGpt2AndLstmAreTheMaskedOnes) {
  torch::set_num_threads(1);
  torch::manual_seed(3);
  const auto bert = models::make_bert({.vocab_size = 30,
                                       .max_length = 9,
                                       .width = 16,
                                       .layers = 2,
                                       .heads = 4,
                                       .intermediate = 24,
                                       .dropout = 0,
                                       .attention_dropout = 0,
                                       .padding_token = 0});
  expect_text_cuts(bert, 30, 5);  // heads and feed-forward of two layers, and the pooler
  const auto gpt2 = models::make_gpt2({.vocab_size = 30,
                                       .max_length = 9,
                                       .width = 16,
                                       .layers = 2,
                                       .heads = 4,
                                       .dropout = 0,
                                       .attention_dropout = 0});
  expect_text_cuts(gpt2, 30, 4);
  const auto lstm =
      models::make_lstm({.vocab_size = 30, .max_length = 9, .embedding = 8, .hidden = 12, .layers = 2});
  expect_text_cuts(lstm, 30, 2);
}

}  // namespace
}  // namespace ulp::test
