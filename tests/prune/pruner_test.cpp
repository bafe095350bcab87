#include "ulp/prune/pruner.h"

#include "support.h"
#include "temporary_folder.h"
#include "ulp/io/checkpoint.h"
#include "ulp/prune/masks/hold_masks.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::prune::tests {
namespace {

using graph::GraphModule;

std::vector<int64_t> due_steps(const Schedule& schedule, int64_t until) {
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < until; ++step) {
    if (schedule.due(step)) steps.push_back(step);
  }
  return steps;
}

TEST(PruneSchedule, CubicFollowsZhuAndGupta) {
  const Schedule schedule{
      .kind = ScheduleKind::cubic, .begin = 100, .end = 500, .frequency = 100, .initial = 0.2};
  const Amount amount = Amount::share(0.9, AmountOf::all);
  schedule.validate(amount);
  EXPECT_EQ(due_steps(schedule, 1000), (std::vector<int64_t>{100, 200, 300, 400, 500}));
  EXPECT_EQ(schedule.last(), 500);
  for (int64_t t = 100; t <= 500; t += 100) {
    const double expected = 0.9 + (0.2 - 0.9) * std::pow(1 - (t - 100) / 400.0, 3);
    EXPECT_DOUBLE_EQ(schedule.amount_at(t, amount).fraction, expected);
    EXPECT_EQ(schedule.amount_at(t, amount).of, AmountOf::all);
  }
}

TEST(PruneSchedule, RoundsAndOneShot) {
  const Schedule rounds{.kind = ScheduleKind::iterative, .begin = 5, .frequency = 10, .rounds = 3};
  EXPECT_EQ(due_steps(rounds, 100), (std::vector<int64_t>{5, 15, 25}));
  EXPECT_EQ(rounds.last(), 25);
  EXPECT_EQ(due_steps({.begin = 7}, 100), (std::vector<int64_t>{7}));
  EXPECT_SAYS(error_of([] { Schedule{.frequency = 0}.validate({}); }),
              "frequency in [1, 1000000000000], got 0");
  EXPECT_SAYS(error_of([] { Schedule{.kind = ScheduleKind::cubic, .end = 100}.validate({}); }),
              "fraction of all");
  EXPECT_SAYS(error_of([] {
                Schedule{.kind = ScheduleKind::cubic, .begin = 9, .end = 3}.validate(
                    Amount::share(0.5, AmountOf::all));
              }),
              "end >= begin, got 3 and 9");
}

TEST(PruneRecipe, JsonComesBackAndBadOnesAreErrors) {
  Recipe recipe{.score = Score::taylor,
                .pattern = Pattern::blocks(8, 2),
                .scope = Scope::layer,
                .amount = Amount::share(0.8, AmountOf::all),
                .floor = 0.05,
                .overrides = {{"head", Amount::share(0.5, AmountOf::all)}},
                .parameters = {"*.weight"},
                .skip = {"stem"},
                .schedule = {.kind = ScheduleKind::cubic, .begin = 1, .end = 21, .frequency = 5},
                .seed = 9};
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
  EXPECT_EQ(Recipe::from_json(R"({"type": "ulp.prune.Recipe", "version": 1})"), Recipe());
  const auto error = [](const std::string& fields) {
    return error_of(
        [&] { Recipe::from_json(R"({"type": "ulp.prune.Recipe", "version": 1, )" + fields + "}"); });
  };
  EXPECT_SAYS(error(R"("score": "size")"), "magnitude, random");
  EXPECT_SAYS(error(R"("amount": {"fraction": 1.5})"), "in [0, 1] in 'amount.fraction', got 1.5");
  EXPECT_SAYS(error(R"("sparsity": 0.5)"), "sparsity");
  EXPECT_SAYS(error(R"("pattern": {"kind": "n_m", "n": 4, "m": 4})"), "n < m");
  EXPECT_SAYS(error(R"("score": "sparsegpt")"), "fraction of all");
  EXPECT_SAYS(error_of([] { Recipe::from_json(R"({"type": "ulp.prune.Recipe", "version": 2})"); }),
              "version 1");
}

TEST(PruneRecipe, WhatCannotBeIsFoundBeforeAnythingRuns) {
  const auto error = [](const Recipe& recipe) { return error_of([&] { recipe.validate(); }); };
  const Amount half = Amount::share(0.5, AmountOf::all);
  const Schedule cubic{.kind = ScheduleKind::cubic, .begin = 2, .end = 12, .frequency = 2};
  EXPECT_SAYS(error({.score = Score::movement, .amount = half}), "begins after step 0");
  EXPECT_SAYS(error({.score = Score::movement, .schedule = {.begin = 5}}), "fractions of all for movement");
  EXPECT_SAYS(error({.score = Score::movement,
                     .amount = half,
                     .overrides = {{"a", Amount::units(3)}},
                     .schedule = {.begin = 5}}),
              "fractions of all for movement");
  EXPECT_SAYS(error({.score = Score::soft_movement,
                     .pattern = Pattern::of(PatternKind::rows),
                     .schedule = {.begin = 5}}),
              "for soft_movement");
  EXPECT_SAYS(error({.amount = half, .overrides = {{"a", Amount::share(0.5)}}, .schedule = cubic}),
              "fraction of all for cubic");
  EXPECT_SAYS(error({.pattern = Pattern::n_of_m(2, 4), .overrides = {{"a", half}}}), "no overrides for n_m");
  EXPECT_SAYS(error({.pattern = Pattern::blocks(2, 2), .scope = Scope::row}), "for the scope row");
  EXPECT_SAYS(error({.amount = Amount::share(0.9, AmountOf::all), .floor = 0.5}), "a floor of at most");
  Schedule high = cubic;
  high.initial = 0.9;
  EXPECT_SAYS(error({.amount = half, .schedule = high}), "initial of at most the amount, 0.5");
  const auto module = two_layers();
  EXPECT_SAYS(error_of([&] { Pruner(module, {.overrides = {{"fc9", half}}}); }), "which matches none");
  EXPECT_SAYS(error_of([&] { Pruner(module, {.pattern = Pattern::n_of_m(2, 8)}); }), "'fc1.weight'");
  EXPECT_TRUE(masks(module->graph()).empty());
  EXPECT_SAYS(error_of([&] { Pruner(module, {.amount = Amount::units(3)}).set_schedule({}); }), "a count");
}

/// One weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("first", torch::randn({6, 6}));
    inner = register_module("inner", std::make_shared<torch::nn::Module>());
    inner->register_parameter("second", weight);
  }
  at::Tensor forward(const at::Tensor& x) { return torch::linear(torch::linear(x, weight), weight); }
  at::Tensor weight;
  std::shared_ptr<torch::nn::Module> inner;
};
TORCH_MODULE(Tied);

TEST(PruneRecipe, PatternsAreForAnyNameOfATiedWeight) {
  torch::manual_seed(1);
  Tied model;
  const auto module = capture(model, {torch::randn({2, 6})});
  for (const char* pattern : {"first", "inner", "*.second"})
    EXPECT_EQ(Recipe{.parameters = {pattern}}.parameters_in(module->graph()).size(), 1) << pattern;
  const at::Tensor keep = torch::ones({6, 6}, torch::kBool);
  ASSERT_NE(module->graph().find_attribute("inner.second"), nullptr);
  EXPECT_SAYS(error_of([&] {
                set_masks(*module, {{"first", keep}, {"inner.second", keep}});
              }),
              "one mask for each");
}

TEST(PruneRecipe, NamesAreOfWeightsThatTheModelHas) {
  const auto module = two_layers();
  const auto names = [&](std::vector<std::string> parameters, std::vector<std::string> skip) {
    return Recipe{.parameters = std::move(parameters), .skip = std::move(skip)}.parameters_in(
        module->graph());
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}, {}), (Names{"fc1.weight", "fc2.weight"}));
  EXPECT_EQ(names({"fc1"}, {}), (Names{"fc1.weight"}));
  EXPECT_EQ(names({}, {"fc1"}), (Names{"fc2.weight"}));
  EXPECT_SAYS(error_of([&] { names({"fc3"}, {}); }),
              "expected parameters to name weights of the model, got 'fc3'");
  EXPECT_SAYS(error_of([&] { names({}, {"fc3"}); }), "expected skip to name weights");
  EXPECT_SAYS(error_of([&] { names({}, {"*"}); }), "got none");
}

TEST(Prune, OneShotPrunesExactlySoMuchAndAgainOfTheRest) {
  const auto module = two_layers();
  const Recipe recipe{.amount = Amount::share(0.5)};
  PruneReport report = prune(*module, recipe);
  EXPECT_EQ(report.elements(), 340);
  EXPECT_EQ(report.kept(), 170);
  EXPECT_EQ(report.sparsity(), 0.5);
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[1].parameter, "fc2.weight");
  EXPECT_EQ(report.layers[1].elements, 100);
  const auto parameters = module->named_parameters();
  const at::Tensor all =
      torch::cat({parameters["fc1.weight"].flatten(), parameters["fc2.weight"].flatten()}).abs();
  const at::Tensor keep = torch::cat({find_mask(module->graph(), "fc1.weight").flatten(),
                                      find_mask(module->graph(), "fc2.weight").flatten()});
  EXPECT_GT(all.masked_select(keep).min().item<float>(), all.masked_select(~keep).max().item<float>());
  EXPECT_EQ(prune(*module, recipe).kept(), 85);
}

TEST(Prune, EveryScoreAndPatternRuns) {
  const at::Tensor x = torch::randn({8, 12});
  const ScoreInputs inputs{
      .loss = [x](GraphModule& module, int64_t) { return module.forward(x).pow(2).mean(); }, .inputs = {{x}}};
  for (const auto& word : EnumNames<Score>::list) {
    if (source_of(word.value) == ScoreSource::training) continue;
    for (const PatternKind kind : {PatternKind::free, PatternKind::n_m, PatternKind::blocks}) {
      if (word.value == Score::sparsegpt && kind == PatternKind::blocks) continue;
      if (word.value == Score::synflow && kind == PatternKind::n_m) continue;
      SCOPED_TRACE(::testing::Message() << word.text << ' ' << enum_name(kind));
      const auto module = two_layers();
      Recipe recipe{.score = word.value, .pattern = Pattern::of(kind), .scope = Scope::layer};
      recipe.amount = Amount::share(0.5, AmountOf::all);
      recipe.pattern.block_rows = 5;
      recipe.pattern.block_columns = 2;
      EXPECT_EQ(prune(*module, recipe, inputs).kept(), 170);
      EXPECT_TRUE(module->forward(x).isfinite().all().item<bool>());
    }
  }
}

TEST(Prune, SynFlowsRoundsKeepEveryLayerAliveWhereOneRoundDoesNot) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(30, 60), torch::nn::ReLU(), torch::nn::Linear(60, 4),
                              torch::nn::ReLU(), torch::nn::Linear(4, 40));
  const auto module = capture(model, {torch::randn({2, 30})});
  Recipe recipe{.score = Score::synflow, .amount = Amount::share(0.98, AmountOf::all)};
  const PruneReport many = prune(*module, recipe, {.inputs = {{torch::randn({1, 30})}}});
  EXPECT_EQ(many.kept(), 2200 - 2156);
  for (const PrunedLayer& layer : many.layers) EXPECT_GT(layer.kept, 0) << layer.parameter;
  remove_masks(*module);
  recipe.rounds = 1;
  const PruneReport one = prune(*module, recipe, {.inputs = {{torch::randn({1, 30})}}});
  EXPECT_EQ(one.kept(), many.kept());
  EXPECT_EQ(std::min({one.layers[0].kept, one.layers[1].kept, one.layers[2].kept}), 0);
}

TEST(Prune, SeveralRoundsReachTheCountsOfOne) {
  const Amount amounts[] = {Amount::share(0.1, AmountOf::all), Amount::share(0.3, AmountOf::all),
                            Amount::share(0.5), Amount::units(3)};
  for (const Scope scope : {Scope::layer, Scope::global, Scope::row}) {
    for (const PatternKind kind : {PatternKind::free, PatternKind::blocks}) {
      if (scope == Scope::row && kind == PatternKind::blocks) continue;
      for (const Amount& amount : amounts) {
        Recipe recipe{.pattern = Pattern::of(kind), .scope = scope, .amount = amount};
        recipe.pattern.block_rows = recipe.pattern.block_columns = 5;
        const auto one = two_layers(), several = two_layers();
        const PruneReport expected = prune(*one, recipe);
        recipe.rounds = 4;
        const PruneReport report = prune(*several, recipe);
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_EQ(report.layers[i].kept, expected.layers[i].kept)
              << enum_name(scope) << ' ' << enum_name(kind) << ' ' << amount.fraction << ' '
              << amount.count.value_or(-1);
        }
      }
    }
  }
}

TEST(Prune, RowsAreOutputsAlsoWhereTheWeightHasItsInputsFirst) {
  torch::manual_seed(1);
  torch::nn::Sequential model(
      torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(4, 8, 3).bias(false)));
  const auto module = capture(model, {torch::randn({1, 4, 5, 5})});
  Recipe recipe{.pattern = Pattern::of(PatternKind::rows), .amount = Amount::units(3)};
  prune(*module, recipe);
  const at::Tensor y = module->forward(torch::randn({1, 4, 5, 5}));
  EXPECT_EQ(y.flatten(2).abs().sum({0, 2}).eq(0).sum().item<int64_t>(), 3);
  EXPECT_EQ(find_mask(module->graph(), "0.weight").sizes(), (at::IntArrayRef{4, 8, 3, 3}));
  remove_masks(*module);
  recipe.pattern = Pattern::n_of_m(2, 4);
  prune(*module, recipe);
  EXPECT_TRUE(find_mask(module->graph(), "0.weight").to(torch::kLong).sum(0).eq(2).all().item<bool>());
}

TEST(Prune, ScoresLeaveTheStatisticsOfBatchNormsAsTheyWere) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(6, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 2));
  const auto module = capture(model, {torch::randn({4, 6})});
  module->train();
  const at::Tensor mean = module->named_buffers()["1.running_mean"].clone(), x = torch::randn({8, 6});
  const ScoreInputs inputs{.loss = [x](GraphModule& of, int64_t) { return of.forward(x).pow(2).mean(); }};
  prune(*module, {.score = Score::taylor}, inputs);
  EXPECT_TRUE(module->named_buffers()["1.running_mean"].equal(mean));
}

TEST(Prune, ZerosBecomeMasks) {
  const auto module = two_layers();
  prune(*module, {.amount = Amount::share(0.7, AmountOf::all)});
  const auto baked = bake(*module);
  EXPECT_EQ(mask_zeros(*baked).kept(), 102);
  for (const char* name : {"fc1.weight", "fc2.weight"})
    EXPECT_TRUE(find_mask(baked->graph(), name).equal(find_mask(module->graph(), name)));
  const auto dense = two_layers();
  EXPECT_EQ(mask_zeros(*dense).kept(), 340);
  EXPECT_TRUE(masks(dense->graph()).empty());
}

TEST(Prune, ErrorsLeaveTheModuleAsItWas) {
  const auto module = two_layers();
  EXPECT_SAYS(error_of([&] { prune(*module, {.score = Score::snip}); }), "ScoreInputs::loss for snip");
  EXPECT_SAYS(error_of([&] { prune(*module, {.score = Score::movement}); }), "which a Pruner gathers");
  EXPECT_SAYS(error_of([&] { prune(*module, {.amount = Amount::units(341)}); }), "a count of at most 340");
  EXPECT_SAYS(error_of([&] { prune(*module, {.pattern = Pattern::n_of_m(2, 8)}); }), "'fc1.weight'");
  {
    const torch::NoGradGuard no_grad;
    module->named_parameters()["fc2.weight"][1][2] = NAN;
  }
  EXPECT_SAYS(error_of([&] { prune(*module, {}); }), "got NaN for element 22 of 'fc2.weight'");
  EXPECT_TRUE(masks(module->graph()).empty());
}

/// Trains with masks that follow the recipe.
std::shared_ptr<GraphModule> trained(Pruner& pruner, const std::shared_ptr<GraphModule>& module,
                                     int64_t steps, std::vector<double>* path = nullptr) {
  auto generator = at::detail::createCPUGenerator(2);
  const at::Tensor x = at::randn({32, 12}, generator), y = x.slice(1, 0, 5) * 2;
  amp::FusedOptimizer optimizer(module->parameters(), amp::AdamWRule{.lr = 0.01, .weight_decay = 0.1});
  for (int64_t step = 0; step < steps; ++step) {
    if (pruner.step(step)) hold_masks(optimizer, *module, masks(module->graph()));
    optimizer.zero_grad();
    (module->forward(x) - y).pow(2).mean().backward();
    pruner.after_backward();
    optimizer.step();
    if (path) path->push_back(pruner.report().sparsity());
  }
  return module;
}

TEST(PrunerTest, CubicPrunesStepByStepAndPrunedWeightsNeverComeBack) {
  const auto module = two_layers();
  Pruner pruner(module, {.amount = Amount::share(0.9, AmountOf::all),
                         .schedule = {.kind = ScheduleKind::cubic, .begin = 2, .end = 12, .frequency = 2}});
  std::vector<double> path;
  trained(pruner, module, 16, &path);
  EXPECT_EQ(path[1], 0);
  for (size_t i = 1; i < path.size(); ++i) EXPECT_GE(path[i], path[i - 1]);
  EXPECT_NEAR(path[7], 0.9 - 0.9 * std::pow(0.6, 3), 1.0 / 340) << "between steps 6 and 8";
  EXPECT_EQ(pruner.report().kept(), 34);
}

TEST(PrunerTest, IterativePrunesOfTheRestAndAScheduleOfOnesOwnDecides) {
  const auto module = two_layers();
  Pruner pruner(module, {.amount = Amount::share(0.2),
                         .schedule = {.kind = ScheduleKind::iterative, .frequency = 2, .rounds = 3}});
  trained(pruner, module, 8);
  EXPECT_EQ(pruner.report().kept(), 174);  // 340 -> 272 -> 218 -> 174
  const auto other = two_layers();
  Pruner own(other, {});
  own.set_schedule([](int64_t step) { return step == 3 ? std::optional<double>(0.25) : std::nullopt; });
  EXPECT_FALSE(own.step(0));
  EXPECT_TRUE(own.step(3));
  EXPECT_EQ(own.report().kept(), 255);
}

TEST(PrunerTest, MovementPrunesByWhatTrainingDoesAndWeightsMayComeBack) {
  const auto module = two_layers();
  Pruner pruner(module, {.score = Score::movement,
                         .scope = Scope::layer,
                         .amount = Amount::share(0.5, AmountOf::all),
                         .schedule = {.kind = ScheduleKind::cubic, .begin = 2, .end = 12, .frequency = 2}});
  ASSERT_NE(pruner.movement(), nullptr);
  trained(pruner, module, 13);
  EXPECT_EQ(pruner.report().kept(), 170);
  const at::Tensor scores = pruner.movement()->scores()[0];
  EXPECT_GT(scores.abs().max().item<float>(), 0);
  // The next masks are those of the scores, whatever was pruned before.
  pruner.set_schedule([](int64_t) { return std::optional<double>(0.25); });
  EXPECT_TRUE(pruner.step(13));
  EXPECT_EQ(pruner.report().kept(), 255);
  const at::Tensor keep = find_mask(module->graph(), "fc1.weight");
  EXPECT_GE(scores.masked_select(keep).min().item<float>(), scores.masked_select(~keep).max().item<float>());
}

TEST(PrunerTest, MovementIsThatOfTheLossWhateverItIsScaledBy) {
  const auto run = [](double scale) {
    const auto module = two_layers();
    Pruner pruner(
        module,
        {.score = Score::movement, .amount = Amount::share(0.5, AmountOf::all), .schedule = {.begin = 3}});
    const at::Tensor x = torch::ones({4, 12});
    (module->forward(x).pow(2).sum() * scale).backward();
    pruner.after_backward(scale);
    at::Tensor broken = module->parameters()[0].mutable_grad();
    broken.fill_(INFINITY);
    pruner.after_backward(scale);  // a step that is skipped
    return pruner.movement()->scores()[0].clone();
  };
  EXPECT_GT(run(1).abs().max().item<float>(), 0);
  EXPECT_TRUE(run(1).equal(run(1024)));
}

TEST(PrunerTest, ACubicScheduleRunsOverridesToo) {
  const auto module = two_layers();
  Pruner pruner(module, {.amount = Amount::share(0.9, AmountOf::all),
                         .overrides = {{"fc2", Amount::share(0.4, AmountOf::all)}},
                         .schedule = {.kind = ScheduleKind::cubic, .begin = 0, .end = 10, .frequency = 5}});
  EXPECT_TRUE(pruner.step(0));
  EXPECT_EQ(pruner.report().layers[1].kept, 100);
  EXPECT_TRUE(pruner.step(5));
  EXPECT_EQ(pruner.report().layers[1].kept, 65);  // 1 - 0.4 (1 - 1 / 8)
  EXPECT_TRUE(pruner.step(10));
  EXPECT_EQ(pruner.report().layers[1].kept, 60);
  EXPECT_EQ(pruner.report().layers[0].kept, 24);
}

TEST(PrunerTest, SoftMovementKeepsWhatIsAboveItsThreshold) {
  const auto module = two_layers();
  Pruner pruner(
      module, {.score = Score::soft_movement, .schedule = {.begin = 6}, .movement_lr = 1.0, .penalty = 1.0});
  trained(pruner, module, 8);
  const auto keep = find_mask(module->graph(), "fc1.weight");
  ASSERT_TRUE(keep.defined());
  EXPECT_GT(keep.sum().item<int64_t>(), 0);
  EXPECT_LT(keep.sum().item<int64_t>(), 240);
  EXPECT_SAYS(error_of([&] { pruner.set_schedule({}); }), "soft_movement");
}

/// A run that may be cut off after `saved` steps and go on from its file.
struct TrainingRun {
  std::shared_ptr<GraphModule> module = two_layers();
  Pruner pruner{module,
                {.amount = Amount::share(0.9, AmountOf::all),
                 .schedule = {.kind = ScheduleKind::cubic, .begin = 1, .end = 9, .frequency = 2}}};
  amp::FusedOptimizer optimizer{module->parameters(),
                                amp::SgdRule{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1}};

  void train(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      if (pruner.step(step)) hold_masks(optimizer, *module, masks(module->graph()));
      optimizer.zero_grad();
      module->forward(torch::ones({4, 12})).pow(2).mean().backward();
      optimizer.step();
    }
  }
};

TEST(PrunerTest, AResumedRunGoesOnWithTheSameBits) {
  const ulp::test::TemporaryFolder folder;
  const auto path = folder.path() / "run.safetensors";
  TrainingRun whole, cut, resumed;
  whole.train(0, 14);
  cut.train(0, 6);
  io::CheckpointParts parts{.model = cut.module.get(), .optimizer = &cut.optimizer, .step = 6};
  io::save_checkpoint(path, parts);
  io::CheckpointParts into{.model = resumed.module.get(), .optimizer = &resumed.optimizer};
  io::load_checkpoint(path, into);
  EXPECT_EQ(resumed.pruner.report().kept(), cut.pruner.report().kept());
  EXPECT_LT(resumed.pruner.report().kept(), 340);
  hold_masks(resumed.optimizer, *resumed.module, masks(resumed.module->graph()));
  resumed.train(6, 14);
  for (const char* name : {"fc1.weight", "fc2.weight"}) {
    EXPECT_TRUE(same_bits(resumed.module->named_parameters()[name], whole.module->named_parameters()[name]));
    EXPECT_TRUE(
        torch::equal(find_mask(resumed.module->graph(), name), find_mask(whole.module->graph(), name)));
  }
  EXPECT_EQ(whole.pruner.report().kept(), 34);
}

}  // namespace
}  // namespace ulp::prune::tests
