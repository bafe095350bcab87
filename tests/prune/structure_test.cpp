// What was kept and removed as JSON, and cuts made again from it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/structure_file.h"

namespace ulp::test {
namespace {

using prune::Kept;

struct CutOnce {
  Captured module;
  prune::Groups groups;
  prune::Removals removals;
  prune::CutResult small;
  explicit CutOnce(const char* name = "resnet20", double share = 0.4) {
    torch::manual_seed(1);
    module = capture(*models::make_model(name), {torch::randn({2, 3, 32, 32})});
    groups = prune::groups(module->graph());
    removals = some_units(groups, share, 3);
    small = prune::cut(*module, groups, removals);
  }
};

TEST(StructureFile, MakesTheSameCutAgain) {
  for (const char* name : {"resnet20", "mobilenet_v2"}) {
    CutOnce made(name);
    made.module->eval();
    const std::string text = prune::kept_to_json(made.small.kept, made.module->graph());
    const Kept read = prune::kept_from_json(text, made.module->graph());
    EXPECT_EQ(read, made.small.kept) << name;
    const auto again = prune::cut_to(*made.module, read);
    made.small.module->eval();
    const at::Tensor x = torch::randn({2, 3, 32, 32});
    EXPECT_TRUE(torch::equal(again.module->forward(x),
                             prune::cut(*made.module, made.groups, made.removals).module->forward(x)))
        << name;
    EXPECT_EQ(prune::kept_to_json(again.kept, made.module->graph()), text) << name;
  }
}

TEST(StructureFile, RemovalsComeBackSorted) {
  CutOnce made;
  const prune::Removals read =
      prune::removals_from_json(prune::removals_to_json(made.removals, made.groups), made.groups);
  EXPECT_EQ(read.units, made.removals.units);
  prune::Removals from_kept = prune::removals_of(made.groups, made.small.kept);
  for (auto& units : made.removals.units) std::ranges::sort(units);
  EXPECT_EQ(from_kept.units, made.removals.units);
}

TEST(StructureFile, TwoCutsInARowAreOne) {
  CutOnce first;
  const auto groups = prune::groups(first.small.module->graph());
  const auto second = prune::cut(*first.small.module, groups, some_units(groups, 0.3, 9));
  const Kept both = prune::compose(first.small.kept, second.kept);
  const auto at_once = prune::cut_to(*first.module, both);
  at_once.module->eval();
  second.module->eval();
  const at::Tensor x = torch::randn({2, 3, 32, 32});
  EXPECT_TRUE(torch::equal(at_once.module->forward(x), second.module->forward(x)));
  EXPECT_ERROR(prune::compose(second.kept, first.small.kept), "expected indices below");
  Kept part = second.kept;
  part.erase(part.begin());
  EXPECT_ERROR(prune::compose(first.small.kept, part), "by both cuts, got it by one");
}

/// The JSON with a change.
std::string changed(const std::string& text, const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json json = nlohmann::json::parse(text);
  change(json);
  return json.dump();
}

TEST(StructureFile, AnotherModelsIsRefusedByName) {
  const CutOnce made("lenet5");
  const graph::Graph& graph = made.module->graph();
  const std::string text = prune::kept_to_json(made.small.kept, graph);
  const auto read = [&](const std::string& file) { prune::kept_from_json(file, graph); };
  const CutOnce other("resnet20");
  EXPECT_ERROR(read(prune::kept_to_json(other.small.kept, other.module->graph())),
               "expected the structure of this model, got one with '");
  const std::string name = graph.attributes()[0].first;
  EXPECT_ERROR(read(changed(text, [&](auto& json) { json["tensors"].erase(name); })),
               "expected the structure of this model, got one without '" + name + "'");
  EXPECT_ERROR(read(changed(text, [&](auto& json) { json["tensors"][name]["sizes"][0] = 99; })),
               "got one with '" + name + "' of sizes [99,");
  // A cut network is another model than the one it was cut from.
  EXPECT_ERROR(prune::kept_from_json(text, made.small.module->graph()), "of sizes [");

  const std::string removals = prune::removals_to_json(made.removals, made.groups);
  const auto read_removals = [&](const std::string& file) { prune::removals_from_json(file, made.groups); };
  EXPECT_ERROR(read_removals(prune::removals_to_json(other.removals, other.groups)),
               "expected removals of this model, got 16 units of 'conv1', which has 6");
  EXPECT_ERROR(read_removals(changed(removals, [](auto& json) { json["groups"][1]["name"] = "other"; })),
               "expected removals of this model, got the group 'other', where it has '");
  EXPECT_ERROR(
      read_removals(changed(removals, [](auto& json) { json["groups"].erase(json["groups"].end() - 1); })),
      "expected removals of this model, got none of '" + made.groups.groups.back().name() + "'");
  EXPECT_ERROR(read_removals(changed(removals, [](auto& json) { json["groups"][0]["units"] = 1000; })),
               "got 1000 units of '" + made.groups.groups[0].name() + "'");
}

TEST(StructureFile, RefusesDamagedFiles) {
  const CutOnce made("lenet5");
  const graph::Graph& graph = made.module->graph();
  const std::string text = prune::kept_to_json(made.small.kept, graph);
  const std::string name = graph.attributes()[0].first;
  const auto read = [&](const std::function<void(nlohmann::json&)>& change) {
    prune::kept_from_json(changed(text, change), graph);
  };
  const auto set = [&](const nlohmann::json& indices) {
    return [&, indices](nlohmann::json& json) { json["tensors"][name]["kept"]["0"] = indices; };
  };
  EXPECT_ERROR(prune::kept_from_json(text.substr(0, text.size() / 2), graph), "expected an object in JSON");
  EXPECT_ERROR(prune::kept_from_json("[]", graph), "expected an object in JSON");
  EXPECT_ERROR(read([](auto& json) { json["type"] = "ulp.prune.Removals"; }),
               "expected the type ulp.prune.Kept, got");
  EXPECT_ERROR(read([](auto& json) { json["version"] = 2; }), "the file is from a newer ulp");
  EXPECT_ERROR(read([](auto& json) { json["more"] = 1; }), "got 'more'");
  EXPECT_ERROR(read([](auto& json) { json.erase("tensors"); }), "expected the field tensors, got none");
  EXPECT_ERROR(read(set({2, 1})), "expected rising indices below");
  EXPECT_ERROR(read(set({1, 1})), "expected rising indices below");
  EXPECT_ERROR(read(set({0, 1000})), "expected rising indices below");
  EXPECT_ERROR(read(set(nlohmann::json::array())), "expected rising indices below");
  EXPECT_ERROR(read(set({-1, 1})), "expected a list of whole numbers from 0");
  EXPECT_ERROR(read(set({0.5})), "expected a list of whole numbers from 0");
  EXPECT_ERROR(read(set("all")), "expected a list of whole numbers from 0");
  EXPECT_ERROR(read([&](auto& json) { json["tensors"][name]["kept"]["7"] = {0}; }),
               "expected dimensions of '");
  EXPECT_ERROR(read([&](auto& json) { json["tensors"][name] = 3; }), "expected sizes and kept of '");

  const std::string removals = prune::removals_to_json(made.removals, made.groups);
  const auto removed = [&](const nlohmann::json& units) {
    prune::removals_from_json(changed(removals, [&](auto& json) { json["groups"][0]["removed"] = units; }),
                              made.groups);
  };
  EXPECT_ERROR(removed({0, 0}), "expected each unit of");
  EXPECT_ERROR(removed({100000}), "expected units below");
  EXPECT_ERROR(removed(nullptr), "expected a list of whole numbers from 0");
}

TEST(StructureFile, APartOfAUnitIsNoCut) {
  const CutOnce made("lenet5");
  for (const auto& [name, dims] : made.small.kept) {
    const auto& tensor = made.module->graph().find_attribute(name)->tensor;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() < 2) continue;
      Kept kept = made.small.kept;
      kept[name][d].pop_back();
      EXPECT_ERROR(prune::cut_to(*made.module, kept), "expected ")
          << name << " " << d << " " << tensor.sizes();
    }
  }
  Kept kept = made.small.kept;
  kept.erase(kept.begin());
  EXPECT_ERROR(prune::cut_to(*made.module, kept), "expected what was kept of '");
}

}  // namespace
}  // namespace ulp::test
