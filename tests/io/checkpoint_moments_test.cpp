// Checkpoints of moments in blocks: the same bytes after a resume, and files that do not fit are refused.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "temp_folder.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/io/checkpoint.h"

namespace {

using ulp::amp::AdamWRule;
using ulp::amp::FusedOptimizer;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;
using ulp::amp::SgdRule;
using ulp::amp::UpdateRule;
using ulp::io::CheckpointParts;
using ulp::io::NamedTensors;

/// Weights in both orders of memory, an odd size, and one that is too small for blocks.
struct InBlocks : torch::nn::Module {
  InBlocks(const UpdateRule& rule, ulp::amp::MasterWeights masters, MomentFormat moments,
           bool channels_last = true)
      : plain(register_parameter("plain", torch::ones({71, 61}, torch::kBFloat16))),
        conv(register_parameter("conv", filters(channels_last))),
        small(register_parameter("small", torch::ones({37}, torch::kBFloat16))),
        optimizer({plain, conv, small}, rule, masters, 3, moments) {}
  static torch::Tensor filters(bool channels_last) {
    const auto values = torch::ones({32, 16, 3, 3}, torch::kBFloat16);
    return channels_last ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
  }
  void run_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
      for (torch::Tensor weight : {plain, conv, small})
        weight.mutable_grad() =
            torch::empty_like(weight.detach()).copy_(torch::randn(weight.sizes(), generator));
      optimizer.step();
    }
  }
  torch::Tensor plain, conv, small;
  FusedOptimizer optimizer;
};

class CheckpointMoments : public TempFolder {
 protected:
  using Change = std::function<void(NamedTensors& tensors, nlohmann::json& optimizer)>;
  /// A checkpoint with changes is refused, and what was to be filled stays as it was.
  void expect_refused(const std::string& says, MomentFormat moments, const Change& change) {
    SCOPED_TRACE(says);
    InBlocks run(AdamWRule{}, MasterWeights::split, moments);
    run.run_steps(0, 2);
    ulp::io::save_checkpoint(at("c"), {.model = &run, .optimizer = &run.optimizer});
    auto file = ulp::io::load_tensors(at("c"));
    auto text = nlohmann::json::parse(file.metadata.at("ulp.optimizer"));
    change(file.tensors, text);
    file.metadata["ulp.optimizer"] = text.dump();
    ulp::io::save_tensors(at("changed"), file.tensors, file.metadata);
    CheckpointParts parts{.model = &run, .optimizer = &run.optimizer};
    expect_file_error(says, [&] { ulp::io::load_checkpoint(at("changed"), parts); });
    ulp::io::save_checkpoint(at("after"), parts);
    EXPECT_TRUE(read("c") == read("after"));
  }
  static void replace(NamedTensors& tensors, const std::string& name, const torch::Tensor& value) {
    for (auto& [key, tensor] : tensors)
      if (key == name) tensor = value;
  }
};

TEST_F(CheckpointMoments, AResumedRunWritesTheSameBytes) {
  for (const MomentFormat moments : {MomentFormat::int8, MomentFormat::int4}) {
    for (const UpdateRule& rule : {UpdateRule{AdamWRule{}}, UpdateRule{ulp::amp::AdamRule{}},
                                   UpdateRule{SgdRule{.lr = 0.1, .momentum = 0.9}}}) {
      for (const auto masters :
           {MasterWeights::fp32, MasterWeights::split, MasterWeights::stochastic, MasterWeights::kahan}) {
        InBlocks unbroken(rule, masters, moments), resumed(rule, masters, moments);
        unbroken.run_steps(0, 3);
        ulp::io::save_checkpoint(at("c"), {.model = &unbroken, .optimizer = &unbroken.optimizer});
        unbroken.run_steps(3, 6);
        CheckpointParts parts{.model = &resumed, .optimizer = &resumed.optimizer};
        ulp::io::load_checkpoint(at("c"), parts);
        resumed.run_steps(3, 6);
        ulp::io::save_checkpoint(at("a"), {.model = &unbroken, .optimizer = &unbroken.optimizer});
        ulp::io::save_checkpoint(at("b"), {.model = &resumed, .optimizer = &resumed.optimizer});
        EXPECT_TRUE(read("a") == read("b")) << to_string(moments) << ' ' << to_string(masters);
        EXPECT_EQ(unbroken.optimizer.state_bytes(), resumed.optimizer.state_bytes());
      }
    }
  }
}

TEST_F(CheckpointMoments, BlocksThatDoNotFitAreRefusedByName) {
  for (const MomentFormat moments : {MomentFormat::int8, MomentFormat::int4}) {
    for (const std::string name : {"exp_avg", "exp_avg_sq"}) {
      const std::string absmax = name + "_absmax", whole = "optimizer.0." + absmax;
      expect_refused("fp32 numbers in '" + absmax + "', got", moments,
                     [&](auto& tensors, auto&) { replace(tensors, whole, torch::ones({5})); });
      expect_refused("fp32 numbers in '" + absmax + "', got", moments, [&](auto& tensors, auto&) {
        replace(tensors, whole, torch::ones({17}, torch::kDouble));
      });
      expect_refused("fp32 numbers in '" + absmax + "', got none", moments, [&](auto& tensors, auto&) {
        std::erase_if(tensors, [&](const auto& entry) { return entry.first == whole; });
      });
      expect_refused("expected no negative number", moments, [&](auto& tensors, auto&) {
        for (auto& [key, tensor] : tensors)
          if (key == whole) tensor = tensor.neg();
      });
      expect_refused("optimizer.0." + name, moments, [&](auto& tensors, auto&) {
        replace(tensors, "optimizer.0." + name, torch::ones({33}, torch::kByte));
      });
      expect_refused("expected Byte for 'optimizer.0." + name, moments, [&](auto& tensors, auto&) {
        replace(tensors, "optimizer.0." + name, torch::ones({71, 61}));
      });
    }
    expect_refused("memory_order", moments, [&](auto&, nlohmann::json& optimizer) {
      optimizer["groups"][0]["states"][1].erase("memory_order");
    });
    expect_refused("order of memory", moments, [&](auto&, nlohmann::json& optimizer) {
      optimizer["groups"][0]["states"][1]["memory_order"] = "3,2,1,0";
    });
  }
}

TEST_F(CheckpointMoments, ParametersInAnotherOrderOfMemoryAreRefused) {
  InBlocks last(AdamWRule{}, MasterWeights::split, MomentFormat::int8);
  InBlocks first(AdamWRule{}, MasterWeights::split, MomentFormat::int8, /*channels_last=*/false);
  last.run_steps(0, 1);
  ulp::io::save_checkpoint(at("c"), {.optimizer = &last.optimizer});
  CheckpointParts parts{.optimizer = &first.optimizer};
  expect_file_error("order of memory 0,1,2,3", [&] { ulp::io::load_checkpoint(at("c"), parts); });
}

}  // namespace
