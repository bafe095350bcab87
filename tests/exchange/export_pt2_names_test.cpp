// Names of tensors in archives of torch.export: PyTorch makes attributes of modules of them.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "captured_function.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/exchange/pt2/tensor_names.h"

namespace ulp::test {

namespace {

using exchange::pt2::attribute_names;
using exchange::pt2::is_attribute_path;
using Names = std::vector<std::string>;

std::set<std::string> modules_in(const std::set<std::string>& names) {
  std::set<std::string> modules;
  for (const std::string& name : names) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      modules.insert(name.substr(0, dot));
  }
  return modules;
}

/// Different names of up to three parts, most of which Python has for other things.
Names drawn_names(std::mt19937& random, size_t count) {
  const Names parts = {"a",  "b",   "self",  "forward", "training", "lambda", "class", "type",  "graph",
                       "0",  "1x",  "\xc3",  "a@1",     "a/b",      "q\"",    "\\",    "",      "__dict__",
                       "_1", "a_1", "self_", "class_",  "lambda__", "b_1",    "\n",    "weight"};
  std::set<std::string> names;
  while (names.size() < count) {
    std::string name = parts[random() % parts.size()];
    for (size_t more = random() % 3; more > 0; --more) name += "." + parts[random() % parts.size()];
    names.insert(name);
  }
  Names all(names.begin(), names.end());
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

}  // namespace

TEST(ExportPt2Names, OnlyNamesThatDoNotWorkChange) {
  const Names kept = {"layers.0.weight",
                      "encoder.self.query.weight",
                      "onnx::MatMul_12",
                      "bias/1",
                      "1x",
                      "a b",
                      "a.graph",
                      "a.b",
                      "matcher.case",
                      "x",
                      "x_1",
                      "torch"};
  for (const auto& [name, written] : attribute_names(kept)) EXPECT_EQ(written, name);
  for (const char* name :
       {"self", "forward", "a.forward.w", "training", "lambda", "a.class", "graph.w", "code", "_parameters",
        "a.type", "a.", "a..b", ".a", "a\"", "a\\", "a\n", "\xc3\xa9", "a@1.w", "__dict__"})
    EXPECT_FALSE(is_attribute_path(name)) << name;
}

TEST(ExportPt2Names, AModuleKeepsItsNameBesideATensor) {
  using Map = std::map<std::string, std::string>;
  EXPECT_EQ(attribute_names({"a", "a.b", "a.b.c"}),
            (Map{{"a", "a_1"}, {"a.b", "a.b_1"}, {"a.b.c", "a.b.c"}}));
  EXPECT_EQ(attribute_names({"a", "a_1", "a.b"}), (Map{{"a", "a_2"}, {"a_1", "a_1"}, {"a.b", "a.b"}}));
  EXPECT_EQ(attribute_names({"type", "type_", "type_.w"}),
            (Map{{"type", "type__1"}, {"type_", "type__2"}, {"type_.w", "type_.w"}}));
  EXPECT_EQ(attribute_names({"class_", "class.w"}), (Map{{"class_", "class_"}, {"class.w", "class__1.w"}}));
}

TEST(ExportPt2Names, DrawnNamesBecomeDifferentPathsNoneOfWhichBeginsAnother) {
  std::mt19937 random(38);
  for (int round = 0; round < 200; ++round) {
    const Names names = drawn_names(random, 40);
    const std::map<std::string, std::string> written = attribute_names(names);
    const std::set<std::string> given(names.begin(), names.end());
    const std::set<std::string> all_modules = modules_in(given);
    std::set<std::string> unique;
    ASSERT_EQ(written.size(), names.size());
    for (const auto& [name, result] : written) {
      EXPECT_TRUE(is_attribute_path(result)) << name << " " << result;
      EXPECT_TRUE(unique.insert(result).second) << result;
      if (is_attribute_path(name) && !all_modules.contains(name)) {
        EXPECT_EQ(result, name);
      }
    }
    for (const std::string& module : modules_in(unique)) EXPECT_FALSE(unique.contains(module)) << module;
  }
}

TEST(ExportPt2Names, EveryTensorIsThereUnderItsNewName) {
  std::mt19937 random(39);
  const Names names = drawn_names(random, 30);
  const auto module = captured_function([](const at::Tensor& x) { return x * 2; }, torch::ones({2, 3}));
  for (size_t i = 0; i < names.size(); ++i) {
    const auto kind = i % 2 == 0 ? graph::Attribute::Kind::parameter : graph::Attribute::Kind::buffer;
    module->graph().set_attribute(names[i], {kind, torch::full({2}, static_cast<double>(i))});
  }
  const TemporaryFolder folder;
  exchange::export_pt2(*module, folder / "m.pt2");
  const auto entries = pt2_entries(folder / "m.pt2");
  const auto config =
      nlohmann::json::parse(entries.at("data/weights/model_weights_config.json")).at("config");
  ASSERT_EQ(config.size(), names.size());
  for (const auto& [name, written] : attribute_names(names)) {
    const std::string& bytes =
        entries.at("data/weights/" + config.at(written).at("path_name").get<std::string>());
    float value = -1;
    std::memcpy(&value, bytes.data(), sizeof(value));
    EXPECT_EQ(value, module->graph().find_attribute(name)->tensor[0].item<float>()) << name;
  }
}

/// The old names are not in the archive.
TEST(ExportPt2Names, ChangedNamesComeBackAsTheyWereWritten) {
  torch::manual_seed(40);
  auto net = std::make_shared<FunctionNet>();
  const auto first = net->register_module("class", torch::nn::Linear(3, 4));
  const auto second = net->register_module("a", torch::nn::Linear(4, 3));
  const at::Tensor scale = net->register_parameter("a", torch::randn({3}));
  const at::Tensor shift = net->register_buffer("forward", torch::randn({3}));
  net->body = [=](const at::Tensor& x) { return second->forward(first->forward(x)) * scale + shift; };
  const auto module = captured_net(net, torch::randn({2, 3}));
  const auto back = exchange::import_pt2(exchange::export_pt2(*module), "model.pt2");
  const std::map<std::string, std::string> expected = {
      {"class.weight", "class_.weight"}, {"class.bias", "class_.bias"}, {"a", "a_1"},
      {"a.weight", "a.weight"},          {"a.bias", "a.bias"},          {"forward", "forward_"}};
  std::set<std::string> written;
  for (const auto& [name, changed] : expected) {
    written.insert(changed);
    const graph::Attribute *before = module->graph().find_attribute(name),
                           *after = back->graph().find_attribute(changed);
    ASSERT_TRUE(before != nullptr && after != nullptr) << name;
    EXPECT_TRUE(torch::equal(before->tensor, after->tensor)) << name;
    EXPECT_EQ(before->kind, after->kind) << name;
  }
  std::set<std::string> found;
  for (const auto& item : back->named_parameters()) found.insert(item.key());
  for (const auto& item : back->named_buffers()) found.insert(item.key());
  EXPECT_EQ(found, written);
  const at::Tensor x = torch::randn({5, 3});
  EXPECT_TRUE(torch::equal(back->forward(x), net->forward(x)));
}

}  // namespace ulp::test
