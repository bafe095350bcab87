#include "ulp/io/checkpoint.h"

#include <torch/torch.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "temp_folder.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/optimizer/schedule.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/base/safetensors.h"
#include "ulp/io/batch_loader.h"

namespace {

using ulp::amp::AdamWRule;
using ulp::amp::FusedOptimizer;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;
using ulp::amp::SgdRule;
using ulp::io::CheckpointParts;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden = 8) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    hidden_layer = register_module("hidden", torch::nn::Linear(4 * 6 * 6, hidden));
    out = register_module("out", torch::nn::Linear(hidden, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv(x))).flatten(1);
    return out(dropout(torch::relu(hidden_layer(x))));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear hidden_layer{nullptr}, out{nullptr};
};
TORCH_MODULE(Net);

ulp::io::ImageDataset data_set() {
  ulp::io::ImageDataset data;
  auto generator = at::detail::createCPUGenerator(77);
  data.images = torch::randint(0, 256, {50, 1, 8, 8}, generator, torch::kByte);
  data.labels = torch::randint(0, 3, {50}, generator, torch::kLong);
  data.num_classes = 3;
  return data;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

/// Everything that takes part in training; a fresh one has another seed for all of it.
struct Trainer {
  Trainer(const MakeOptimizer& make, uint64_t seed)
      : model((torch::manual_seed(seed), Net())),
        optimizer(make(model->parameters())),
        loader(data_set(), {.batch_size = 8, .random_flip = true, .max_shift = 1, .seed = seed}) {}

  void train(int steps) {
    while (steps > 0) {
      auto batch = loader.next();
      if (!batch) continue;
      optimizer->zero_grad();
      torch::cross_entropy_loss(model(batch->images), batch->labels).backward();
      optimizer->step();
      for (auto& group : optimizer->param_groups()) group.options().set_lr(group.options().get_lr() * 0.97);
      --steps;
      ++step;
    }
  }
  CheckpointParts parts() {
    return {.model = model.get(),
            .optimizer = optimizer.get(),
            .loader = loader.state(),
            .step = step,
            .epoch = loader.epoch(),
            .config = R"({"model":"net"})"};
  }
  void load(const std::filesystem::path& path) {
    CheckpointParts filled = parts();
    ulp::io::load_checkpoint(path, filled);
    loader.restore(filled.loader);
    step = filled.step;
  }

  Net model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  ulp::io::BatchLoader loader;
  int64_t step = 0;
};

struct Kind {
  const char* name;
  MakeOptimizer make;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

class Resume : public TempFolder, public ::testing::WithParamInterface<Kind> {};

TEST_P(Resume, AContinuedRunEqualsAnUnbrokenOneBitForBit) {
  Trainer unbroken(GetParam().make, 1);
  unbroken.train(9);
  ulp::io::save_checkpoint(at("c"), unbroken.parts());
  unbroken.train(11);
  ulp::io::save_checkpoint(at("end"), unbroken.parts());

  Trainer fresh(GetParam().make, 2);
  fresh.train(3);  // state of its own, which must vanish
  fresh.load(at("c"));
  EXPECT_EQ(fresh.step, 9);
  fresh.train(11);
  ulp::io::save_checkpoint(at("again"), fresh.parts());
  // One file holds weights, buffers, optimizer, random and loader state, so one comparison covers them all.
  EXPECT_TRUE(read("end") == read("again"));
  const auto drawn = torch::rand({4});
  fresh.load(at("again"));
  EXPECT_TRUE(torch::equal(drawn, torch::rand({4})));
}

TEST_P(Resume, ACheckpointBeforeTheFirstStepWorks) {
  Trainer first(GetParam().make, 1);
  ulp::io::save_checkpoint(at("c"), first.parts());
  Trainer second(GetParam().make, 2);
  second.train(2);
  second.load(at("c"));
  EXPECT_TRUE(second.optimizer->state().empty());
  ulp::io::save_checkpoint(at("again"), second.parts());
  EXPECT_TRUE(read("c") == read("again"));
}

template <typename Optimizer, typename Options>
Kind kind(const char* name, Options options) {
  return {name, [options](std::vector<torch::Tensor> parameters) {
            return std::make_unique<Optimizer>(std::move(parameters), options);
          }};
}

Kind fused(const char* name, ulp::amp::UpdateRule rule) {
  return {name, [rule](std::vector<torch::Tensor> parameters) {
            return std::make_unique<FusedOptimizer>(std::move(parameters), rule);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Resume,
    ::testing::Values(
        kind<torch::optim::SGD>("SgdPlain", torch::optim::SGDOptions(0.1)),
        kind<torch::optim::SGD>(
            "SgdNesterov", torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4).nesterov(true)),
        kind<torch::optim::Adam>("Adam", torch::optim::AdamOptions(1e-2)),
        kind<torch::optim::AdamW>("AdamWAmsgrad",
                                  torch::optim::AdamWOptions(1e-2).betas({0.8, 0.95}).amsgrad(true)),
        fused("FusedSgd", SgdRule{.lr = 0.1, .momentum = 0.9, .nesterov = true}),
        fused("FusedAdamW", AdamWRule{.lr = 1e-2, .beta1 = 0.8})),
    [](const auto& info) { return std::string(info.param.name); });

class Checkpoint : public TempFolder {
 protected:
  static std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  static std::unique_ptr<torch::optim::Optimizer> adam(std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.1));
  }
  void save_run() {
    Trainer run(sgd, 1);
    run.train(3);
    ulp::io::save_checkpoint(at("c"), run.parts());
  }
  /// The file again with its metadata changed.
  void change(const std::function<void(std::map<std::string, std::string>&)>& edit) {
    const ulp::SafetensorsFile file(at("c"));
    auto metadata = file.metadata();
    edit(metadata);
    ulp::write_safetensors(at("changed"), file.tensors(), metadata);
  }
};

TEST_F(Checkpoint, InfoNeedsNoModel) {
  save_run();
  const auto info = ulp::io::read_checkpoint_info(at("c"));
  EXPECT_EQ(info.step, 3);
  EXPECT_EQ(info.epoch, 0);
  EXPECT_EQ(info.config, R"({"model":"net"})");
  EXPECT_EQ(info.optimizer, "SGD");
}

TEST_F(Checkpoint, ScalerAndExtraTensorsComeBack) {
  const auto average = torch::randn({3});
  ulp::io::save_checkpoint(
      at("c"), {.scaler = {{"scale", 65536.0}, {"growth", 0.1}}, .extra = {{"average", average}}});
  CheckpointParts parts;
  ulp::io::load_checkpoint(at("c"), parts);
  EXPECT_EQ(parts.scaler, (std::map<std::string, double>{{"scale", 65536.0}, {"growth", 0.1}}));
  ASSERT_EQ(parts.extra.size(), 1u);
  EXPECT_EQ(parts.extra[0].first, "average");
  EXPECT_TRUE(torch::equal(parts.extra[0].second, average));
  EXPECT_THROW(ulp::io::save_checkpoint(at("c"), {.scaler = {{"scale", INFINITY}}}), ulp::Error);
}

TEST_F(Checkpoint, EveryDialectOfTheLossScaleAndTheScheduleContinue) {
  for (const char* spec : {"pytorch", "keras", "keras2", "apex", "deepspeed", "static:8", "none"}) {
    Net model;
    auto optimizer = sgd(model->parameters());
    ulp::amp::LearningRateSchedule schedule(*optimizer, ulp::amp::CosineRate{.total_steps = 7});
    ulp::amp::GradScaler scaler = ulp::amp::make_scaler(spec, {});
    for (const float factor : {1.0f, INFINITY, 1.0f, INFINITY, 1.0f}) {
      optimizer->zero_grad();
      scaler.scale(model->out->bias.sum() * factor).backward();
      schedule.advance(scaler.is_enabled() ? scaler.step(*optimizer) : ulp::amp::StepResult::stepped);
      scaler.update();
    }
    ulp::io::save_checkpoint(at("c"), {.scaler = scaler.state_dict(), .schedule = schedule.state_dict()});

    CheckpointParts parts;
    ulp::io::load_checkpoint(at("c"), parts);
    auto other = sgd({torch::zeros({1}).requires_grad_()});
    ulp::amp::LearningRateSchedule continued(*other, ulp::amp::CosineRate{.total_steps = 7});
    continued.load_state_dict(parts.schedule);
    EXPECT_EQ(continued.step(), scaler.is_enabled() ? 3 : 5);
    EXPECT_EQ(continued.state_dict(), schedule.state_dict());
    ulp::amp::GradScaler restored = ulp::amp::make_scaler(spec, {});
    restored.load_state_dict(parts.scaler);
    EXPECT_EQ(restored.state_dict(), scaler.state_dict()) << spec;
    EXPECT_EQ(restored.get_scale(), scaler.get_scale()) << spec;
  }
  EXPECT_THROW(ulp::io::save_checkpoint(at("c"), {.schedule = {{"step", NAN}}}), ulp::Error);
}

TEST_F(Checkpoint, AFileFromBeforeSchedulesWereSavedHasNone) {
  save_run();
  change([](auto& metadata) {
    metadata["ulp.run"] = R"({"step":3,"epoch":0,"scaler":{"scale":2.0},"loader":""})";
  });
  CheckpointParts parts{.schedule = {{"step", 1.0}}};
  ulp::io::load_checkpoint(at("changed"), parts);
  EXPECT_TRUE(parts.schedule.empty());
  EXPECT_EQ(parts.scaler.at("scale"), 2);
  change([](auto& metadata) {
    metadata["ulp.run"] = R"({"step":3,"epoch":0,"scaler":{},"schedule":[1],"loader":""})";
  });
  expect_file_error("not readable", [&] { ulp::io::load_checkpoint(at("changed"), parts); });
}

TEST_F(Checkpoint, LoadModelTakesTheModelOutOfACheckpoint) {
  save_run();
  Net model;
  EXPECT_TRUE(ulp::io::load_model(at("c"), *model).ok());
  EXPECT_TRUE(torch::equal(model->out->weight, *ulp::io::load_tensors(at("c")).find("model.out.weight")));
}

TEST_F(Checkpoint, OtherFilesAndNewerVersionsAreRefused) {
  Trainer run(sgd, 1);
  ulp::io::save_model(at("m"), *run.model);
  expect_file_error("not a checkpoint", [&] { run.load(at("m")); });
  expect_file_error("No such file", [&] { run.load(at("none")); });
  save_run();
  change([](auto& metadata) { metadata["ulp.checkpoint"] = "2"; });
  expect_file_error("a newer ulp is needed", [&] { run.load(at("changed")); });
  expect_file_error("a newer ulp is needed", [&] { ulp::io::read_checkpoint_info(at("changed")); });
  for (const char* version : {"", "x", "-1", "0", "99999999999999999999"}) {
    change([&](auto& metadata) { metadata["ulp.checkpoint"] = version; });
    expect_file_error("unreadable checkpoint version", [&] { run.load(at("changed")); });
  }
}

TEST_F(Checkpoint, DamagedMetadataIsRefusedAndChangesNothing) {
  save_run();
  Trainer run(sgd, 5);
  run.train(1);
  ulp::io::save_checkpoint(at("before"), run.parts());
  const char* optimizers[] = {"",
                              "[]",
                              "{}",
                              R"({"kind":"SGD"})",
                              R"({"kind":"SGD","groups":[]})",
                              R"({"kind":"SGD","groups":{"a":1}})",
                              R"({"kind":"SGD","groups":[{"states":[]}]})",
                              R"({"kind":"SGD","groups":[{"states":[1,2,3,4,5,6,7,8],"options":{}}]})"};
  for (const char* text : optimizers) {
    change([&](auto& metadata) { metadata["ulp.optimizer"] = text; });
    EXPECT_THROW(run.load(at("changed")), ulp::FileError) << text;
  }
  for (const char* text :
       {"", "[]", "{}", R"({"step":"x"})", R"({"step":1,"epoch":0,"scaler":[],"loader":""})"}) {
    change([&](auto& metadata) { metadata["ulp.run"] = text; });
    EXPECT_THROW(run.load(at("changed")), ulp::FileError) << text;
  }
  change([](auto& metadata) { metadata.erase("ulp.optimizer"); });
  expect_file_error("no optimizer state", [&] { run.load(at("changed")); });
  ulp::io::save_checkpoint(at("after"), run.parts());
  EXPECT_TRUE(read("before") == read("after"));
}

TEST_F(Checkpoint, ADamagedRandomStateIsRefused) {
  save_run();
  Trainer run(sgd, 5);
  auto file = ulp::io::load_tensors(at("c"));
  for (auto& [name, tensor] : file.tensors) {
    if (name == "random.cpu") tensor = tensor.slice(0, 0, 100).clone();
  }
  ulp::io::save_tensors(at("changed"), file.tensors, file.metadata);
  expect_file_error("random state", [&] { run.load(at("changed")); });
}

TEST_F(Checkpoint, AnotherModelOrOptimizerIsRefusedByName) {
  save_run();
  Trainer other_kind(adam, 1);
  expect_file_error("kind Adam", [&] { other_kind.load(at("c")); });

  Net wider(9);
  CheckpointParts parts{.model = wider.get()};
  expect_file_error("hidden.weight: (9, 144)", [&] { ulp::io::load_checkpoint(at("c"), parts); });

  auto optimizer = sgd(wider->parameters());
  parts = {.optimizer = optimizer.get()};
  expect_file_error("expected shape [9, 144]", [&] { ulp::io::load_checkpoint(at("c"), parts); });
  optimizer = sgd({wider->conv->weight});
  parts.optimizer = optimizer.get();
  expect_file_error("expected 1 parameters", [&] { ulp::io::load_checkpoint(at("c"), parts); });
}

/// A bf16 parameter that follows gradients of its own, with weights kept in one of the ways.
struct LowPrecision : torch::nn::Module {
  LowPrecision(MasterWeights masters, uint64_t seed, MomentFormat moments = MomentFormat::fp32)
      : weight(register_parameter("weight", torch::ones({37, 5}, torch::kBFloat16))),
        optimizer({weight}, AdamWRule{}, masters, seed, moments) {}
  void run_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
      weight.mutable_grad() = torch::randn({37, 5}, generator).to(torch::kBFloat16);
      optimizer.step();
    }
  }
  torch::Tensor weight;
  FusedOptimizer optimizer;
};

TEST_F(Checkpoint, MastersOfEveryKindResumeBitForBit) {
  for (auto masters :
       {MasterWeights::fp32, MasterWeights::split, MasterWeights::stochastic, MasterWeights::kahan}) {
    const auto moments = masters == MasterWeights::split ? MomentFormat::bf16 : MomentFormat::fp32;
    LowPrecision unbroken(masters, 3, moments), resumed(masters, 4, moments);
    CheckpointParts parts{.model = &unbroken, .optimizer = &unbroken.optimizer};
    unbroken.run_steps(0, 5);
    ulp::io::save_checkpoint(at("c"), parts);
    unbroken.run_steps(5, 10);
    parts = {.model = &resumed, .optimizer = &resumed.optimizer};
    ulp::io::load_checkpoint(at("c"), parts);
    resumed.run_steps(5, 10);
    EXPECT_TRUE(torch::equal(unbroken.weight, resumed.weight)) << to_string(masters);
    EXPECT_TRUE(torch::equal(unbroken.optimizer.master_weight(unbroken.weight),
                             resumed.optimizer.master_weight(resumed.weight)))
        << to_string(masters);
  }
}

TEST_F(Checkpoint, MastersAndRulesOfAnotherKindAreRefused) {
  LowPrecision split(MasterWeights::split, 1), kahan(MasterWeights::kahan, 1);
  split.run_steps(0, 1);
  ulp::io::save_checkpoint(at("c"), {.optimizer = &split.optimizer});
  CheckpointParts parts{.optimizer = &kahan.optimizer};
  expect_file_error("expected masters 'kahan'", [&] { ulp::io::load_checkpoint(at("c"), parts); });
  LowPrecision narrow(MasterWeights::split, 1, MomentFormat::bf16);
  parts.optimizer = &narrow.optimizer;
  expect_file_error("expected moments 'bf16'", [&] { ulp::io::load_checkpoint(at("c"), parts); });
  FusedOptimizer sgd({split.weight}, SgdRule{}, MasterWeights::split);
  parts.optimizer = &sgd;
  expect_file_error("expected rule 'SGD'", [&] { ulp::io::load_checkpoint(at("c"), parts); });

  // A master whose type is not what the kind says must not be read as one.
  auto file = ulp::io::load_tensors(at("c"));
  for (auto& [name, tensor] : file.tensors) {
    if (name == "optimizer.0.master") tensor = tensor.to(torch::kByte);
  }
  ulp::io::save_tensors(at("changed"), file.tensors, file.metadata);
  parts.optimizer = &split.optimizer;
  expect_file_error("expected Short for 'optimizer.0.master'",
                    [&] { ulp::io::load_checkpoint(at("changed"), parts); });
}

/// An AdamW run's checkpoint, and the same run with changes to its JSON and its tensors.
class DamagedState : public Checkpoint {
 protected:
  static std::unique_ptr<torch::optim::Optimizer> adamw(std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(0.1));
  }
  static std::unique_ptr<torch::optim::Optimizer> fused(std::vector<torch::Tensor> parameters) {
    return std::make_unique<FusedOptimizer>(std::move(parameters), AdamWRule{});
  }
  void expect_refused(const MakeOptimizer& make, const std::string& key, const std::string& pointer,
                      const nlohmann::json& value, const std::string& says) {
    SCOPED_TRACE(pointer + " = " + value.dump());
    Trainer run(make, 1);
    run.train(2);
    ulp::io::save_checkpoint(at("c"), run.parts());
    change([&](auto& metadata) {
      auto json = nlohmann::json::parse(metadata.at(key));
      json.at(nlohmann::json::json_pointer(pointer)) = value;
      metadata[key] = json.dump();
    });
    expect_file_error(says, [&] { run.load(at("changed")); });
    ulp::io::save_checkpoint(at("after"), run.parts());
    EXPECT_TRUE(read("c") == read("after")) << "a refusal changed the run";
  }
};

TEST_F(DamagedState, HyperparametersThatCannotBeAreRefusedByName) {
  const auto refused = [&](const char* name, const nlohmann::json& value, const char* says) {
    for (const MakeOptimizer& make : {MakeOptimizer(adamw), MakeOptimizer(fused)})
      expect_refused(make, "ulp.optimizer", std::string("/groups/0/options/") + name, value, says);
  };
  refused("beta1", -0.9, "expected beta1 >= 0, got -0.9 in group 0");
  refused("beta2", 1.0, "expected beta2 in [0, 1), got 1 in group 0");
  refused("lr", 1e300, "expected lr to be finite in fp32, got 1e+300");
  refused("lr", "0.1", "expected a number in 'groups[0].lr', got \"0.1\"");
  refused("eps", true, "expected a number in 'groups[0].eps', got true");
  refused("weight_decay", -1, "expected weight_decay >= 0, got -1");
  expect_refused(sgd, "ulp.optimizer", "/groups/0/options/momentum", -0.5, "expected momentum >= 0");
  expect_refused(sgd, "ulp.optimizer", "/groups/0/options/nesterov", 1, "expected true or false");
}

TEST_F(DamagedState, CountsThatCannotBeAreRefusedByName) {
  for (const MakeOptimizer& make : {MakeOptimizer(adamw), MakeOptimizer(fused)}) {
    const auto refused = [&](const nlohmann::json& step, const char* says) {
      expect_refused(make, "ulp.optimizer", "/groups/0/states/1/step", step, says);
    };
    refused(-5, "'optimizer.1.step', got -5");
    refused(0, "'optimizer.1.step', got 0");
    refused(1.5, "expected a whole number in 'optimizer.1.step', got 1.5");
    refused(std::numeric_limits<int64_t>::max(), "'optimizer.1.step', got 9223372036854775807");
  }
  expect_refused(fused, "ulp.optimizer", "/seed", -1, "expected a whole number >= 0 in 'seed', got -1");
  expect_refused(sgd, "ulp.run", "/epoch", -3, "'epoch', got -3");
  expect_refused(sgd, "ulp.run", "/step", -1, "'step', got -1");
  expect_refused(sgd, "ulp.run", "/step", 2.5, "expected a whole number in 'step', got 2.5");
  change([](auto& metadata) {
    metadata["ulp.run"] = R"({"step":1,"epoch":-3,"scaler":{},"schedule":{},"loader":""})";
  });
  expect_file_error("'epoch', got -3", [&] { ulp::io::read_checkpoint_info(at("changed")); });
  EXPECT_THROW(ulp::io::save_checkpoint(at("x"), {.step = -1}), ulp::Error);
  EXPECT_THROW(ulp::io::save_checkpoint(at("x"), {.epoch = -1}), ulp::Error);
}

TEST_F(DamagedState, BuffersOfAnotherTypeAreRefusedByName) {
  const auto refused = [&](const MakeOptimizer& make, const std::string& name, bool drop) {
    SCOPED_TRACE(name);
    Trainer run(make, 1);
    run.train(1);
    ulp::io::save_checkpoint(at("c"), run.parts());
    auto file = ulp::io::load_tensors(at("c"));
    if (drop) std::erase_if(file.tensors, [&](const auto& entry) { return entry.first == name; });
    for (auto& [key, tensor] : file.tensors) {
      if (key == name) tensor = tensor.to(torch::kDouble);
    }
    ulp::io::save_tensors(at("changed"), file.tensors, file.metadata);
    expect_file_error("'" + name + "'", [&] { run.load(at("changed")); });
  };
  for (const bool drop : {false, true}) {
    refused(sgd, "optimizer.0.momentum_buffer", drop);
    refused(adam, "optimizer.2.exp_avg", drop);
    refused(adamw, "optimizer.2.exp_avg_sq", drop);
  }
}

/// Weights that were made bf16 after steps in fp32: the moments stay fp32, and so does what is loaded.
TEST_F(Checkpoint, MomentsOfFp32ServeParametersOf16Bits) {
  const auto weight = torch::ones({8}, torch::requires_grad());
  torch::optim::AdamW optimizer({weight});
  const auto step = [&] {
    weight.mutable_grad() = torch::full_like(weight, 0.5);
    optimizer.step();
  };
  step();
  weight.set_data(weight.to(at::kBFloat16));
  ulp::io::save_checkpoint(at("c"), {.optimizer = &optimizer});
  const auto held = [&] {
    return static_cast<torch::optim::AdamWParamState&>(*optimizer.state().begin()->second).exp_avg();
  };
  const at::Tensor before = held().clone();
  held().zero_();
  CheckpointParts parts{.optimizer = &optimizer};
  ulp::io::load_checkpoint(at("c"), parts);
  EXPECT_EQ(held().scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::equal(held(), before));
}

TEST_F(Checkpoint, OptionsThatCouldNotBeLoadedAreNotSaved) {
  Net model;
  auto optimizer = sgd(model->parameters());
  optimizer->param_groups()[0].options().set_lr(-1);
  EXPECT_ERROR(ulp::io::save_checkpoint(at("c"), {.optimizer = optimizer.get()}),
               "lr >= 0, got -1 in group 0");
  EXPECT_FALSE(std::filesystem::exists(at("c")));
}

TEST_F(Checkpoint, OtherOptimizersAreAnError) {
  Net model;
  torch::optim::RMSprop optimizer(model->parameters());
  EXPECT_THROW(ulp::io::save_checkpoint(at("c"), {.optimizer = &optimizer}), ulp::Error);
  EXPECT_FALSE(std::filesystem::exists(at("c")));
}

TEST_F(Checkpoint, ACheckpointWithoutRandomStateCanBeLoadedWithoutIt) {
  ulp::io::save_checkpoint(at("c"), {.step = 4, .random_state = false});
  CheckpointParts parts{.random_state = false};
  ulp::io::load_checkpoint(at("c"), parts);
  EXPECT_EQ(parts.step, 4);
  parts.random_state = true;
  expect_file_error("no random state", [&] { ulp::io::load_checkpoint(at("c"), parts); });
}

}  // namespace
