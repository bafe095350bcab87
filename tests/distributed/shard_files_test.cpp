// Checkpoints in shares: written by some number of ranks, read by another, whole or not at all.
#include "ulp/distributed/shard_files.h"

#include <torch/torch.h>

#include "error_of.h"
#include "in_ranks.h"
#include "ulp/io/safetensors.h"

namespace {

using namespace ulp;
using distributed::DataParallel;
using distributed::ShardedOptimizer;
using distributed::ZeroStage;
namespace fs = std::filesystem;
namespace nn = torch::nn;

nn::Sequential make_shared_net() {
  torch::manual_seed(8);
  return nn::Sequential(nn::Linear(31, 45), nn::Tanh(), nn::Linear(45, 7));
}

std::vector<amp::FusedGroup> shared_groups(nn::Sequential& net) {
  return {{net->parameters(), amp::AdamWRule{.lr = 0.01}, amp::MasterWeights::fp32, amp::MomentFormat::bf16}};
}

void step_shared(nn::Sequential& net, ShardedOptimizer& optimizer, int number) {
  torch::manual_seed(number);
  const at::Tensor x =
      torch::randn({4, 31});  // the same on every rank, so that any number of them trains alike
  optimizer.zero_grad();
  net->forward(x).square().mean().backward();
  optimizer.step(nullptr);
}

/// Files of the folder whose names have this part.
std::vector<std::string> files_with(const fs::path& folder, const std::string& part) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(part) != std::string::npos)
      found.push_back(entry.path().filename().string());
  return found;
}

TEST_IN_RANKS(3, ShardFiles, AreReadByAnotherNumberOfRanksAndByASingleProcess) {
  const auto group = test::rank_group();
  const fs::path path = test::rank_folder() / "run.ckpt";
  nn::Sequential net = make_shared_net();
  DataParallel parallel(*net, group,
                        {.zero = ZeroStage::states, .bucket_mib = 0.002, .first_bucket_mib = 0.001});
  ShardedOptimizer optimizer(parallel, shared_groups(net), 4);
  for (int i = 0; i < 3; ++i) step_shared(net, optimizer, i);
  const auto names = distributed::save_shards(optimizer, path, /*step=*/3);
  EXPECT_EQ(names.size(), 3u);
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(test::rank_folder() / name)) << name;
  const auto at_save = net->parameters();
  std::vector<at::Tensor> kept;
  for (const at::Tensor& parameter : at_save) kept.push_back(parameter.detach().clone());
  step_shared(net, optimizer, 3);

  // A group of one in each process, whose share is everything.
  nn::Sequential alone = make_shared_net();
  for (size_t i = 0; i < kept.size(); ++i) alone->parameters()[i].set_data(kept[i].clone());
  DataParallel own(*alone, distributed::single_process(), {.zero = ZeroStage::gradients});
  ShardedOptimizer other(own, shared_groups(alone), 4);
  distributed::load_shards(other, path, names);
  step_shared(alone, other, 3);

  nn::Sequential whole = make_shared_net();
  for (size_t i = 0; i < kept.size(); ++i) whole->parameters()[i].set_data(kept[i].clone());
  amp::FusedOptimizer fused(shared_groups(whole), 4);
  distributed::load_shards(fused, path, names);
  torch::manual_seed(3);
  whole->forward(torch::randn({4, 31})).square().mean().backward();
  amp::fused_step(fused, nullptr);
  for (size_t i = 0; i < kept.size(); ++i) {
    // The mean of three equal gradients is off by roundings.
    EXPECT_TRUE(torch::allclose(net->parameters()[i], alone->parameters()[i], 1e-4, 1e-5)) << i;
    EXPECT_TRUE(torch::equal(alone->parameters()[i], whole->parameters()[i])) << i;
  }
  group->barrier();
}

/// Shares of a group of one, in a folder of their own.
struct SharedRun {
  test::TemporaryFolder folder;
  fs::path path = folder / "run.ckpt";
  nn::Sequential net = make_shared_net();
  DataParallel parallel{*net, distributed::single_process(), {.zero = ZeroStage::states}};
  ShardedOptimizer optimizer{parallel, shared_groups(net), 4};
};

TEST(ShardFiles, OfOtherStepsAreRemovedAfterwards) {
  SharedRun run;
  step_shared(run.net, run.optimizer, 0);
  const auto first = distributed::save_shards(run.optimizer, run.path, 1);
  const auto second = distributed::save_shards(run.optimizer, run.path, 2);
  EXPECT_EQ(files_with(run.folder.path(), ".shard-").size(), 2u)
      << "both are there until the checkpoint is written";
  distributed::remove_other_shards(run.path, second);
  EXPECT_EQ(files_with(run.folder.path(), ".shard-"), second);
  distributed::remove_other_shards(run.path, {});
  EXPECT_TRUE(files_with(run.folder.path(), ".shard-").empty());
}

TEST(ShardFiles, RefuseWhatIsMissingDamagedOrOfAnotherRun) {
  SharedRun run;
  step_shared(run.net, run.optimizer, 0);
  const auto names = distributed::save_shards(run.optimizer, run.path, 1);
  const auto load = [&](const std::vector<std::string>& files) {
    distributed::load_shards(run.optimizer, run.path, files);
  };
  EXPECT_ERROR(load({"nothing"}), "nothing");
  EXPECT_ERROR(load({"../run.ckpt"}), "expected names of files beside");
  const auto write = [&](const io::NamedTensors& tensors, const io::Metadata& metadata) {
    io::save_tensors(run.folder / "other", tensors, metadata);
  };
  const io::Metadata share = {{"ulp.shard", "1"}};
  write({{"0@0.exp_avg", torch::ones({4}, at::kBFloat16)}}, {});
  EXPECT_ERROR(load({"other"}), "is no share of a checkpoint of version 1");
  write({{"zero.exp_avg", torch::ones({4}, at::kBFloat16)}}, share);
  EXPECT_ERROR(load({"other"}), "expected names of pieces in");
  write({{"0@0.velocity", torch::ones({4}, at::kBFloat16)}}, share);
  EXPECT_ERROR(load({"other"}), "expected buffers of optimizers in");
  write({{"0@0.exp_avg", torch::ones({4})}}, share);
  EXPECT_ERROR(load({"other"}), "expected a run with the same optimizer, masters and moments");
  write({{"0@0.step", torch::zeros({1}, at::kLong)}}, share);
  EXPECT_ERROR(load({"other"}), "expected counts of steps > 0");
  write({{"0@0.exp_avg", torch::ones({4}, at::kBFloat16)}}, share);
  EXPECT_ERROR(load({"other"}), "got 4 of 1395 elements of exp_avg");
}

}  // namespace
