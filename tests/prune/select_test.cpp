#include "ulp/prune/select.h"

#include "support.h"
#include "ulp/base/fields_json.h"

namespace ulp::prune::tests {
namespace {

TEST(PruneAmount, RoundsHalfToEvenAndCountsWhatIsGone) {
  EXPECT_EQ(Amount::share(0.5).to_prune("x", 5, 5), 2);
  EXPECT_EQ(Amount::share(0.5).to_prune("x", 7, 7), 4);
  EXPECT_EQ(Amount::share(0.25).to_prune("x", 100, 30), 8);   // 7.5
  EXPECT_EQ(Amount::share(0.25).to_prune("x", 100, 50), 12);  // 12.5
  EXPECT_EQ(Amount::share(0.8, AmountOf::all).to_prune("x", 100, 30), 10);
  EXPECT_EQ(Amount::share(0.5, AmountOf::all).to_prune("x", 100, 30), 0);
  EXPECT_EQ(Amount::units(30).to_prune("x", 100, 30), 30);
  EXPECT_EQ(Amount::units(80, AmountOf::all).to_prune("x", 100, 30), 10);
  EXPECT_SAYS(error_of([] { Amount::units(31).to_prune("'fc1'", 100, 30); }),
              "a count of at most 30, which is all that is left, for 'fc1', got 31");
  EXPECT_SAYS(error_of([] { Amount::units(-1).to_prune("x", 3, 3); }), "count >= 0");
  EXPECT_SAYS(error_of([] { Amount::share(1.5).to_prune("x", 3, 3); }), "fraction in [0, 1]");
  EXPECT_SAYS(error_of([] { Amount::share(NAN).to_prune("x", 3, 3); }), "fraction in [0, 1]");
}

at::Tensor values(std::vector<float> numbers, at::IntArrayRef sizes) {
  return torch::tensor(numbers).view(sizes);
}

TEST(Select, TiesGoByLayerThenIndexAndCountsAreExact) {
  const std::vector<LayerScores> layers = {{"a", torch::ones({3, 2}), {}}, {"b", torch::ones({2, 2}), {}}};
  for (int64_t count = 0; count <= 10; ++count) {
    const auto keep = select(layers, {.scope = Scope::global, .amount = Amount::units(count)});
    const at::Tensor all = torch::cat({keep[0].flatten(), keep[1].flatten()});
    EXPECT_TRUE(torch::equal(all, torch::arange(10) >= count)) << count;
  }
}

/// By sorting everything.
std::vector<at::Tensor> plain_global(const std::vector<LayerScores>& layers, int64_t count) {
  struct One {
    double score;
    size_t layer;
    int64_t index;
  };
  std::vector<One> all;
  std::vector<at::Tensor> keep;
  for (size_t i = 0; i < layers.size(); ++i) {
    keep.push_back(layers[i].keep.defined() ? layers[i].keep.clone()
                                            : torch::ones(layers[i].scores.sizes(), at::kBool));
    for (int64_t k = 0; k < layers[i].scores.numel(); ++k) {
      if (keep[i].flatten()[k].item<bool>())
        all.push_back({layers[i].scores.flatten()[k].item<double>(), i, k});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const One& a, const One& b) { return a.score < b.score; });
  for (int64_t k = 0; k < count; ++k) keep[all[k].layer].view(-1)[all[k].index] = false;
  return keep;
}

TEST(Select, GlobalEqualsSortingEverythingWhateverTheThreads) {
  torch::manual_seed(4);
  std::vector<LayerScores> layers;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{7, 5}, {4, 3, 3, 3}, {1, 1}, {6, 2, 5}})
    layers.push_back(
        {"layer" + std::to_string(layers.size()), torch::randint(0, 9, sizes).to(at::kFloat), {}});
  layers[1].keep = random_mask({4, 3, 3, 3}, 6);
  const int threads = at::get_num_threads();
  for (const int64_t count : {0, 1, 17, 60, 100}) {
    const auto expected = plain_global(layers, count);
    for (const int used : {1, 3}) {
      at::set_num_threads(used);
      const auto got = select(layers, {.scope = Scope::global, .amount = Amount::units(count)});
      for (size_t i = 0; i < layers.size(); ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
    }
  }
  at::set_num_threads(threads);
}

TEST(Select, AFloorKeepsSomeOfEachLayerAndTheCountStaysExact) {
  const std::vector<LayerScores> layers = {{"low", torch::arange(10).to(at::kFloat).view({2, 5}), {}},
                                           {"high", 100 + torch::arange(10).to(at::kFloat).view({2, 5}), {}}};
  Selection how{.scope = Scope::global, .amount = Amount::share(0.5), .floor = 0.2};
  auto keep = select(layers, how);
  EXPECT_EQ(keep[0].sum().item<int64_t>(), 2);
  EXPECT_TRUE(torch::equal(keep[0].flatten(), torch::arange(10) >= 8));
  EXPECT_TRUE(torch::equal(keep[1].flatten(), torch::arange(10) >= 2));
  how.amount = Amount::share(0.8);
  keep = select(layers, how);
  EXPECT_EQ(keep[0].sum().item<int64_t>() + keep[1].sum().item<int64_t>(), 4);
  how.amount = Amount::units(17);
  EXPECT_SAYS(error_of([&] { select(layers, how); }),
              "at most 16 units to prune, which leave 0.2 of each layer, got 17");
}

TEST(Select, OverridesPruneByThemselves) {
  const std::vector<LayerScores> layers = {{"stem.weight", torch::zeros({2, 5}), {}},
                                           {"block.1.weight", torch::rand({10, 10}), {}},
                                           {"block.2.weight", torch::rand({10, 10}), {}},
                                           {"head.weight", torch::rand({2, 5}), {}}};
  const auto keep = select(layers, {.scope = Scope::global,
                                    .amount = Amount::share(0.5),
                                    .overrides = {{"*.weight", Amount::share(0.5)},
                                                  {"block", Amount::share(0.9)},
                                                  {"stem", Amount::units(1)}}});
  EXPECT_EQ(keep[0].sum().item<int64_t>(), 9);
  EXPECT_EQ(keep[1].sum().item<int64_t>(), 10);
  EXPECT_EQ(keep[2].sum().item<int64_t>(), 10);
  EXPECT_EQ(keep[3].sum().item<int64_t>(), 5);
  EXPECT_SAYS(error_of([&] {
                select(layers, {.overrides = {{"stam", Amount::share(0.5)}}});
              }),
              "got 'stam', which matches none");
}

TEST(Select, NOfMKeepsTheBestOfEachGroupAlongTheInputs) {
  torch::manual_seed(1);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 8}, {3, 8, 3, 3}}) {
    const at::Tensor scores = torch::rand(sizes);
    for (const auto& [n, m] : {std::pair<int64_t, int64_t>{2, 4}, {1, 4}, {4, 8}}) {
      const at::Tensor keep = select({{"w", scores, {}}}, {.pattern = Pattern::n_of_m(n, m)})[0];
      const auto by_group = [m = m](const at::Tensor& x) {  // [rows, groups, m, positions]
        return x.unsqueeze(-1).flatten(2).unflatten(1, {8 / m, m});
      };
      const at::Tensor kept = by_group(keep), grouped = by_group(scores);
      EXPECT_TRUE(torch::equal(kept.sum(2), torch::full_like(kept.sum(2), n)));
      const at::Tensor least_kept = grouped.masked_fill(~kept, 2).amin(2);
      const at::Tensor most_pruned = grouped.masked_fill(kept, -1).amax(2);
      EXPECT_TRUE((least_kept > most_pruned).all().item<bool>());
    }
  }
  const at::Tensor keep = torch::tensor({true, false, false, false, true, true, true, false}).view({1, 8});
  const at::Tensor again = select({{"w", torch::ones({1, 8}), keep}}, {.pattern = Pattern::n_of_m(2, 4)})[0];
  EXPECT_TRUE(torch::equal(again[0], torch::tensor({true, false, false, false, false, true, true, false})));
  EXPECT_SAYS(error_of([] {
                select({{"fc", torch::ones({2, 6}), {}}}, {.pattern = Pattern::n_of_m(2, 4)});
              }),
              "inputs in a multiple of 4 for 2:4 in 'fc', got sizes [2, 6]");
  EXPECT_SAYS(error_of([] { Pattern::n_of_m(4, 4).validate(); }), "expected n < m, got 4:4");
}

TEST(Select, BlocksAreWholeAndTheirScoresAreTheMeans) {
  torch::manual_seed(2);
  const at::Tensor scores = torch::rand({32, 8, 2, 2});
  const at::Tensor keep =
      select({{"w", scores, {}}}, {.pattern = Pattern::blocks(16, 4), .amount = Amount::share(0.5)})[0];
  const auto cut = [](const at::Tensor& x) {  // [2, 16, 2, 4, 2, 2]
    return x.unflatten(0, {2, 16}).unflatten(2, {2, 4});
  };
  const at::Tensor kept = cut(keep).to(at::kFloat).mean({1, 3}), means = cut(scores).mean({1, 3});
  EXPECT_EQ(kept.sum().item<float>(), 8) << "of 16 blocks";
  EXPECT_TRUE(((kept == 0) | (kept == 1)).all().item<bool>());
  EXPECT_GT(means.masked_select(kept == 1).min().item<float>(),
            means.masked_select(kept == 0).max().item<float>());
  // 5 x 3 in blocks of 2 x 2: six blocks, ragged at the edges; the last one is a single element.
  const at::Tensor ragged = values({9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1}, {5, 3});
  const at::Tensor rest =
      select({{"w", ragged, {}}}, {.pattern = Pattern::blocks(2, 2), .amount = Amount::units(1)})[0];
  EXPECT_EQ(rest.sum().item<int64_t>(), 14);
  EXPECT_FALSE(rest[4][2].item<bool>());
}

TEST(Select, RowsAndColumnsGoWhole) {
  const at::Tensor scores = values({1, 2, 3, 0, 0, 9, 4, 4, 4}, {3, 3});
  const auto run = [&](PatternKind kind, UnitScore unit) {
    Pattern pattern = Pattern::of(kind);
    pattern.unit_score = unit;
    return select({{"w", scores, {}}}, {.pattern = pattern, .amount = Amount::units(1)})[0];
  };
  const auto rows = [](int row) { return (torch::arange(3) != row).unsqueeze(1).expand({3, 3}); };
  EXPECT_TRUE(torch::equal(run(PatternKind::rows, UnitScore::sum), rows(0)));
  EXPECT_TRUE(torch::equal(run(PatternKind::rows, UnitScore::max), rows(0)));
  EXPECT_TRUE(torch::equal(run(PatternKind::rows, UnitScore::l2), rows(0)));
  EXPECT_TRUE(torch::equal(run(PatternKind::columns, UnitScore::sum), rows(0).t()));
  EXPECT_TRUE(torch::equal(run(PatternKind::columns, UnitScore::max), rows(0).t()));
}

TEST(Select, ScopeRowTruncatesInEachRow) {
  torch::manual_seed(3);
  const at::Tensor scores = torch::rand({6, 7});
  const at::Tensor keep = select({{"w", scores, {}}}, {.scope = Scope::row, .amount = Amount::share(0.5)})[0];
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(keep[row].sum().item<int64_t>(), 4) << "int(3.5) are pruned";
    EXPECT_GT(scores[row].masked_select(keep[row]).min().item<float>(),
              scores[row].masked_select(~keep[row]).max().item<float>());
  }
}

TEST(Select, NaNIsAnErrorThatNamesTheLayerUnlessItIsPrunedAlready) {
  at::Tensor scores = torch::ones({2, 3});
  scores[1][0] = NAN;
  EXPECT_SAYS(error_of([&] {
                select({{"fc2.weight", scores, {}}}, {});
              }),
              "got NaN for element 3 of 'fc2.weight'");
  at::Tensor keep = torch::ones({2, 3}, at::kBool);
  keep[1][0] = false;
  EXPECT_EQ(select({{"fc2.weight", scores, keep}}, {.amount = Amount::units(2)})[0].sum().item<int64_t>(), 3);
  EXPECT_SAYS(error_of([&] {
                select({{"fc2.weight", scores, keep.t()}}, {});
              }),
              "of sizes [2, 3] for 'fc2.weight'");
  EXPECT_SAYS(error_of([&] { select({{"fc2.weight", scores.to(at::kInt), {}}}, {}); }), "floating-point");
}

}  // namespace
}  // namespace ulp::prune::tests
