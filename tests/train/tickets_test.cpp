// Rounds of pruning with rewinding.
#include "ulp/train/tickets.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/safetensors.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::train {
namespace {

constexpr int64_t kSamples = 96;

/// Points in the plane by their quadrant.
TaskBatch gather_points(std::span<const int64_t> samples) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (const int64_t sample : samples) {
    const auto angle = static_cast<float>(sample) * 0.7F;
    x.insert(x.end(), {std::cos(angle), std::sin(angle)});
    y.push_back((x[x.size() - 2] > 0 ? 1 : 0) + (x.back() > 0 ? 2 : 0));
  }
  const auto count = static_cast<int64_t>(samples.size());
  return {torch::tensor(x).view({count, 2}), torch::tensor(y)};
}

std::unique_ptr<BatchStream> points(uint64_t seed) {
  return sample_stream(kSamples, gather_points, {.batch = 16, .shuffle = true, .seed = seed});
}

double share_right(graph::GraphModule& model) {
  std::vector<int64_t> all(kSamples);
  std::iota(all.begin(), all.end(), 0);
  const TaskBatch batch = gather_points(all);
  return model.forward(batch.inputs).argmax(1).eq(batch.targets).to(torch::kDouble).mean().item<double>();
}

TicketTask make_task() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 20), torch::nn::ReLU(), torch::nn::Linear(20, 4));
  return {.model = capture(net, {torch::randn({3, 2})}),
          .batches = points,
          .evaluate = share_right,
          .description = "quadrants",
          .reinitialize = [](graph::GraphModule& model) {
            torch::manual_seed(9);
            const torch::NoGradGuard no_grad;
            for (at::Tensor& parameter : model.parameters()) parameter.uniform_(-0.5, 0.5);
          }};
}

TicketOptions options(Rewind rewind) {
  TicketOptions made{.rounds = 3, .rewind = rewind};
  made.recipe.amount = prune::Amount::share(0.2);
  made.training.epochs = 4;
  made.training.batch = 16;
  made.training.learning_rate = 0.1;
  return made;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

TEST(Tickets, EachRoundPrunesAShareOfWhatRemains) {
  for (const Rewind rewind :
       {Rewind::weights, Rewind::learning_rate, Rewind::fine_tune, Rewind::reinitialize}) {
    const test::TemporaryFolder folder;
    const TicketTask task = make_task();
    const std::vector<TicketRound> rounds = find_tickets(task, options(rewind), folder.path());
    ASSERT_EQ(rounds.size(), 4U);
    const int64_t expected[] = {120, 96, 77, 62};  // round(0.2 n) less each time
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(rounds[r].round, static_cast<int64_t>(r));
      EXPECT_DOUBLE_EQ(rounds[r].kept, static_cast<double>(expected[r]) / 120);
    }
    EXPECT_GT(rounds[0].score, 0.7);
    for (const prune::ParameterMask& mask : prune::masks(task.model->graph()))
      EXPECT_EQ(mask.elements, mask.parameter == "0.weight" ? 40 : 80);
  }
}

TEST(Tickets, RewindingGivesTheBitsOfTheStep) {
  for (const int64_t step : {0, 7, 24}) {
    const test::TemporaryFolder folder;
    TicketOptions wanted = options(Rewind::weights);
    wanted.rounds = 1;
    wanted.step = step;
    wanted.training.schedule = amp::Schedule::constant;
    wanted.training.warmup = 0;
    const TicketTask task = make_task();
    // The state of the first step after rewinding, seen before it.
    std::vector<at::Tensor> rewound;
    find_tickets(task, wanted, folder.path(), [&](int64_t round, const StepInfo& info, int64_t) {
      if (round == 0 && info.step + 1 == step)
        for (const at::Tensor& parameter : task.model->parameters())
          rewound.push_back(parameter.detach().clone());
    });
    if (step != 24)
      continue;  // at the end of training nothing is left to train: what was rewound is the result
    const std::vector<at::Tensor> after = task.model->parameters();
    ASSERT_EQ(rewound.size(), after.size());
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(rewound[i].equal(after[i])) << i;
    EXPECT_LT(prune::masks(task.model->graph())[0].kept + prune::masks(task.model->graph())[1].kept, 120);
  }
}

TEST(Tickets, PrunedWeightsStayWhereTheyAre) {
  const test::TemporaryFolder folder;
  const TicketTask task = make_task();
  TicketOptions wanted = options(Rewind::learning_rate);
  wanted.rounds = 1;
  wanted.training.weight_decay = 0.01;
  at::Tensor before;
  find_tickets(task, wanted, folder.path(), [&](int64_t round, const StepInfo& info, int64_t) {
    if (round == 1 && info.step == 0) before = task.model->named_parameters()["2.weight"].detach().clone();
  });
  const at::Tensor now = task.model->named_parameters()["2.weight"];
  const at::Tensor pruned = ~prune::find_mask(task.model->graph(), "2.weight");
  EXPECT_GT(pruned.sum().item<int64_t>(), 0);
  EXPECT_TRUE(now.masked_select(pruned).equal(before.masked_select(pruned)));
  EXPECT_FALSE(now.equal(before));
}

struct Stop {};

TEST(Tickets, WhatWasEndedGoesOnWithTheSameBytes) {
  for (const Rewind rewind : {Rewind::weights, Rewind::learning_rate, Rewind::reinitialize}) {
    const test::TemporaryFolder whole, parts;
    TicketOptions wanted = options(rewind);
    wanted.step = 5;
    const auto expected = find_tickets(make_task(), wanted, whole.path());
    for (const auto& [round, step] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {0, 13}, {1, 8}, {2, 20}}) {
      EXPECT_THROW(find_tickets(make_task(), wanted, parts.path(),
                                [&, r = round, s = step](int64_t at, const StepInfo& info, int64_t) {
                                  if (at == r && info.step == s) throw Stop();
                                }),
                   Stop);
    }
    EXPECT_EQ(find_tickets(make_task(), wanted, parts.path()), expected);
    for (int64_t round = 0; round <= 3; ++round) {
      const std::string name = "round_" + std::to_string(round) + ".safetensors";
      EXPECT_EQ(bytes_of(whole.path() / name), bytes_of(parts.path() / name)) << name;
    }
  }
}

/// With batch norm, whose statistics scoring must not move, and dropout, which draws random numbers.
TicketTask make_noisy_task() {
  TicketTask task = make_task();
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 20), torch::nn::BatchNorm1d(20), torch::nn::ReLU(),
                            torch::nn::Dropout(0.2), torch::nn::Linear(20, 4));
  task.model = capture(net, {torch::randn({3, 2})});
  task.inputs.loss = [](graph::GraphModule& model, int64_t) {
    const int64_t samples[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const TaskBatch batch = gather_points(samples);
    return cross_entropy(model.forward(batch.inputs), batch);
  };
  task.reinitialize = [](graph::GraphModule& model) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.parameters()) parameter.uniform_(-0.5, 0.5);
  };
  return task;
}

TEST(Tickets, NoiseAndStatisticsGoOnWithTheSameBytes) {
  for (const Rewind rewind :
       {Rewind::weights, Rewind::learning_rate, Rewind::fine_tune, Rewind::reinitialize}) {
    SCOPED_TRACE(enum_name(rewind));
    const test::TemporaryFolder whole, parts;
    TicketOptions wanted = options(rewind);
    wanted.rounds = 2;
    wanted.recipe.score = prune::Score::taylor;
    const auto expected = find_tickets(make_noisy_task(), wanted, whole.path());
    for (const auto& [round, step] : std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {2, 9}}) {
      torch::manual_seed(77);  // whatever happened in the process before
      EXPECT_THROW(find_tickets(make_noisy_task(), wanted, parts.path(),
                                [&, r = round, s = step](int64_t at, const StepInfo& info, int64_t) {
                                  if (at == r && info.step == s) throw Stop();
                                }),
                   Stop);
    }
    torch::manual_seed(78);
    EXPECT_EQ(find_tickets(make_noisy_task(), wanted, parts.path()), expected);
    for (int64_t round = 0; round <= 2; ++round) {
      const std::string name = "round_" + std::to_string(round) + ".safetensors";
      EXPECT_EQ(bytes_of(whole.path() / name), bytes_of(parts.path() / name)) << name;
    }
  }
}

TEST(Tickets, WhatCannotBeIsFoundBeforeTheFirstRound) {
  const test::TemporaryFolder folder;
  const auto error = [&](const TicketOptions& wanted) {
    return ulp::test::error_of([&] { find_tickets(make_task(), wanted, folder.path()); });
  };
  TicketOptions wanted = options(Rewind::weights);
  wanted.step = 1000;
  EXPECT_SAYS(error(wanted), "a step of at most 24 to rewind to, got 1000");
  wanted = options(Rewind::learning_rate);
  wanted.recipe.score = prune::Score::taylor;
  EXPECT_SAYS(error(wanted), "ScoreInputs::loss");
  wanted = options(Rewind::learning_rate);
  wanted.recipe.amount.of = prune::AmountOf::all;
  EXPECT_SAYS(error(wanted), "what remains for several rounds");
  wanted = options(Rewind::learning_rate);
  wanted.recipe.skip = {"nothing"};
  EXPECT_SAYS(error(wanted), "which matches none");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Tickets, ABadScoreInAFileIsAnError) {
  const test::TemporaryFolder folder;
  TicketOptions wanted = options(Rewind::learning_rate);
  wanted.rounds = 0;
  find_tickets(make_task(), wanted, folder.path());
  const std::filesystem::path file = folder.path() / "round_0.safetensors";
  io::TensorFile stored = io::load_tensors(file);
  stored.metadata["ulp.score"] = "9e999x";
  io::save_tensors(file, stored.tensors, stored.metadata);
  EXPECT_SAYS(ulp::test::error_of([&] { find_tickets(make_task(), wanted, folder.path()); }),
              "expected a score");
}

TEST(Tickets, RoundsOfAnotherRunAreRefused) {
  const test::TemporaryFolder folder;
  TicketOptions wanted = options(Rewind::learning_rate);
  wanted.rounds = 0;
  find_tickets(make_task(), wanted, folder.path());
  wanted.training.learning_rate = 0.2;
  EXPECT_SAYS(ulp::test::error_of([&] { find_tickets(make_task(), wanted, folder.path()); }), "another one");
  TicketTask task = make_task();
  task.reinitialize = {};
  EXPECT_SAYS(ulp::test::error_of([&] { find_tickets(task, options(Rewind::reinitialize), folder.path()); }),
              "reinitialize");
}

TEST(Tickets, NoBarrierWhereOrderDoesNotMatter) {
  const test::TemporaryFolder folder;
  TicketOptions wanted = options(Rewind::weights);
  wanted.step = 24;  // the end: both runs are one network
  const TicketTask task = make_task();
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : task.model->parameters()) before.push_back(parameter.detach().clone());
  EXPECT_EQ(linear_barrier(task, wanted, folder.path()), 0);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(task.model->parameters()[i].equal(before[i]));
  wanted.step = 0;
  const double barrier = linear_barrier(make_task(), wanted, folder.path(), 4);
  EXPECT_GE(barrier, 0);
  EXPECT_LE(barrier, 1);
}

}  // namespace
}  // namespace ulp::train
