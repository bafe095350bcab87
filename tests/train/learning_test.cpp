// Streams that are labelled in part, the numbers of samples, and learners as tasks of the training loop.
#include "ulp/train/learning.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "support.h"
#include "ulp/distill/distiller.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/safetensors.h"

namespace {

using namespace ulp::train;
using ulp::distill::kUnlabelled;
using ulp::test::bars;
using ulp::test::run_to;

/// Sample i of `count`: inputs (2, of) filled with i, class i % 3.
std::unique_ptr<BatchStream> numbered(int64_t count, int64_t batch, uint64_t seed = 1, int64_t width = 2) {
  return sample_stream(
      count,
      [width](std::span<const int64_t> samples) {
        const at::Tensor i = torch::tensor(std::vector<int64_t>(samples.begin(), samples.end()));
        return TaskBatch{i.to(at::kFloat).unsqueeze(1).repeat({1, width}), i.remainder(3)};
      },
      StreamOptions::training(batch, seed, false));
}

TaskBatch next_of(BatchStream& stream) {
  auto batch = stream.next();
  if (!batch) batch = stream.next();
  return *std::move(batch);
}

TEST(SampleNumbers, AreThoseOfTheDataSetInEveryEpoch) {
  const auto data = bars(20);
  const auto images = image_stream(data, StreamOptions::training(6, 3, true));
  const auto rows = numbered(20, 6);
  std::vector<at::Tensor> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<at::Tensor> seen;
    while (const auto batch = images->next()) {
      EXPECT_TRUE(batch->targets.equal(data.labels.index_select(0, batch->samples)));
      seen.push_back(batch->samples);
    }
    epochs.push_back(torch::cat(seen));
    EXPECT_EQ(epochs.back().size(0), 18);
    EXPECT_EQ(std::get<0>(at::_unique(epochs.back())).size(0), 18);
    while (const auto batch = rows->next()) {
      EXPECT_TRUE(batch->inputs.select(1, 0).equal(batch->samples.to(at::kFloat)));
      EXPECT_TRUE(batch->targets.equal(batch->samples.remainder(3)));
    }
  }
  EXPECT_FALSE(epochs[0].equal(epochs[1]));
  const auto inorder = image_stream(data, {.batch = 8});
  EXPECT_TRUE(inorder->next()->samples.equal(at::arange(8)));
}

TEST(Relabelled, TargetsAreTheGivenOnes) {
  const at::Tensor targets = at::arange(10) * 7;
  targets[4] = kUnlabelled;
  const auto plain = numbered(10, 4), stream = relabelled(numbered(10, 4), targets);
  EXPECT_EQ(stream->samples(), 10);
  EXPECT_EQ(stream->batches(), 2);
  for (int i = 0; i < 7; ++i) {
    const auto expected = plain->next(), got = stream->next();
    ASSERT_EQ(expected.has_value(), got.has_value());
    EXPECT_EQ(plain->epoch(), stream->epoch());
    if (!got) continue;
    EXPECT_TRUE(got->inputs.equal(expected->inputs));
    EXPECT_TRUE(got->samples.equal(expected->samples));
    EXPECT_TRUE(got->targets.equal(targets.index_select(0, got->samples)));
  }
  EXPECT_ERROR(relabelled(numbered(10, 4), at::arange(9)),
               "expected a target for each of the 10 samples, got [9]");
  EXPECT_ERROR(relabelled(numbered(10, 4), torch::zeros({10})), "expected int64 targets, got Float");
}

TEST(LabelledShare, IsAsManyAsAskedAndAFunctionOfTheSeed) {
  for (const auto& [samples, share, count] : {std::tuple<int64_t, double, int64_t>{100, 0.1, 10},
                                              {100, 0.29, 29},
                                              {1000, 0.001, 1},
                                              {7, 1, 7},
                                              {50, 0.001, 1}})
    EXPECT_EQ(labelled_share(samples, share, 1).sum().item<int64_t>(), count) << share;
  EXPECT_TRUE(labelled_share(100, 0.3, 5).equal(labelled_share(100, 0.3, 5)));
  EXPECT_FALSE(labelled_share(100, 0.3, 5).equal(labelled_share(100, 0.3, 6)));
  // More labels are these and others.
  const at::Tensor few = labelled_share(100, 0.1, 5), many = labelled_share(100, 0.4, 5);
  EXPECT_TRUE((few & many).equal(few));
  torch::manual_seed(1);
  const at::Tensor before = torch::rand({1});
  torch::manual_seed(1);
  labelled_share(100, 0.5, 9);
  EXPECT_TRUE(torch::rand({1}).equal(before));
  EXPECT_ERROR(labelled_share(100, 0, 1), "a share in (0, 1], got 100 and 0");
  EXPECT_ERROR(labelled_share(100, 1.5, 1), "got 100 and 1.5");
  EXPECT_ERROR(labelled_share(0, 0.5, 1), "expected samples >= 1");
}

TEST(Joined, BatchesStandOneBehindTheOther) {
  const auto stream = joined(numbered(8, 4), numbered(6, 2, 2));
  EXPECT_EQ(stream->samples(), 14);
  EXPECT_EQ(stream->batches(), 2);
  std::vector<at::Tensor> unlabelled;
  for (int64_t i = 0; i < 6; ++i) {
    const TaskBatch batch = next_of(*stream);
    EXPECT_EQ(stream->epoch(), i / 2);
    ASSERT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{6, 2}));
    EXPECT_TRUE(batch.samples.slice(0, 0, 4).lt(8).all().item<bool>());
    EXPECT_TRUE(batch.targets.slice(0, 0, 4).equal(batch.samples.slice(0, 0, 4).remainder(3)));
    const at::Tensor other = batch.samples.slice(0, 4);
    EXPECT_TRUE(other.ge(8).all().item<bool>());
    EXPECT_TRUE(other.lt(14).all().item<bool>());
    EXPECT_TRUE(batch.targets.slice(0, 4).eq(kUnlabelled).all().item<bool>());
    EXPECT_TRUE(batch.inputs.slice(0, 4).select(1, 0).equal((other - 8).to(at::kFloat)));
    unlabelled.push_back(other);
  }
  // The other stream went through its own epochs: twice each sample.
  const auto counts = std::get<2>(at::_unique2(torch::cat(unlabelled), true, false, true));
  EXPECT_TRUE(counts.equal(torch::full({6}, 2, torch::kLong)));
  EXPECT_ERROR(joined(numbered(8, 4), numbered(6, 8)),
               "expected at least one batch of unlabelled data, got none of its 6");
  EXPECT_ERROR(joined(numbered(8, 4), numbered(8, 4, 1, 3))->next(),
               "expected samples of one shape, got [4, 2] and [4, 3]");
}

TEST(Joined, AStateIsTakenUpAgain) {
  const auto make = [] { return joined(relabelled(numbered(8, 4), at::arange(8)), numbered(6, 2, 2)); };
  for (int at = 0; at < 5; ++at) {
    const auto whole = make(), resumed = make();
    for (int i = 0; i < at; ++i) next_of(*whole);
    next_of(*resumed);
    resumed->restore(whole->state());
    for (int i = 0; i < 5; ++i) {
      const auto a = whole->next(), b = resumed->next();
      ASSERT_EQ(a.has_value(), b.has_value()) << at;
      if (a) {
        EXPECT_TRUE(a->samples.equal(b->samples) && a->targets.equal(b->targets)) << at;
      }
    }
  }
  const auto stream = make();
  for (const char* text : {"", "x", "[]", "{}", R"({"labelled": 1, "unlabelled": 2})"})
    EXPECT_THROW(stream->restore(text), ulp::FileError) << text;
  EXPECT_THROW(stream->restore(numbered(8, 4)->state()), ulp::FileError);
}

TEST(ExampleBatch, LeavesTheStreamWhereItWas) {
  const auto plain = numbered(8, 4), stream = numbered(8, 4);
  for (int i = 0; i < 4; ++i) {
    const TaskBatch example = example_batch(*stream);
    const auto expected = plain->next(), got = stream->next();
    ASSERT_EQ(expected.has_value(), got.has_value()) << i;
    if (got) {
      EXPECT_TRUE(got->samples.equal(expected->samples) && example.samples.equal(got->samples)) << i;
    }
  }
  EXPECT_ERROR(example_batch(*numbered(3, 4)), "expected at least one batch of data, got none");
}

TEST(LearnerSetup, FollowsTheLengthOfTheRun) {
  const auto stream = numbered(20, 4);
  const auto whole = distillation_setup(*stream, {.epochs = 3, .batch = 4});
  EXPECT_EQ(whole.samples, 20);
  EXPECT_EQ(whole.epoch_batches, 5);
  EXPECT_EQ(whole.batches, 15);
  EXPECT_EQ(whole.example.samples.size(0), 4);
  EXPECT_EQ(distillation_setup(*stream, {.batch = 4, .accumulate = 2, .max_steps = 7}).batches, 14);
}

/// A student that learns from a wider network on labels of a part of the data.
std::shared_ptr<ulp::distill::Distiller> distiller(BatchStream& batches, const TrainOptions& options,
                                                   uint64_t seed) {
  using namespace ulp::distill;
  const auto network = [](int64_t width, uint64_t with) {
    torch::manual_seed(with);
    torch::nn::Sequential layers(torch::nn::Flatten(), torch::nn::Linear(64, width), torch::nn::ReLU(),
                                 torch::nn::Dropout(0.1), torch::nn::Linear(width, 4));
    return ulp::capture(layers, {torch::randn({2, 1, 8, 8})});
  };
  const Recipe recipe =
      Recipe::from_terms({"kd:T=4,alpha=0.1", "mse:0.1>0@1", "crd:0.1,dim=4,negatives=9@1"});
  const auto student = network(6, 1);
  const auto teacher = graph_teacher(*network(12, 2), teacher_places(recipe));
  torch::manual_seed(seed);
  DistillerSetup setup = distillation_setup(batches, options);
  setup.student = student;
  setup.teacher = teacher;
  setup.recipe = recipe;
  return std::make_shared<Distiller>(std::move(setup));
}

std::unique_ptr<BatchStream> part_labelled(const ulp::io::ImageDataset& data) {
  auto stream = image_stream(data, StreamOptions::training(8, 1, true));
  at::Tensor targets = data.labels.clone();
  targets.masked_fill_(labelled_share(targets.size(0), 0.5, 1).logical_not(), kUnlabelled);
  return joined(relabelled(std::move(stream), targets),
                image_stream(data, StreamOptions::training(8, 2, true)));
}

Trainer trainer_of(const ulp::io::ImageDataset& data, const TrainOptions& options,
                   std::shared_ptr<ulp::distill::Distiller>& learner, uint64_t seed) {
  auto stream = part_labelled(data);
  learner = distiller(*stream, options, seed);
  torch::manual_seed(seed + 1);
  return Trainer(learning_task(learner, std::move(stream)), options);
}

TEST(LearningTask, AStoppedRunGivesTheBitsOfOneThatIsNot) {
  const ulp::test::TemporaryFolder folder;
  const auto data = bars();
  for (const TrainOptions& options : {TrainOptions{.batch = 8, .max_steps = 9},
                                      TrainOptions{.precision = "bf16", .batch = 8, .max_steps = 9},
                                      TrainOptions{.precision = "fp16",
                                      .growth_interval = 2,
                                      .batch = 8,
                                      .accumulate = 2,
                                      .max_steps = 4,
                                      .clip = 1}}) {
    const int64_t steps = options.max_steps, half = steps / 2;
    std::shared_ptr<ulp::distill::Distiller> whole, first, resumed;
    Trainer one = trainer_of(data, options, whole, 3);
    run_to(one, steps);
    Trainer two = trainer_of(data, options, first, 3);
    run_to(two, half);
    two.save(folder / "run.ckpt");
    Trainer three = trainer_of(data, options, resumed, 44);
    three.resume(folder / "run.ckpt");
    run_to(three, steps);
    const auto expected = ulp::io::named_state(*whole), got = ulp::io::named_state(*resumed);
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i].second.equal(expected[i].second)) << options.precision << ' ' << got[i].first;
  }
}

TEST(LearningTask, TheLossOfAStepIsTheLearners) {
  const auto data = bars();
  std::shared_ptr<ulp::distill::Distiller> learner;
  Trainer trainer = trainer_of(data, {.batch = 8, .max_steps = 3}, learner, 3);
  for (int i = 0; i < 3; ++i) {
    const StepInfo info = trainer.step();
    double sum = 0;
    for (const auto& value : learner->values()) sum += value.value * value.weight;
    EXPECT_NEAR(info.loss, sum, 1e-5);
  }
}

}  // namespace
