#include "ulp/prune/permute_inputs.h"

#include "support.h"
#include "ulp/prune/select.h"

namespace ulp::prune::tests {
namespace {

/// What select() keeps of n:m.
double kept_by_select(const at::Tensor& scores, int64_t n, int64_t m) {
  const at::Tensor keep = select({{"w", scores, {}}}, {.pattern = Pattern::n_of_m(n, m)})[0];
  return (scores * keep).sum().item<double>();
}

TEST(InputOrder, KeepsAtLeastAsMuchAndIsAnOrder) {
  torch::manual_seed(3);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{12, 16}, {6, 16, 3, 3}}) {
    const at::Tensor scores = torch::rand(sizes, at::kDouble).pow(3);
    const InputOrder found = n_m_input_order(scores, 2, 4);
    std::vector<int64_t> sorted = found.inputs;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
    const at::Tensor moved = scores.index_select(1, torch::tensor(found.inputs));
    EXPECT_NEAR(kept_by_select(scores, 2, 4), found.kept_before, 1e-9);
    EXPECT_NEAR(kept_by_select(moved, 2, 4), found.kept, 1e-9);
    EXPECT_GT(found.kept, 1.005 * found.kept_before);
  }
}

TEST(InputOrder, SpreadsLargeInputsOverTheGroups) {
  at::Tensor scores = torch::full({3, 8}, 0.1, at::kDouble);
  scores.slice(1, 0, 4).fill_(1);  // all large ones in one group: 2:4 loses half of them
  const InputOrder found = n_m_input_order(scores, 2, 4);
  EXPECT_DOUBLE_EQ(found.kept_before, 3 * (2 + 0.2));
  EXPECT_DOUBLE_EQ(found.kept, 12);
}

TEST(InputOrder, BadArgumentsAreErrors) {
  EXPECT_SAYS(error_of([] { n_m_input_order(torch::ones({3, 6}), 2, 4); }), "multiple of 4, got [3, 6]");
  EXPECT_SAYS(error_of([] { n_m_input_order(torch::ones({3, 8}), 4, 4); }), "got 4:4");
  EXPECT_SAYS(error_of([] {
                n_m_input_order(-torch::ones({3, 8}), 2, 4);
              }),
              "scores >= 0, got -1 for input 0");
}

}  // namespace
}  // namespace ulp::prune::tests
