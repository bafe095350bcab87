// Numbers that a torch.export program computes from sizes: straight, or refused by name.
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

/// Of a program that cuts columns at batch * 6: the archive with another function in the place of the
/// product.
std::filesystem::path with_function(const std::filesystem::path& folder, const std::string& function,
                                    int64_t number = 6) {
  const auto module = ulp::test::captured_function(
      [](const at::Tensor& x) { return x.mul(2).slice(1, 0, x.size(0) * 6); }, torch::ones({2, 6}));
  const std::filesystem::path path = folder / "model.pt2";
  ulp::exchange::export_pt2(*module, path);
  auto entries = ulp::test::pt2_entries(path);
  nlohmann::json program = nlohmann::json::parse(entries.at("models/model.json"));
  int changed = 0;
  for (nlohmann::json& node : program["graph_module"]["graph"]["nodes"]) {
    if (node["target"] != "_operator.mul") continue;
    node["target"] = function;
    node["inputs"][1]["arg"] = {{"as_int", number}};
    ++changed;
  }
  EXPECT_EQ(changed, 1);
  entries["models/model.json"] = program.dump();
  ulp::test::write_pt2(path, entries);
  return path;
}

TEST(Pt2Sizes, NumbersThatBendAreRefusedByName) {
  const ulp::test::TemporaryFolder folder;
  for (const std::string function :
       {"_operator.mod", "torch.sym_min", "torch.sym_max", "_operator.floordiv"}) {
    EXPECT_ERROR(
        ulp::exchange::import_pt2(with_function(folder.path(), function)),
        "(" + function + "): expected a number that follows the sizes of the inputs by a polynomial");
  }
}

TEST(Pt2Sizes, WhatIsStraightWhereTheProgramRunsIsRead) {
  const ulp::test::TemporaryFolder folder;
  // max(6, n) is no line; max(n, -6) is one.
  const std::filesystem::path path = with_function(folder.path(), "torch.sym_max", -6);
  const at::Tensor x = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(ulp::exchange::import_pt2(path)->forward_all({x}).at(0), x.mul(2).slice(1, 0, 5)));
}

TEST(Pt2Sizes, ProductsAreRead) {
  const ulp::test::TemporaryFolder folder;
  const auto module = ulp::exchange::import_pt2(with_function(folder.path(), "_operator.mul"));
  const at::Tensor x = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(module->forward_all({x}).at(0), x.mul(2)));
}

/// The runs that look for such numbers leave the tensors of the program alone.
TEST(Pt2Sizes, BuffersThatAProgramWritesInPlaceStartAsTheyWereStored) {
  auto net = std::make_shared<ulp::test::FunctionNet>();
  const at::Tensor count = net->register_buffer("count", torch::zeros({1}));
  net->body = [=](const at::Tensor& x) { return x.mul(2).slice(1, 0, x.size(0) * 6).add(count.add(1.0)); };
  const ulp::test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.pt2";
  ulp::exchange::export_pt2(*ulp::test::captured_net(net, torch::ones({2, 6})), path);
  auto entries = ulp::test::pt2_entries(path);
  nlohmann::json program = nlohmann::json::parse(entries.at("models/model.json"));
  int in_place = 0, numbers = 0;
  for (nlohmann::json& node : program["graph_module"]["graph"]["nodes"]) {
    const std::string target = node["target"], add = "torch.ops.aten.add.";
    if (target.starts_with(add) && !node["inputs"][1]["arg"].contains("as_tensor")) {
      node["target"] = "torch.ops.aten.add_." + target.substr(add.size());
      ++in_place;
    } else if (target == "_operator.mul") {
      node["target"] = "torch.sym_max";  // so that the numbers are looked at
      node["inputs"][1]["arg"] = {{"as_int", -6}};
      ++numbers;
    }
  }
  ASSERT_EQ(in_place, 1);
  ASSERT_EQ(numbers, 1);
  entries["models/model.json"] = program.dump();
  ulp::test::write_pt2(path, entries);
  const auto module = ulp::exchange::import_pt2(path);
  const at::Tensor kept = module->named_buffers()["count"], x = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(kept, torch::zeros({1})));
  for (const double times : {1, 2})
    EXPECT_TRUE(torch::equal(module->forward_all({x}).at(0), x.mul(2).slice(1, 0, 5).add(times))) << times;
  EXPECT_TRUE(torch::equal(kept, torch::full({1}, 2.0)));
}

}  // namespace
