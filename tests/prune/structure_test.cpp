// What was cut and removed as JSON, and cuts made again from it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/structure_file.h"

namespace ulp::test {
namespace {

using nlohmann::json;
using prune::Kept;
using prune::Structure;

/// A network and what cuts made of it, one after the other.
struct Narrowed {
  Captured dense, now;
  Structure structure;
  Kept kept;                  // by all cuts
  prune::Groups groups = {};  // of the last cut
  prune::Removals removals = {};

  explicit Narrowed(Captured module, bool inexact = false)
      : dense(module), now(module), structure{.inexact = inexact} {
    dense->eval();
  }
  /// A registered network with one cut.
  explicit Narrowed(const char* name, double share = 0.4) : Narrowed(registered(name)) { cut(share, 3); }

  static Captured registered(const char* name) {
    torch::manual_seed(1);
    return capture(*models::make_model(name), {torch::randn({2, 3, 32, 32})});
  }

  const graph::Graph& graph() const { return dense->graph(); }
  std::string text() const { return prune::structure_to_json(structure, graph()); }

  /// Some units of all groups.
  void cut(double share, uint64_t seed) {
    cut(some_units(prune::groups(now->graph(), {.inexact = structure.inexact}), share, seed));
  }
  void cut(const prune::Removals& units) {
    groups = prune::groups(now->graph(), {.inexact = structure.inexact});
    removals = units;
    prune::RemovalResult result = prune::remove_units(*now, groups, units);
    kept = structure.cuts.empty() ? result.kept : prune::compose(kept, result.kept);
    structure.cuts.push_back(result.kept);
    now = result.module;
  }
};

/// The same cuts from the file: the same tensors, which are the kept parts of the dense network's, and the same results.
void expect_made_again(const Narrowed& made, const at::Tensor& x) {
  const std::string text = made.text();
  const Structure read = prune::structure_from_json(text, made.graph());
  EXPECT_TRUE(read == made.structure);
  EXPECT_EQ(prune::structure_to_json(read, made.graph()), text);
  const prune::RemovalResult again = prune::prune_to_structure(*made.dense, read);
  EXPECT_EQ(again.kept, made.kept);
  for (const auto& [name, attribute] : made.graph().attributes()) {
    const at::Tensor part = kept_part(attribute.tensor, again.kept.at(name));
    const graph::Attribute* left = again.module->graph().find_attribute(name);
    ASSERT_TRUE(left) << name;
    EXPECT_TRUE(torch::equal(left->tensor, part)) << name;
  }
  EXPECT_TRUE(torch::equal(again.module->forward(x), made.now->forward(x)));
}

/// Layers one after the other; convolutions are 1 x 1.
struct StructureNet : torch::nn::Module {
  torch::nn::Sequential layers = register_module("layers", torch::nn::Sequential());
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x); }
  StructureNet& conv(const std::string& name, int64_t in, int64_t out, int64_t groups = 1) {
    const auto options = torch::nn::Conv2dOptions(in, out, 1).groups(groups);
    layers->push_back(name, torch::nn::AnyModule(torch::nn::Conv2d(options)));
    return *this;
  }
  StructureNet& group_norm(int64_t groups, int64_t channels) {
    layers->push_back("norm", torch::nn::AnyModule(torch::nn::GroupNorm(groups, channels)));
    return *this;
  }
};

at::Tensor image() {
  torch::manual_seed(7);
  return torch::randn({2, 3, 4, 4});
}

Captured capture_net(StructureNet& net) {
  return capture(net, {image()});
}

/// 24 channels in and out of a convolution with four groups. The first cut takes three of the six channels of each group, the
/// second two groups with what is left of them, the third one of the three channels of each group.
Narrowed grouped(int cuts) {
  torch::manual_seed(1);
  StructureNet net;
  Narrowed made(capture_net(net.conv("in", 3, 24).conv("grouped", 24, 24, 4).conv("out", 24, 2)));
  const prune::Removals removals[] = {{{{1, 3, 4}, {1, 3, 4}}}, {{{1, 3}}}, {{{1}, {1}}}};
  for (int i = 0; i < cuts; ++i) made.cut(removals[i]);
  return made;
}

/// The JSON with a change.
std::string changed(const std::string& text, const std::function<void(json&)>& change) {
  json read = json::parse(text);
  change(read);
  return read.dump();
}

/// EXPECT that a text is refused as a file, with a message that has a part.
void expect_refused(const std::string& text, const graph::Graph& graph, const std::string& part) {
  EXPECT_THROW(prune::structure_from_json(text, graph), FileError) << part;
  EXPECT_ERROR(prune::structure_from_json(text, graph), part);
}

TEST(StructureFile, MakesTheSameCutAgain) {
  for (const char* name : {"resnet20", "mobilenet_v2"}) {
    SCOPED_TRACE(name);
    expect_made_again(Narrowed(name), torch::randn({2, 3, 32, 32}));
  }
}

TEST(StructureFile, HasTheSizesAndWhatWasKeptOfEachCut) {
  const Narrowed made = grouped(2);
  const json file = json::parse(made.text());
  EXPECT_EQ(file["type"], "ulp.prune.Structure");
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["inexact"], false);
  ASSERT_EQ(file["cuts"].size(), 2u);
  const json &first = file["cuts"][0]["layers.out.weight"], &second = file["cuts"][1]["layers.out.weight"];
  EXPECT_EQ(first["sizes"], json({2, 24, 1, 1}));
  EXPECT_EQ(first["kept"], json({{"1", {0, 2, 5, 6, 8, 11, 12, 14, 17, 18, 20, 23}}}));
  EXPECT_EQ(second["sizes"], json({2, 12, 1, 1}));
  EXPECT_EQ(second["kept"], json({{"1", {0, 1, 2, 6, 7, 8}}}));
  EXPECT_FALSE(file["cuts"][0]["layers.out.bias"].contains("kept"));
}

TEST(StructureFile, ExactCutsOfGroupNormsAreMadeAgain) {
  torch::manual_seed(1);
  StructureNet plain;
  Narrowed wide(capture_net(plain.conv("in", 3, 64).group_norm(4, 64).conv("out", 64, 2)));
  wide.cut({{{1}}});  // 16 channels
  EXPECT_EQ(wide.kept.at("layers.in.weight")[0].size(), 48u);
  expect_made_again(wide, image());

  StructureNet both;
  Narrowed joined(
      capture_net(both.conv("in", 3, 8).conv("grouped", 8, 12, 4).group_norm(2, 12).conv("out", 12, 2)));
  joined.cut(0.4, 3);
  EXPECT_EQ(joined.kept.at("layers.norm.weight")[0].size(), 6u);
  expect_made_again(joined, image());

  // With other groups it is not the structure of a cut.
  for (Narrowed* made : {&wide, &joined}) {
    Structure other = made->structure;
    other.inexact = true;
    EXPECT_ERROR(prune::prune_to_structure(*made->dense, other),
                 "expected whole units to go, got a part of unit 0");
  }
}

TEST(StructureFile, InexactCutsOfGroupNormsAreMadeAgain) {
  torch::manual_seed(1);
  StructureNet net;
  Narrowed made(capture_net(net.conv("in", 3, 64).group_norm(4, 64).conv("out", 64, 2)), /*inexact=*/true);
  made.cut({{{4}}});  // a channel of each group
  EXPECT_EQ(made.kept.at("layers.in.weight")[0].size(), 60u);
  EXPECT_EQ(json::parse(made.text())["inexact"], true);
  expect_made_again(made, image());
  Structure other = made.structure;
  other.inexact = false;
  EXPECT_ERROR(prune::prune_to_structure(*made.dense, other),
               "expected whole units to go, got a part of unit 0");
}

TEST(StructureFile, CutsWithinGroupsAndOfWholeGroupsAreMadeAgain) {
  const Narrowed made = grouped(2);
  EXPECT_EQ(made.kept.at("layers.grouped.weight")[0], (std::vector<int64_t>{0, 2, 5, 12, 14, 17}));
  expect_made_again(made, image());
  // The groups of the network before have no units for both cuts at once.
  EXPECT_ERROR(prune::prune_to_structure(*made.dense, {.cuts = {made.kept}}), "expected whole units to go");
}

TEST(StructureFile, ThreeCutsAreMadeAgain) {
  const Narrowed made = grouped(3);
  EXPECT_EQ(made.kept.at("layers.grouped.weight")[0], (std::vector<int64_t>{0, 5, 12, 17}));
  expect_made_again(made, image());

  Narrowed residual("resnet20", 0.2);
  residual.cut(0.2, 4);
  residual.cut(0, 5);  // a cut of nothing
  residual.cut(0.2, 6);
  ASSERT_EQ(residual.structure.cuts.size(), 4u);
  expect_made_again(residual, torch::randn({2, 3, 32, 32}));
}

TEST(StructureFile, WithoutCutsIsACopy) {
  const Narrowed made = grouped(0);
  const json file = json::parse(made.text());
  EXPECT_EQ(file["cuts"], json::array());
  const Structure read = prune::structure_from_json(made.text(), made.graph());
  EXPECT_TRUE(read == Structure{});
  const prune::RemovalResult copy = prune::prune_to_structure(*made.dense, read);
  EXPECT_EQ(copy.kept.at("layers.out.bias"), (std::vector<std::vector<int64_t>>{{0, 1}}));
  for (const auto& [name, attribute] : made.graph().attributes()) {
    const at::Tensor& tensor = copy.module->graph().find_attribute(name)->tensor;
    EXPECT_TRUE(torch::equal(tensor, attribute.tensor)) << name;
    EXPECT_NE(tensor.data_ptr(), attribute.tensor.data_ptr()) << name;
  }
  EXPECT_TRUE(torch::equal(copy.module->forward(image()), made.dense->forward(image())));
}

TEST(StructureFile, RemovalsComeBackSorted) {
  const Narrowed made("resnet20");
  const prune::Removals read =
      prune::removals_from_json(prune::removals_to_json(made.removals, made.groups), made.groups);
  EXPECT_EQ(read.units, made.removals.units);
  const prune::Removals from_kept = prune::removals_of(made.groups, made.kept);
  prune::Removals sorted = made.removals;
  for (auto& units : sorted.units) std::ranges::sort(units);
  EXPECT_EQ(from_kept.units, sorted.units);
}

TEST(StructureFile, TwoCutsInARowAreOne) {
  Narrowed made("resnet20");
  made.cut(0.3, 9);
  const auto at_once = prune::prune_to_structure(*made.dense, {.cuts = {made.kept}});
  const at::Tensor x = torch::randn({2, 3, 32, 32});
  EXPECT_TRUE(torch::equal(at_once.module->forward(x), made.now->forward(x)));
  const Kept &first = made.structure.cuts[0], &second = made.structure.cuts[1];
  EXPECT_ERROR(prune::compose(second, first), "expected indices below");
  Kept part = second;
  part.erase(part.begin());
  EXPECT_ERROR(prune::compose(first, part), "by both cuts, got it by one");
  part = first;
  part.erase(part.begin());
  EXPECT_ERROR(prune::compose(part, second), "by both cuts, got it by one");
}

TEST(StructureFile, AnotherModelsIsRefusedByName) {
  Narrowed made("lenet5", 0.2);
  made.cut(0.2, 4);
  const graph::Graph& graph = made.graph();
  const std::string text = made.text(), name = graph.attributes()[0].first;
  const auto refuses = [&](const std::function<void(json&)>& change, const std::string& part) {
    expect_refused(changed(text, change), graph, part);
  };
  expect_refused(Narrowed("resnet20").text(), graph,
                 "expected the structure of this model, got one with 'bn1.bias' in cut 1");
  // A cut network is another model than the one it was cut from.
  expect_refused(text, made.now->graph(), "of sizes [");
  for (const size_t cut : {0, 1}) {
    const std::string in = " in cut " + std::to_string(cut + 1);
    refuses([&](json& file) { file["cuts"][cut].erase(name); },
            "expected the structure of this model, got one without '" + name + "'" + in);
    refuses(
        [&](json& file) {
          file["cuts"][cut]["other"] = {{"sizes", {1}}};
        },
        "expected the structure of this model, got one with 'other'" + in + ", which it has not");
    refuses([&](json& file) { file["cuts"][cut][name]["sizes"][0] = 99; },
            "got one with '" + name + "' of sizes [99,");
  }
  refuses([](json& file) { std::swap(file["cuts"][0], file["cuts"][1]); }, "in cut 1, which are [");
  refuses([](json& file) { file["cuts"].erase(0); }, "in cut 1, which are [");
  refuses([](json& file) { file["cuts"][1] = file["cuts"][0]; }, "in cut 2, which are [");
}

TEST(StructureFile, RemovalsOfAnotherModelAreRefusedByName) {
  const Narrowed made("lenet5"), other("resnet20");
  const std::string removals = prune::removals_to_json(made.removals, made.groups);
  const auto read = [&](const std::string& file) { prune::removals_from_json(file, made.groups); };
  EXPECT_ERROR(read(prune::removals_to_json(other.removals, other.groups)),
               "expected removals of this model, got 16 units of 'conv1', which has 6");
  EXPECT_ERROR(read(changed(removals, [](json& file) { file["groups"][1]["name"] = "other"; })),
               "expected removals of this model, got the group 'other', where it has '");
  EXPECT_ERROR(read(changed(removals, [](json& file) { file["groups"].erase(file["groups"].end() - 1); })),
               "expected removals of this model, got none of '" + made.groups.groups.back().name() + "'");
  EXPECT_ERROR(read(changed(removals, [](json& file) { file["groups"][0]["units"] = 1000; })),
               "got 1000 units of '" + made.groups.groups[0].name() + "'");
}

TEST(StructureFile, RefusesDamagedFiles) {
  const Narrowed made("lenet5");
  const graph::Graph& graph = made.graph();
  const std::string text = made.text(), name = graph.attributes()[0].first;
  const auto refuses = [&](const std::function<void(json&)>& change, const std::string& part) {
    expect_refused(changed(text, change), graph, part);
  };
  expect_refused("", graph, "expected an object in JSON");
  expect_refused(text.substr(0, text.size() / 2), graph, "expected an object in JSON");
  expect_refused("[]", graph, "expected an object in JSON");
  expect_refused(std::string(100'000, '['), graph, "expected an object in JSON");
  refuses([](json& file) { file["type"] = "ulp.prune.Kept"; }, "expected the type ulp.prune.Structure, got");
  refuses([](json& file) { file.erase("type"); }, "expected the type ulp.prune.Structure, got none");
  refuses([](json& file) { file["version"] = 2; }, "the file is from a newer ulp");
  refuses([](json& file) { file["version"] = "1"; }, "expected a version, got none");
  refuses([](json& file) { file["version"] = UINT64_MAX; }, "expected a version, got none");
  refuses([](json& file) { file["more"] = 1; }, "got 'more'");
  refuses([](json& file) { file.erase("cuts"); }, "expected the field cuts, got none");
  refuses([](json& file) { file.erase("inexact"); }, "expected the field inexact, got none");
  refuses([](json& file) { file["inexact"] = 1; }, "expected true or false as inexact");
  refuses([](json& file) { file["cuts"] = file["cuts"][0]; }, "expected a list as cuts");
  refuses([](json& file) { file["cuts"][0] = nullptr; }, "expected an object as cut 1");
  refuses([](json& file) { file["cuts"].push_back(json::array()); }, "expected an object as cut 2");
  refuses([&](json& file) { file["cuts"][0][name] = 3; }, "expected sizes and kept of '");
  refuses([&](json& file) { file["cuts"][0][name].erase("sizes"); }, "expected sizes and kept of '");
  refuses([&](json& file) { file["cuts"][0][name]["more"] = 3; }, "expected sizes and kept of '");
  refuses([&](json& file) { file["cuts"][0][name]["sizes"] = {-6}; },
          "expected a list of whole numbers from 0");
  refuses([&](json& file) { file["cuts"][0][name]["sizes"] = {UINT64_MAX}; },
          "expected a list of whole numbers from 0");
  refuses([&](json& file) { file["cuts"][0][name]["sizes"] = {INT64_MAX}; },
          "of sizes [9223372036854775807]");
  refuses([&](json& file) { file["cuts"][0][name]["kept"] = {0}; }, "expected an object as kept of '");
  for (const char* dim : {"7", "-1", "00", "", "0 "})
    refuses([&](json& file) { file["cuts"][0][name]["kept"][dim] = {0}; }, "expected dimensions of '");
}

TEST(StructureFile, RefusesIndicesThatAreNone) {
  const Narrowed made("lenet5");
  const std::string text = made.text(), name = made.graph().attributes()[0].first;
  const auto refuses = [&](const json& indices, const std::string& part) {
    expect_refused(changed(text, [&](json& file) { file["cuts"][0][name]["kept"]["0"] = indices; }),
                   made.graph(), part);
  };
  const json lists[] = {{2, 1}, {1, 1}, {0, 1000}, {0, 6}, {INT64_MAX}, json::array()};
  for (const json& list : lists) refuses(list, "expected rising indices below 6 as dimension 0 of '" + name);
  const json others[] = {{-1, 1}, {0.5},   {UINT64_MAX},  json::array({json::array({0})}),
                         "all",   nullptr, json::object()};
  for (const json& other : others) refuses(other, "expected a list of whole numbers from 0");

  const std::string removals = prune::removals_to_json(made.removals, made.groups);
  const auto removed = [&](const json& units) {
    prune::removals_from_json(changed(removals, [&](json& file) { file["groups"][0]["removed"] = units; }),
                              made.groups);
  };
  EXPECT_ERROR(removed({0, 0}), "expected each unit of");
  EXPECT_ERROR(removed({100000}), "expected units below");
  EXPECT_ERROR(removed(nullptr), "expected a list of whole numbers from 0");
}

TEST(StructureFile, ManyCutsOfALargeModelAreRefused) {
  struct Net : torch::nn::Module {
    torch::nn::Linear wide = register_module("wide", torch::nn::Linear(1, 1 << 20));
    at::Tensor forward(const at::Tensor& x) { return wide(x); }
  } net;
  const Captured module = capture(net, {torch::randn({1, 1})});
  json file = json::parse(prune::structure_to_json({}, module->graph()));
  const json cut = {{"wide.weight", {{"sizes", {1 << 20, 1}}}}, {"wide.bias", {{"sizes", {1 << 20}}}}};
  file["cuts"] = std::vector<json>(7, cut);  // short texts for two million indices each
  EXPECT_EQ(prune::structure_from_json(file.dump(), module->graph()).cuts.size(), 7u);
  file["cuts"] = std::vector<json>(1000, cut);
  expect_refused(file.dump(), module->graph(), "indices in all cuts at most, got more");
}

TEST(StructureFile, ChangedBytesAreReadOrRefused) {
  const Narrowed made = grouped(2);
  const std::string text = made.text();
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string file = text;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % file.size();
      if (random() % 4 == 0)
        file.erase(at, 1 + random() % 20);
      else
        file[at] = "0123456789,:[]{}\"-.ea\xff"[random() % 22];
    }
    try {
      prune::prune_to_structure(*made.dense, prune::structure_from_json(file, made.graph()));
    } catch (const Error&) {  // any other exception fails the test
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(StructureFile, IsNotWrittenOfAnotherGraph) {
  const Narrowed made("lenet5");
  const std::string name = made.graph().attributes()[0].first;
  const auto write = [&](const std::function<void(Kept&)>& change) {
    Structure structure = made.structure;
    change(structure.cuts[0]);
    prune::structure_to_json(structure, made.graph());
  };
  EXPECT_ERROR(prune::structure_to_json(made.structure, made.now->graph()), "expected rising indices below");
  EXPECT_ERROR(prune::structure_to_json({.cuts = {made.kept, made.kept}}, made.graph()),
               "expected rising indices below");
  EXPECT_ERROR(write([&](Kept& kept) { kept.erase(name); }), "got cut 1 without '" + name + "'");
  EXPECT_ERROR(write([&](Kept& kept) { kept["other"] = {}; }), "got 'other' in cut 1, which it has not");
  EXPECT_ERROR(write([&](Kept& kept) { kept[name].pop_back(); }), "got '" + name + "' in cut 1");
  EXPECT_ERROR(write([&](Kept& kept) { kept[name][0].clear(); }), "of dimension 0 of '" + name + "', got []");
  EXPECT_ERROR(write([&](Kept& kept) {
                 kept[name][0] = {1, 0};
               }),
               "of dimension 0 of '" + name + "', got [1,0]");
  EXPECT_ERROR(write([&](Kept& kept) {
                 kept[name][0] = {-1, 0};
               }),
               "of dimension 0 of '" + name + "', got [-1,0]");
}

TEST(StructureFile, APartOfAUnitIsNoCut) {
  const Narrowed made("lenet5");
  const auto cut_with = [&](const std::function<void(Kept&)>& change) {
    Structure structure = made.structure;
    change(structure.cuts[0]);
    prune::prune_to_structure(*made.dense, structure);
  };
  for (const auto& [name, dims] : made.kept) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].size() < 2) continue;
      EXPECT_ERROR(cut_with([&](Kept& kept) { kept[name][d].pop_back(); }), "expected ") << name << " " << d;
    }
  }
  const std::string name = made.kept.begin()->first;
  EXPECT_ERROR(cut_with([&](Kept& kept) { kept.erase(name); }), "expected what was kept of '" + name + "'");
  EXPECT_ERROR(cut_with([&](Kept& kept) { kept["other"] = {}; }), "got one with 'other' in cut 1");
  EXPECT_ERROR(prune::prune_to_structure(*made.now, made.structure), "expected ");
}

}  // namespace
}  // namespace ulp::test
