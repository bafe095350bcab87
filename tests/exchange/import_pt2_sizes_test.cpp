// Numbers that a torch.export program computes from sizes: straight, or refused by name.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/import_pt2.h"

namespace {

/// Of a program whose view takes batch * 6 as a number: the archive with another function in the place of the product.
std::filesystem::path with_function(const std::filesystem::path& folder, const std::string& function) {
  const auto module = ulp::test::captured_function(
      [](const at::Tensor& x) { return x.mul(2).view({x.size(0) * 6}); }, torch::ones({2, 6}));
  const std::filesystem::path path = folder / "model.pt2";
  ulp::exchange::export_pt2(*module, path);
  auto entries = ulp::test::pt2_entries(path);
  std::string& program = entries.at("models/model.json");
  const std::string product = "\"_operator.mul\"";
  const size_t place = program.find(product);
  EXPECT_NE(place, std::string::npos);
  program.replace(place, product.size(), '"' + function + '"');
  ulp::test::write_pt2(path, entries);
  return path;
}

TEST(Pt2Sizes, NumbersThatBendAreRefusedByName) {
  const ulp::test::TemporaryFolder folder;
  for (const std::string function : {"_operator.mod", "torch.sym_min", "torch.sym_max", "_operator.gt"}) {
    EXPECT_ERROR(
        ulp::exchange::import_pt2(with_function(folder.path(), function)),
        "(" + function + "): expected a number that follows the sizes of the inputs by a polynomial");
  }
}

TEST(Pt2Sizes, ProductsAreRead) {
  const ulp::test::TemporaryFolder folder;
  const auto module = ulp::exchange::import_pt2(with_function(folder.path(), "_operator.mul"));
  const at::Tensor x = torch::randn({5, 6});
  EXPECT_TRUE(torch::equal(module->forward_all({x}).at(0), x.mul(2).view(-1)));
}

}  // namespace
