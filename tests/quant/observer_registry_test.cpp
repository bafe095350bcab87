// Observers that users register: by name through recipes, prepare and convert.
#include "ulp/quant/observers/observer_registry.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/observers/observer.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;

/// Takes the middle half of what MinMaxObserver sees.
class HalfObserver final : public MinMaxObserver {
 public:
  using MinMaxObserver::MinMaxObserver;

 protected:
  Bounds compute_bounds() const override {
    const Bounds whole = MinMaxObserver::compute_bounds();
    return {whole.min / 2, whole.max / 2};
  }
};

ObserverKind half() {
  static const ObserverKind kind = register_observer(
      "half",
      [](const TensorRecipe& recipe, const std::string& label) {
        return std::make_shared<HalfObserver>(label, recipe.scheme);
      },
      [](const TensorRecipe& recipe) {
        return recipe.scheme.per_tensor() ? "" : "per tensor for the observer half";
      });
  return kind;
}

TEST(ObserverRegistry, BuiltInNamesComeFirst) {
  half();
  const std::span<const char* const> names = observer_names();
  EXPECT_STREQ(names[0], "min_max");
  EXPECT_EQ(std::string(names[6]), ObserverKind::fixed.name());
  EXPECT_EQ(std::ranges::count(names, std::string("half")), 1);
  for (const char* name : names) EXPECT_EQ(ObserverKind(name).name(), std::string(name));
  EXPECT_ERROR(ObserverKind("best"), "expected an observer of min_max, moving_average");
}

TEST(ObserverRegistry, AUsersObserverCalibratesAModelByItsName) {
  Recipe recipe = Recipe::x86_int8();
  recipe.activation.observer = half();
  recipe = Recipe::from_json(recipe.to_json());
  EXPECT_EQ(recipe.activation.observer, half());
  EXPECT_NE(recipe.to_json().find("\"observer\": \"half\""), std::string::npos);
  Recipe whole = recipe;
  whole.activation.observer = ObserverKind::min_max;
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const at::NoGradGuard no_grad;
  const auto input_scale = [&](const Recipe& with) {
    const auto prepared = prepare(captured, with);
    prepared->forward(data(2, 4));
    const auto converted = convert(prepared);
    for (const auto& node : converted->graph().nodes()) {
      if (!node->is("ulp::quantize")) continue;
      return converted->graph().attribute_tensor(node->arg("scale").value).item<float>();
    }
    return 0.0F;
  };
  EXPECT_GT(input_scale(whole), 0.0F);
  EXPECT_FLOAT_EQ(input_scale(recipe), input_scale(whole) / 2);
}

TEST(ObserverRegistry, ItsObstacleRefusesRecipes) {
  Recipe recipe = Recipe::x86_int8();
  recipe.weight.observer = half();
  EXPECT_ERROR(recipe.validate(), "expected weight per tensor for the observer half");
  recipe.weight.scheme.granularity = PerTensor{};
  recipe.validate();
}

TEST(ObserverRegistry, RefusesTakenNamesAndNothing) {
  const auto make = [](const TensorRecipe&, const std::string&) { return std::shared_ptr<Observer>(); };
  EXPECT_ERROR(register_observer("mse", make), "not taken, got 'mse'");
  EXPECT_ERROR(register_observer("", make), "a name and a factory");
  EXPECT_ERROR(register_observer("no factory", {}), "a name and a factory");
  const ObserverKind none = register_observer("none", make);
  EXPECT_ERROR(make_observer({.scheme = {}, .observer = none}, "x"), "from 'none', got null");
}

}  // namespace
}  // namespace ulp::quant
