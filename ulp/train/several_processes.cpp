// The room `distributed` for the training loop.
#include <utility>

#include "ulp/distributed/data_parallel.h"
#include "ulp/distributed/random_states.h"
#include "ulp/distributed/shard_files.h"
#include "ulp/distributed/sharded_optimizer.h"
#include "ulp/train/components.h"

namespace ulp::train {

namespace {

class Share final : public OptimizerShare {
 public:
  Share(distributed::DataParallel& parallel, const std::vector<amp::FusedGroup>& groups, uint64_t seed)
      : sharded_(parallel, groups, seed) {}

  amp::FusedOptimizer& optimizer() override { return sharded_.optimizer(); }
  void zero_grad() override { sharded_.zero_grad(); }
  amp::FusedStepResult step(amp::GradScaler* scaler, const amp::FusedStepOptions& options) override {
    return sharded_.step(scaler, options);
  }
  std::unique_ptr<amp::FusedOptimizer> gather() const override { return sharded_.gather(); }
  std::unique_ptr<amp::FusedOptimizer> whole() const override { return sharded_.whole(); }
  void scatter(const amp::FusedOptimizer& from) override { sharded_.scatter(from); }
  std::vector<std::string> save(const std::filesystem::path& path, int64_t step) const override {
    return distributed::save_shards(sharded_, path, step);
  }
  void load(const std::filesystem::path& path, const std::vector<std::string>& files) override {
    distributed::load_shards(sharded_, path, files);
  }

 private:
  distributed::ShardedOptimizer sharded_;
};

class Replica final : public ModelReplica {
 public:
  Replica(torch::nn::Module& model, std::shared_ptr<distributed::ProcessGroup> group,
          const distributed::DataParallelOptions& options)
      : parallel_(model, std::move(group), options) {}

  at::Tensor forward(const at::Tensor& inputs) override { return parallel_.forward({inputs}); }
  void unshard() override { parallel_.unshard(); }
  std::shared_ptr<void> no_sync() override {
    return std::make_shared<distributed::DataParallel::NoSync>(parallel_);
  }
  std::shared_ptr<void> whole_parameters() override {
    return std::make_shared<distributed::DataParallel::WholeParameters>(parallel_);
  }
  std::unique_ptr<OptimizerShare> share(const std::vector<amp::FusedGroup>& groups, uint64_t seed) override {
    return std::make_unique<Share>(parallel_, groups, seed);
  }

 private:
  distributed::DataParallel parallel_;
};

std::unique_ptr<ModelReplica> make_replica(torch::nn::Module& model,
                                           std::shared_ptr<distributed::ProcessGroup> group,
                                           const distributed::DataParallelOptions& options) {
  return std::make_unique<Replica>(model, std::move(group), options);
}

void load_whole(amp::FusedOptimizer& optimizer, const std::filesystem::path& path,
                const std::vector<std::string>& files) {
  distributed::load_shards(optimizer, path, files);
}

constexpr SeveralProcesses kSeveralProcesses{.replica = make_replica,
                                             .random_states = distributed::random_states,
                                             .restore_random_state = distributed::restore_random_state,
                                             .load_shards = load_whole,
                                             .remove_other_shards = distributed::remove_other_shards};
const Component<SeveralProcesses>::Provider kProcessesProvider(several_processes, kSeveralProcesses);

}  // namespace

}  // namespace ulp::train
