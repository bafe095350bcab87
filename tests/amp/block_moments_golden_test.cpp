// 8-bit and 4-bit moments against torchao's (tests/golden/make_block_moments.py): the maps, codes of given
// moments, and codes, scales and weights after steps of Adam and AdamW, where 8-bit second moments have our
// map in torchao's optimizers, too. Codes may differ where a moment lies in the middle of two.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "fused_support.h"
#include "letters.h"
#include "ulp/kernels/training/optimizer.h"

namespace ulp::amp::test {
namespace {

using kernels::Isa;
using kernels::MomentKind;
using kernels::MomentStore;
using nlohmann::json;

/// The generator of make_block_moments.py.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  float number(uint32_t octaves, bool both_signs) {
    const double magnitude = (bits() + 1) / 16777216.0;
    const double value = std::ldexp(magnitude, -static_cast<int>(bits() % octaves));
    return static_cast<float>(both_signs && bits() % 2 != 0 ? -value : value);
  }
  at::Tensor tensor(int64_t size, uint32_t octaves, bool both_signs) {
    at::Tensor values = torch::empty({size});
    for (int64_t i = 0; i < size; ++i) values.data_ptr<float>()[i] = number(octaves, both_signs);
    return values;
  }

 private:
  uint32_t bits() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8;
  }
  uint32_t state_;
};

const json& stored() {
  static const json data = letters::golden("block_moments.json");
  return data;
}

std::vector<uint8_t> bytes_of(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// The codes one by one.
std::vector<uint8_t> unpacked(const uint8_t* codes, int64_t n, bool four_bits) {
  std::vector<uint8_t> result;
  for (int64_t i = 0; i < n; ++i) result.push_back(four_bits ? codes[i / 2] >> (i % 2 * 4) & 15 : codes[i]);
  return result;
}

/// The elements whose codes differ; none by more than one.
int64_t differences(const std::vector<uint8_t>& ours, const std::vector<uint8_t>& theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  int64_t different = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    different += ours[i] != theirs[i] ? 1 : 0;
    EXPECT_LE(std::abs(ours[i] - theirs[i]), 1) << i;
  }
  return different;
}

TEST(BlockMomentsGolden, MapsAreTorchaos) {
  for (const auto& [name, of] : stored()["quantized"].items()) {
    const bool four = name.starts_with("int4");
    const auto kind = name.ends_with("mean") ? MomentKind::mean : MomentKind::square;
    const auto map = of["map"].get<std::vector<float>>();
    const auto count = static_cast<int64_t>(map.size());
    std::vector<uint8_t> codes(map.size());
    for (int64_t i = 0; i < count; ++i) {
      if (!four) codes[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
      if (four) codes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(i << (i % 2 * 4));
    }
    const float one = 1;
    std::vector<float> values(map.size());
    kernels::load_moments(four ? MomentStore::int4 : MomentStore::int8, kind, codes.data(), &one, count,
                          values.data(), kernels::selected_isa(), SerialParallel());
    for (size_t i = 0; i < map.size(); ++i)
      EXPECT_NEAR(values[i], map[i], std::fabs(map[i]) * 0x1p-21F) << name << ' ' << i;
  }
}

TEST(BlockMomentsGolden, CodesAreTorchaosAndKeepSignsAsBitsandbytes) {
  for (const auto& [name, of] : stored()["quantized"].items()) {
    const bool four = name.starts_with("int4"), mean = name.ends_with("mean");
    const int64_t n = of["size"], block = four ? 128 : 256;
    const at::Tensor values =
        Numbers(of["seed"].get<uint32_t>()).tensor(n, four ? 10 : 26, /*both_signs=*/mean);
    std::vector<uint8_t> codes(static_cast<size_t>(four ? n / 2 : n));
    std::vector<float> absmax(static_cast<size_t>(n / block));
    kernels::store_moments(four ? MomentStore::int4 : MomentStore::int8,
                           mean ? MomentKind::mean : MomentKind::square, values.data_ptr<float>(), n,
                           codes.data(), absmax.data(), kernels::selected_isa(), SerialParallel());
    EXPECT_EQ(absmax, of["absmax"].get<std::vector<float>>()) << name;
    const std::vector<uint8_t> ours = unpacked(codes.data(), n, four);
    const std::vector<uint8_t> theirs = bytes_of(of["codes"]);
    if (four || !mean) {
      EXPECT_EQ(differences(ours, theirs), 0) << name;
      continue;
    }
    EXPECT_EQ(differences(ours, bytes_of(of["sign_kept"])), 0) << name;
    const int64_t signs = differences(ours, theirs);
    EXPECT_GT(signs, 0);
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] == theirs[i]) continue;
      EXPECT_EQ(theirs[i], 127);
      EXPECT_LT(values.data_ptr<float>()[i], 0);
    }
  }
}

TEST(BlockMomentsGolden, StepsAreTorchaos) {
  for (const auto& [name, of] : stored()["trajectories"].items()) {
    SCOPED_TRACE(name);
    const bool four = name.starts_with("int4");
    const int64_t n = of["size"], steps = of["steps"];
    const double lr = of["options"]["lr"], decay = of["options"]["weight_decay"];
    Numbers numbers(of["seed"].get<uint32_t>());
    auto weight = numbers.tensor(n, 4, true).requires_grad_();
    const UpdateRule rule = name.ends_with("adamw") ? UpdateRule{AdamWRule{.lr = lr, .weight_decay = decay}}
                                                    : UpdateRule{AdamRule{.lr = lr, .weight_decay = decay}};
    FusedOptimizer optimizer({weight}, rule, MasterWeights::fp32, 0,
                             four ? MomentFormat::int4 : MomentFormat::int8);
    for (int64_t step = 0; step < steps; ++step) {
      weight.mutable_grad() = numbers.tensor(n, 12, true);
      optimizer.step();
    }
    const FusedParamState& state = state_of(optimizer, weight);
    const std::pair<const char*, std::pair<at::Tensor, at::Tensor>> moments[] = {
        {"exp_avg", {state.exp_avg, state.exp_avg_absmax}},
        {"exp_avg_sq", {state.exp_avg_sq, state.exp_avg_sq_absmax}}};
    for (const auto& [key, tensors] : moments) {
      const auto& [codes, absmax] = tensors;
      const int64_t different = differences(unpacked(codes.data_ptr<uint8_t>(), n, four), bytes_of(of[key]));
      // Roundings of the arithmetic that differ by a bit, at the middle between two codes.
      EXPECT_LE(different, n / 1000) << key;
      const auto scales = of[std::string(key) + "_absmax"].get<std::vector<float>>();
      for (size_t i = 0; i < scales.size(); ++i)
        EXPECT_NEAR(absmax.data_ptr<float>()[i], scales[i], 1e-6F * scales[i]) << key << ' ' << i;
    }
    const auto weights = of["weights"].get<std::vector<float>>();
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_NEAR(weight.data_ptr<float>()[64 * i], weights[i], 1e-5F) << i;
  }
}

}  // namespace
}  // namespace ulp::amp::test
