// Checkpoints of moments in blocks: the same bytes after a resume, and files that do not fit are refused.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "temp_folder.h"
#include "ulp/amp/optimizer/block_moments.h"
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

/// Files of before have bitsandbytes' codes of squares and no word of it; they are read by their values.
TEST_F(CheckpointMoments, SecondMomentsOfEarlierFilesAreReadByTheirMap) {
  torch::Tensor map = torch::zeros({256});
  for (int decade = 0, code = 1; decade < 7; ++decade) {
    for (int part = 0; part < 2 << decade; ++part, ++code)
      map[code] = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / (2 << decade));
  }
  map[255] = 1;
  for (const bool channels_last : {false, true}) {
    InBlocks run(AdamWRule{}, MasterWeights::split, MomentFormat::int8, channels_last);
    run.run_steps(0, 2);
    ulp::io::save_checkpoint(at("c"), {.model = &run, .optimizer = &run.optimizer});
    auto file = ulp::io::load_tensors(at("c"));
    auto text = nlohmann::json::parse(file.metadata.at("ulp.optimizer"));
    for (auto& state : text["groups"][0]["states"]) state.erase("square_codes");
    torch::Tensor old, largest;
    for (auto& [key, tensor] : file.tensors) {
      if (key == "optimizer.1.exp_avg_sq_absmax") largest = tensor.clone();
      if (key != "optimizer.1.exp_avg_sq") continue;
      old = torch::randint(0, 256, tensor.sizes(), at::kByte);
      tensor = old;
    }
    ASSERT_TRUE(old.defined() && largest.defined());
    file.metadata["ulp.optimizer"] = text.dump();
    ulp::io::save_tensors(at("old"), file.tensors, file.metadata);
    CheckpointParts parts{.model = &run, .optimizer = &run.optimizer};
    ulp::io::load_checkpoint(at("old"), parts);
    auto state =
        static_cast<ulp::amp::FusedParamState&>(*run.optimizer.state().at(run.conv.unsafeGetTensorImpl()));
    // Blocks follow the parameter's memory.
    const auto dense = [&](const torch::Tensor& x) {
      return torch::empty_like(run.conv.detach(), at::kFloat).copy_(x).as_strided({x.numel()}, {1});
    };
    const torch::Tensor absmax = largest.repeat_interleave(256).slice(0, 0, old.numel());
    ulp::amp::widen_moments(state, run.conv);
    const torch::Tensor values = dense(state.exp_avg_sq);
    const torch::Tensor expected = map.index_select(0, dense(old).to(at::kLong)) * absmax;
    EXPECT_TRUE((values - expected).abs().le(expected / 15).all().item<bool>()) << channels_last;
    EXPECT_TRUE(values.eq(0).equal(expected.eq(0)));
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
    if (moments == MomentFormat::int8) {
      expect_refused("square_codes", moments, [&](auto&, nlohmann::json& optimizer) {
        optimizer["groups"][0]["states"][1]["square_codes"] = "nibbles";
      });
    }
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
