// Programs of torch.export whose sizes or numbers follow the data: refused by the name of the node.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "captured_function.h"
#include "error_of.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/import_pt2.h"

namespace {

using Json = nlohmann::json;

/// The archive of a module, in which `edit` changes each node of one target.
template <typename Edit>
std::filesystem::path with_node(const std::filesystem::path& folder, const ulp::graph::GraphModule& module,
                                const std::string& target, const Edit& edit) {
  const std::filesystem::path path = folder / "model.pt2";
  ulp::exchange::export_pt2(module, path);
  auto entries = ulp::test::pt2_entries(path);
  Json program = Json::parse(entries.at("models/model.json"));
  int changed = 0;
  for (Json& node : program["graph_module"]["graph"]["nodes"]) {
    if (node["target"] != target) continue;
    edit(node);
    ++changed;
  }
  EXPECT_EQ(changed, 1) << target;
  entries["models/model.json"] = program.dump();
  ulp::test::write_pt2(path, entries);
  return path;
}

/// x.relu() with another operator in its place, and further arguments.
std::filesystem::path with_operator(const std::filesystem::path& folder, const std::string& target,
                                    const Json& further = Json::array()) {
  const auto module =
      ulp::test::captured_function([](const at::Tensor& x) { return x.relu(); }, torch::ones({2, 6}));
  return with_node(folder, *module, "torch.ops.aten.relu.default", [&](Json& node) {
    node["target"] = target;
    for (const Json& one : further) node["inputs"].push_back(one);
  });
}

TEST(Pt2DataSizes, OperatorsWhoseSizesFollowTheDataAreRefusedByName) {
  const ulp::test::TemporaryFolder folder;
  for (const std::string op : {"nonzero.default", "argwhere.default", "unique_consecutive.default",
                               "_unique2.default", "bincount.default"}) {
    const std::string text = ulp::test::error_of(
        [&] { ulp::exchange::import_pt2(with_operator(folder.path(), "torch.ops.aten." + op)); });
    EXPECT_NE(text.find("(torch.ops.aten." + op +
                        "): expected results whose sizes follow the sizes of the "
                        "inputs, got sizes that follow the data, the numbers of"),
              std::string::npos)
        << text;
  }
}

TEST(Pt2DataSizes, NumbersOfTheDataAreRefusedByName) {
  const ulp::test::TemporaryFolder folder;
  EXPECT_ERROR(
      ulp::exchange::import_pt2(with_operator(folder.path(), "torch.ops.aten._local_scalar_dense.default")),
      "(torch.ops.aten._local_scalar_dense.default): expected sizes and arguments that follow the sizes of");
}

TEST(Pt2DataSizes, MasksOfTheInputsAreRefusedByName) {
  const ulp::test::TemporaryFolder folder;
  const auto filled = ulp::test::captured_function(
      [](const at::Tensor& x) { return x.masked_fill(x.gt(0), 1); }, torch::ones({2, 6}));
  const auto select = [](Json& node) {
    node["target"] = "torch.ops.aten.masked_select.default";
    node["inputs"].erase(2);
  };
  EXPECT_ERROR(ulp::exchange::import_pt2(
                   with_node(folder.path(), *filled, "torch.ops.aten.masked_fill.Scalar", select)),
               "(torch.ops.aten.masked_select.default): expected results whose sizes follow");
  const auto indexed = ulp::test::captured_function(
      [](const at::Tensor& x) { return x.index({x.sum(1).gt(0).to(torch::kLong)}); }, torch::ones({2, 6}));
  std::string mask;
  const auto remember = [&](Json& node) { mask = node["outputs"][0]["as_tensor"]["name"]; };
  with_node(folder.path(), *indexed, "torch.ops.aten.gt.Scalar", remember);
  const auto index = [&](Json& node) {
    node["inputs"][1]["arg"]["as_optional_tensors"][0]["as_tensor"]["name"] = mask;
  };
  EXPECT_ERROR(
      ulp::exchange::import_pt2(with_node(folder.path(), *indexed, "torch.ops.aten.index.Tensor", index)),
      "(torch.ops.aten.index.Tensor): expected results whose sizes follow");
}

/// A buffer is the same in every run, and so is what it selects.
TEST(Pt2DataSizes, MasksThatAreBuffersSelect) {
  auto net = std::make_shared<ulp::test::FunctionNet>();
  const at::Tensor mask = net->register_buffer("mask", torch::tensor({true, false, true, true, false, true}));
  net->body = [&](const at::Tensor& x) { return x.mul(1.0).masked_fill(mask, 0.5); };
  const auto module = ulp::test::captured_net(net, torch::ones({2, 6}));
  const ulp::test::TemporaryFolder folder;
  const auto select = [](Json& node) {
    node["target"] = "torch.ops.aten.masked_select.default";
    node["inputs"].erase(2);
  };
  const auto read = ulp::exchange::import_pt2(
      with_node(folder.path(), *module, "torch.ops.aten.masked_fill.Scalar", select));
  const at::Tensor x = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(read->forward_all({x}).at(0), x.masked_select(mask)));
}

/// Products are left out while an archive is read; what depends on their numbers has to have them.
TEST(Pt2DataSizes, NumbersOfProductsOfStoredTensorsAreThemselves) {
  const ulp::test::TemporaryFolder folder;
  torch::manual_seed(3);
  const at::Tensor wide = torch::randn({90, 70}), image = torch::ones({1, 3, 3, 3});
  auto net = std::make_shared<ulp::test::FunctionNet>();
  const at::Tensor stored = net->register_buffer("stored", wide),
                   small = net->register_buffer("small", image);
  const at::Tensor x = torch::randn({2, 70});
  for (const auto& body : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [&](const at::Tensor& y) { return y.mm(at::linalg_inv(stored.t().mm(stored))); },
           [&](const at::Tensor& y) { return y.mm(at::linalg_cholesky(stored.t().mm(stored))); },
           [&](const at::Tensor& y) { return at::linalg_solve(stored.t().mm(stored), y.t()); }}) {
    net->body = body;
    const auto module = ulp::test::captured_net(net, x);
    ulp::exchange::export_pt2(*module, folder.path() / "model.pt2");
    const auto again = ulp::exchange::import_pt2(folder.path() / "model.pt2");
    EXPECT_TRUE(at::allclose(again->forward(x), body(x)));
  }
  // x * conv2d(small, small).sum().item()
  net->body = [&](const at::Tensor& y) { return y.mul(at::conv2d(small, small).sum()); };
  const auto path = folder.path() / "item.pt2";
  ulp::exchange::export_pt2(*ulp::test::captured_net(net, x), path);
  auto entries = ulp::test::pt2_entries(path);
  Json program = Json::parse(entries.at("models/model.json"));
  Json& graph = program["graph_module"]["graph"];
  Json& nodes = graph["nodes"];
  const auto found = std::ranges::find(nodes, Json("torch.ops.aten.mul.Tensor"),
                                       [](const Json& node) { return node["target"]; });
  ASSERT_NE(found, nodes.end());
  Json item = *found;
  item["target"] = "torch.ops.aten.item.default";
  item["inputs"] = Json::array({(*found)["inputs"][1]});
  item["inputs"][0]["name"] = "self";
  item["outputs"] = Json::array({{{"as_sym_float", {{"as_name", "item"}}}}});
  (*found)["inputs"][1]["arg"] = {{"as_sym_float", {{"as_name", "item"}}}};
  graph["sym_float_values"]["item"] = {{"as_expr", {{"expr_str", "Symbol('zuf0')"}, {"hint", nullptr}}}};
  nodes.insert(found, item);
  entries["models/model.json"] = program.dump();
  ulp::test::write_pt2(path, entries);
  EXPECT_TRUE(ulp::exchange::import_pt2(path)->forward(x).allclose(x.mul(27)));
}

}  // namespace
