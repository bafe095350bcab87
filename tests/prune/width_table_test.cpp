// Tables of widths: measured with clocks that are functions, kept as files, and used to round.
#include "ulp/prune/structured/width_table.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/channel_pruning_recipe.h"

namespace ulp::test {
namespace {

using prune::WidthCurve;
using prune::WidthKernel;
using prune::WidthTable;

/// Kernels that work in tiles of 8 channels.
WidthTable tiles_of_eight() {
  WidthTable table{.machine = "a test", .curves = {}};
  for (const auto kernel :
       {WidthKernel::convolution, WidthKernel::pointwise, WidthKernel::depthwise, WidthKernel::linear}) {
    WidthCurve curve{.kernel = kernel, .points = {}};
    for (int64_t width = 1; width <= 64; ++width)
      curve.points.push_back({width, 1e-6 * double((width + 7) / 8)});
    table.curves.push_back(curve);
  }
  return table;
}

TEST(WidthTable, SecondsAreThoseOfTheNextMeasuredWidth) {
  const WidthCurve curve{.kernel = WidthKernel::linear, .points = {{4, 1}, {8, 3}, {16, 2}, {32, 8}}};
  EXPECT_EQ(curve.seconds(1), 1);
  EXPECT_EQ(curve.seconds(4), 1);
  EXPECT_EQ(curve.seconds(5), 3);
  EXPECT_EQ(curve.seconds(9), 2);
  EXPECT_EQ(curve.seconds(32), 8);
  EXPECT_EQ(curve.seconds(33), 12);  // 48 channels
  EXPECT_EQ(curve.seconds(64), 16);
}

TEST(WidthTable, MeasuresEachKindAtEachWidth) {
  std::vector<std::string> seen;
  int64_t last = 0;
  const prune::WidthMeasurement what{.widths = {2, 6},
                                     .outer = 5,
                                     .image = 4,
                                     .rows = 3,
                                     .repeats = 1,
                                     .progress = [&](int64_t done, int64_t total) {
                                       EXPECT_EQ(total, 8);
                                       last = done;
                                     }};
  const WidthTable table = prune::measure_widths(
      [&](const graph::GraphModule& module) {
        std::string sizes;
        for (const auto& [name, attribute] : module.graph().attributes()) {
          if (attribute.tensor.dim() < 2) continue;
          for (const int64_t size : attribute.tensor.sizes()) sizes += std::to_string(size) + " ";
          sizes += "| ";
        }
        seen.push_back(sizes);
        return 1e-3 * static_cast<double>(seen.size());
      },
      what, "mine");
  EXPECT_EQ(last, 8);
  EXPECT_EQ(seen[0], "2 5 3 3 | 5 2 3 3 | ");
  EXPECT_EQ(seen[1], "6 5 3 3 | 5 6 3 3 | ");
  EXPECT_EQ(seen[3], "6 5 1 1 | 5 6 1 1 | ");
  EXPECT_EQ(seen[5], "6 5 1 1 | 6 1 3 3 | 5 6 1 1 | ");
  EXPECT_EQ(seen[7], "6 5 | 5 6 | ");
  ASSERT_EQ(table.curves.size(), 4u);
  EXPECT_EQ(table.machine, "mine");
  EXPECT_EQ(table.find(WidthKernel::linear)->points.back(), (prune::WidthPoint{6, 8e-3}));
  EXPECT_ERROR(prune::measure_widths([](const auto&) { return 0.0; }, what), "expected ");
  EXPECT_ERROR(prune::measure_widths({}, what), "expected a function that measures, got none");
  EXPECT_ERROR(prune::measure_widths([](const auto&) { return 1.0; }, {.widths = {4, 2}}),
               "expected rising widths, got others");
}

TEST(WidthTable, ADisturbanceSpoilsNoWidth) {
  int calls = 0;
  const auto clock = [&](const graph::GraphModule& module) {
    const double honest = double(module.graph().find_attribute("linear0.weight")->tensor.size(0));
    return ++calls % 5 == 0 ? 100 * honest : honest;
  };
  const WidthTable table =
      prune::measure_widths(clock, {.kernels = {WidthKernel::linear}, .widths = {3, 4, 6}, .repeats = 3});
  EXPECT_EQ(calls, 9);
  EXPECT_EQ(table.curves.at(0).points, (std::vector<prune::WidthPoint>{{3, 3}, {4, 4}, {6, 6}}));
}

TEST(WidthTable, IsAFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ulp_width_table_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const WidthTable table = tiles_of_eight();
  table.save(folder / "widths.json");
  EXPECT_EQ(WidthTable::load(folder / "widths.json"), table);
  EXPECT_ERROR(WidthTable::load(folder / "none.json"), "expected a file");
  std::ofstream(folder / "bad.json") << "{\"type\": \"other\"}";
  EXPECT_ERROR(WidthTable::load(folder / "bad.json"), "bad.json");
  std::filesystem::remove_all(folder);
  WidthTable bad = table;
  bad.curves[1].kernel = WidthKernel::convolution;
  EXPECT_ERROR(bad.validate(), "expected one curve of convolution, got two");
  bad = table;
  bad.curves[0].points.resize(1);
  EXPECT_ERROR(WidthTable::from_json(bad.to_json()), "expected at least two widths of convolution, got 1");
  bad = table;
  bad.curves[0].points[3].width = 2;
  EXPECT_ERROR(bad.validate(), "expected rising widths of convolution, got others");
  bad = table;
  bad.curves[0].points[3].seconds = -1;
  EXPECT_ERROR(bad.validate(), "seconds");
}

TEST(MeasuredWidths, RoundUpWhereThatCostsNoMore) {
  const auto module = capture(*models::make_model("resnet20"), {torch::randn({2, 3, 32, 32})});
  const auto groups = prune::groups(module->graph());
  const prune::MeasuredWidths widths(module->graph(), groups, tiles_of_eight());
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const int64_t all = groups.groups[g].units;
    for (int64_t kept = 1; kept <= all; ++kept)
      EXPECT_EQ(widths(g, kept), std::min(all, (kept + 7) / 8 * 8)) << groups.groups[g].name() << " " << kept;
  }
  // 9 to 15 channels are slower than 16, which is faster than 8, too.
  WidthTable table = tiles_of_eight();
  for (WidthCurve& curve : table.curves) curve.points[15].seconds = 0.5e-6;
  const prune::MeasuredWidths fast(module->graph(), groups, table);
  EXPECT_EQ(fast(0, 3), 16);
  EXPECT_EQ(fast(0, 16), 16);
  // A kind that was not measured stays.
  table.curves.clear();
  EXPECT_EQ(prune::MeasuredWidths(module->graph(), groups, table)(0, 3), 3);
  EXPECT_ERROR(prune::MeasuredWidths(module->graph(), groups, table, 1),
               "expected a tolerance in [0, 1), got 1");
}

TEST(MeasuredWidths, OfEachKindOfGroup) {
  const auto module = capture(*models::make_model("mobilenet_v2"), {torch::randn({2, 3, 32, 32})});
  const auto groups = prune::groups(module->graph());
  WidthTable table = tiles_of_eight();
  const auto only = [&](WidthKernel kernel) {
    WidthTable one;
    one.curves = {*table.find(kernel)};
    return prune::MeasuredWidths(module->graph(), groups, one);
  };
  const auto depthwise = only(WidthKernel::depthwise), pointwise = only(WidthKernel::pointwise);
  int expanded = 0, projected = 0;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const bool has = std::ranges::any_of(groups.groups[g].members, [&](const prune::Member& member) {
      const auto& weight = module->graph().find_attribute(member.tensor)->tensor;
      return weight.dim() == 4 && weight.size(1) == 1;
    });
    EXPECT_EQ(depthwise(g, 3) != 3, has) << groups.groups[g].name();
    EXPECT_EQ(pointwise(g, 3) != 3, !has) << groups.groups[g].name();
    ++(has ? expanded : projected);
  }
  EXPECT_GT(expanded, 10);
  EXPECT_GT(projected, 5);
}

TEST(MeasuredWidths, TheCutSaysWhatRoundingCost) {
  torch::manual_seed(3);
  const auto module = capture(*models::make_model("resnet20"), {torch::randn({2, 3, 32, 32})});
  const WidthTable table = tiles_of_eight();
  prune::ChannelPruningRecipe recipe{.scope = prune::UnitScope::local, .measured_widths = true};
  EXPECT_ERROR(prune::prune_by_recipe(*module, recipe, 0.4),
               "expected a table of widths for measured_widths, got none");
  const auto rounded = prune::prune_by_recipe(*module, recipe, 0.4, {.widths = &table});
  for (const auto& [name, attribute] : rounded.module->graph().attributes()) {
    if (attribute.tensor.dim() == 4) {
      EXPECT_EQ(attribute.tensor.size(0) % 8, 0) << name;
    }
  }
  EXPECT_GT(rounded.rounded.macs, 0);
  EXPECT_GT(rounded.rounded.parameters, 0);
  const auto whole = prune::size_of(module->graph()), after = prune::size_of(rounded.module->graph());
  EXPECT_LE(after.macs, 0.4 * double(whole.macs));
  recipe.measured_widths = false;
  const auto plain = prune::prune_by_recipe(*module, recipe, 0.4);
  EXPECT_EQ(plain.rounded.macs, 0);
  EXPECT_EQ(plain.rounded.parameters, 0);
  EXPECT_FALSE(plain.latency);

  // By a clock, in the same recipe.
  recipe.measure = prune::Measure::latency;
  EXPECT_ERROR(prune::prune_by_recipe(*module, recipe, 0.5), "expected a function that measures, got none");
  const auto fast =
      prune::prune_by_recipe(*module, recipe, 0.5, {.seconds = [](const graph::GraphModule& cut) {
        return 1e-9 * double(prune::size_of(cut.graph()).macs);
      }});
  ASSERT_TRUE(fast.latency);
  EXPECT_LE(prune::size_of(fast.module->graph()).macs, 0.5 * double(whole.macs));
  const auto groups = prune::groups(module->graph());
  EXPECT_ERROR(prune::select_target(module->graph(), groups, prune::importance(*module, groups), {},
                                    {prune::Measure::latency, 0.5}),
               "got latency, which select_latency() measures");
  prune::ChannelPruningRecipe kept = recipe;
  kept.measured_widths = true;
  EXPECT_EQ(prune::ChannelPruningRecipe::from_json(kept.to_json()), kept);
}

}  // namespace
}  // namespace ulp::test
