// Runs with parts of a model that are saved as a whole and go on from there, in 2 processes.
#include "ulp/distributed/model_parts.h"

#include <torch/torch.h>

#include "error_of.h"
#include "even_stages.h"
#include "in_ranks.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/distributed/pipeline.h"
#include "ulp/distributed/tensor_parallel.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/checkpoint.h"

namespace {

using namespace ulp;
using distributed::ModelParts;
namespace nn = torch::nn;

/// Layers of which some can be split, a batch norm, and a weight that the first and the last layer read.
struct PartedNetImpl : nn::Module {
  PartedNetImpl() {
    first = register_module("first", nn::Linear(6, 9));
    norm = register_module("norm", nn::BatchNorm1d(9));
    up = register_module("up", nn::Linear(9, 471));
    down = register_module("down", nn::Linear(471, 9));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norm(first(x));
    y = y + down(torch::gelu(up(y)));
    return torch::linear(y, first->weight.t());
  }
  nn::Linear first{nullptr}, up{nullptr}, down{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(PartedNet);

std::shared_ptr<graph::GraphModule> parted_net(uint64_t seed) {
  torch::manual_seed(seed);
  PartedNet net;
  const auto captured = ulp::capture(net, {torch::randn({4, 6})});
  amp::apply_precision(*captured, amp::find_precision("O3:bf16"));
  return captured;
}

amp::FusedOptimizer optimizer_for(const torch::nn::Module& module, amp::MomentFormat moments) {
  return amp::FusedOptimizer(
      {{module.parameters(), amp::AdamWRule{.lr = 0.01}, amp::MasterWeights::split, moments}}, 4);
}

/// One way of having a part of a model.
struct TensorWay {
  TensorWay(const std::shared_ptr<graph::GraphModule>& whole,
            const std::shared_ptr<distributed::ProcessGroup>& group)
      : parallel(whole, group) {}
  distributed::TensorParallel parallel;
  graph::GraphModule& module() { return parallel.module(); }
  const ModelParts& parts() { return parallel.parts(); }
  void learn(const at::Tensor& x) { parallel.module().forward(x).to(at::kFloat).square().mean().backward(); }
};
struct PipelineWay {
  PipelineWay(const std::shared_ptr<graph::GraphModule>& whole,
              const std::shared_ptr<distributed::ProcessGroup>& group)
      : pipeline(*whole, test::even_stages(whole->graph(), 2), group, {.micro_batches = 2}) {}
  distributed::Pipeline pipeline;
  graph::GraphModule& module() { return pipeline.module(); }
  const ModelParts& parts() { return pipeline.parts(); }
  void learn(const at::Tensor& x) {
    pipeline.step({x}, x,
                  [](const at::Tensor& y, const at::Tensor&) { return y.to(at::kFloat).square().mean(); });
  }
};

template <typename Way>
void steps(Way& way, amp::FusedOptimizer& optimizer, int from, int to) {
  for (int i = from; i < to; ++i) {
    torch::manual_seed(static_cast<uint64_t>(i));
    optimizer.zero_grad();
    way.learn(torch::randn({8, 6}).to(at::kBFloat16));
    amp::fused_step(optimizer, nullptr);
  }
}

template <typename Way>
void check_round_trip(amp::MomentFormat moments) {
  const auto group = test::rank_group();
  const bool is_root = group->rank() == 0;
  const auto path = test::rank_folder() / "run.ckpt";
  const auto whole = parted_net(5);
  Way way(whole, group);
  amp::FusedOptimizer optimizer = optimizer_for(way.module(), moments);
  steps(way, optimizer, 0, 3);
  amp::FusedOptimizer of_whole = optimizer_for(*whole, moments);
  way.parts().gather(is_root ? whole.get() : nullptr);
  way.parts().gather(optimizer, is_root ? whole.get() : nullptr, is_root ? &of_whole : nullptr);
  if (is_root) {
    io::CheckpointParts parts{.model = whole.get(), .optimizer = &of_whole, .extra = {}};
    io::save_checkpoint(path, parts);
  }
  group->barrier();
  steps(way, optimizer, 3, 5);

  const auto other = parted_net(99);
  Way again(other, group);
  amp::FusedOptimizer resumed = optimizer_for(again.module(), moments);
  steps(again, resumed, 7, 8);  // what it has before goes away
  amp::FusedOptimizer state = optimizer_for(*other, moments);
  io::CheckpointParts parts{.model = other.get(), .optimizer = &state, .extra = {}};
  io::load_checkpoint(path, parts);
  again.parts().scatter(*other);
  again.parts().scatter(*other, state, resumed);
  steps(again, resumed, 3, 5);
  const auto expected = way.module().named_parameters();
  for (const auto& one : again.module().named_parameters())
    EXPECT_TRUE(torch::equal(one.value(), expected[one.key()])) << one.key();
  const auto buffers = way.module().named_buffers();
  for (const auto& one : again.module().named_buffers())
    EXPECT_TRUE(torch::equal(one.value(), buffers[one.key()])) << one.key();
}

TEST_IN_RANKS(2, ModelParts, OfSplitLayersGoOnFromAWholeCheckpointBitForBit) {
  check_round_trip<TensorWay>(amp::MomentFormat::fp32);
}

TEST_IN_RANKS(2, ModelParts, OfSplitLayersKeepNarrowMoments) {
  check_round_trip<TensorWay>(amp::MomentFormat::bf16);
}

TEST_IN_RANKS(2, ModelParts, OfStagesGoOnFromAWholeCheckpointBitForBit) {
  check_round_trip<PipelineWay>(amp::MomentFormat::fp32);
}

TEST_IN_RANKS(2, ModelParts, OfStagesKeepMomentsInBlocks) {
  check_round_trip<PipelineWay>(amp::MomentFormat::int8);
}

TEST_IN_RANKS(2, ModelParts, RefuseAModelWithoutTheirTensors) {
  const auto group = test::rank_group();
  TensorWay way(parted_net(5), group);
  nn::Sequential other(nn::Linear(2, 2));
  EXPECT_ERROR(way.parts().scatter(*other), "got one without");
  torch::nn::Module* wrong = group->rank() == 0 ? nullptr : other.ptr().get();
  EXPECT_ERROR(way.parts().gather(wrong), "a model on rank 0 and null");
  group->barrier();
}

}  // namespace
