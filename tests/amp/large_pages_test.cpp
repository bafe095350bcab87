#include "ulp/amp/optimizer/large_pages.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

TEST(LargePages, AreZerosInTheLayoutOfTheOther) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {0}, {3}, {4, 5, 6, 7}, {2, 64, 128, 128}}) {
    at::Tensor like = torch::ones(sizes, torch::requires_grad());
    if (like.dim() == 4) like = like.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor zeros = ulp::amp::zeros_on_large_pages(like, torch::kBFloat16);
    EXPECT_TRUE(torch::equal(zeros, torch::zeros(sizes, torch::kBFloat16)));
    EXPECT_EQ(zeros.strides(), like.strides());
    EXPECT_FALSE(zeros.requires_grad());
  }
}

/// The kernel's flags of the mapping that holds an address ("rd wr mr mw me ac hg"): the line VmFlags of
/// /proc/self/smaps.
std::string flags_of_mapping(uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= address && address < end;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST(LargePages, TheKernelIsAskedForThem) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "no such kernel";
  const at::Tensor like = torch::empty({1 << 25}, torch::kBFloat16);
  const auto middle = [](const at::Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) + tensor.nbytes() / 2;
  };
  const std::string before = flags_of_mapping(middle(like));
  if (before.empty()) GTEST_SKIP() << "the kernel shows no flags of mappings";
  if (before.find(" hg ") != std::string::npos) GTEST_SKIP() << "this process asks for them everywhere";
  const at::Tensor zeros = ulp::amp::zeros_on_large_pages(like, torch::kFloat);
  EXPECT_NE(flags_of_mapping(middle(zeros)).find(" hg "), std::string::npos)
      << flags_of_mapping(middle(zeros));
}

}  // namespace
