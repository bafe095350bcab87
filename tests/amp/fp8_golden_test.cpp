// Replays tests/golden/fp8.json (made by make_fp8.py from the recipes' definitions, and by torchao).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "fp8_support.h"
#include "letters.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/fp8_tensor.h"

namespace {

using namespace ulp::amp;
using nlohmann::json;
using ulp::test::golden_values;

const json& fp8_golden() {
  static const json data = letters::golden("fp8.json");
  return data;
}

std::string hex(const at::Tensor& codes) {
  const at::Tensor bytes = codes.contiguous();
  std::string text;
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", bytes.data_ptr<uint8_t>()[i]);
    text += two;
  }
  return text;
}

at::Tensor numbers(const json& list) {
  return torch::tensor(list.get<std::vector<double>>(), torch::kDouble).to(torch::kFloat);
}

Fp8LayerRecipe recipe_of(const json& one) {
  return Fp8LayerRecipe::from_text(one["recipe"].dump());
}

TEST(Fp8Golden, CodesAndScalesAreThoseOfTheDefinitions) {
  for (const json& one : fp8_golden()["quantizations"]) {
    const at::Tensor x = golden_values(one["seed"], one["sizes"].get<std::vector<int64_t>>());
    const auto role = *ulp::from_word<Fp8Role>(one["role"].get<std::string>());
    const Fp8Tensor made = quantize_fp8(x, recipe_of(one), role);
    const std::string what = one["recipe"].dump() + " " + one["role"].dump();
    EXPECT_EQ(hex(made.codes), one["codes"].get<std::string>()) << what;
    EXPECT_TRUE(torch::equal(made.scale_inv.flatten(), numbers(one["scale_inv"]))) << what;
    if (one.contains("scale_codes")) {
      EXPECT_EQ(hex(made.scale_codes), one["scale_codes"].get<std::string>()) << what;
    }
    if (one.contains("tensor_scale")) {
      EXPECT_EQ(made.tensor_scale.item<float>(), one["tensor_scale"].get<float>()) << what;
    }
  }
}

TEST(Fp8Golden, DelayedScalesFollowTheHistory) {
  for (const json& one : fp8_golden()["trajectories"]) {
    const Fp8LayerRecipe recipe = recipe_of(one);
    const Fp8State state = Fp8State::make(recipe, torch::kCPU);
    for (size_t i = 0; i < one["amaxes"].size(); ++i) {
      const double amax = std::stod(one["amaxes"][i].get<std::string>());
      state.note(Fp8Role::weight, torch::tensor(static_cast<float>(amax)));
      update_fp8_state(state, recipe);
      EXPECT_EQ(state.scale_of(Fp8Role::weight).item<float>(), one["scales"][i].get<float>())
          << one["recipe"].dump() << " step " << i;
    }
    EXPECT_EQ(state.scale_of(Fp8Role::input).item<float>(), 1.0F);
  }
}

struct LinearResult {
  at::Tensor y, dx, dw, db;
};

LinearResult run_linear(const Fp8LayerRecipe& recipe) {
  const at::Tensor x = golden_values(6, {8, 32}).requires_grad_(),
                   w = golden_values(7, {16, 32}).requires_grad_();
  const at::Tensor b = golden_values(8, {16}).requires_grad_();
  const at::Tensor y = fp8_linear(x, w, b, recipe);
  y.backward(golden_values(9, {8, 16}));
  return {y.detach(), x.grad(), w.grad(), b.grad()};
}

// Sums of so many products in fp32, in another order.
void expect_close(const at::Tensor& got, const json& expected, const std::string& what) {
  const at::Tensor wanted = numbers(expected).view(got.sizes());
  const double bound = 32 * std::numeric_limits<float>::epsilon() * wanted.abs().max().item<double>();
  EXPECT_LE((got - wanted).abs().max().item<double>(), bound) << what;
}

TEST(Fp8Golden, LayersComputeWhatTorchaosDo) {
  Fp8LayerRecipe current = ulp::test::with(Fp8Scaling::current), rounded = current;
  rounded.power_of_2 = true;
  for (const auto& [name, recipe] : {std::pair<const char*, Fp8LayerRecipe>{"tensorwise", current},
                                     {"tensorwise_power_of_2", rounded},
                                     {"rowwise", ulp::test::with(Fp8Scaling::rowwise)}}) {
    const json& wanted = fp8_golden()["torchao"][name];
    const LinearResult got = run_linear(recipe);
    expect_close(got.y, wanted["y"], std::string(name) + " y");
    expect_close(got.dx, wanted["dx"], std::string(name) + " dx");
    expect_close(got.dw, wanted["dw"], std::string(name) + " dw");
    expect_close(got.db, wanted["db"], std::string(name) + " db");
  }
}

TEST(Fp8Golden, BlocksAreTorchaos) {
  const at::Tensor x = golden_values(10, {4, 96});
  const json& wanted = fp8_golden()["torchao"]["blocks"];
  for (const auto& word : ulp::EnumNames<MxRounding>::list) {
    Fp8LayerRecipe recipe = ulp::test::with(Fp8Scaling::mxfp8);
    recipe.mx_rounding = word.value;
    const Fp8Tensor made = quantize_fp8(x, recipe, Fp8Role::input);
    EXPECT_EQ(hex(made.codes), wanted[std::string("mx_") + word.text]["codes"].get<std::string>())
        << word.text;
    EXPECT_EQ(hex(made.scale_codes), wanted[std::string("mx_") + word.text]["scale_codes"].get<std::string>())
        << word.text;
  }
  const Fp8Tensor made = quantize_fp8(x, ulp::test::with(Fp8Scaling::nvfp4), Fp8Role::input);
  EXPECT_EQ(hex(made.codes), wanted["nvfp4"]["codes"].get<std::string>());
  EXPECT_EQ(hex(made.scale_codes), wanted["nvfp4"]["scale_codes"].get<std::string>());
}

}  // namespace
