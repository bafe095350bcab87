// Formats and places of tensors that wait for the backward pass.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/memory/saved/group_quantization.h"
#include "ulp/memory/saved/packed_bits.h"
#include "ulp/memory/saved/saved_options.h"
#include "ulp/memory/saved/spill_file.h"

namespace {

using namespace ulp::memory;

torch::Tensor decoded(const GroupCodes& codes, int bits, int64_t group, const torch::Tensor& like) {
  at::Tensor result = torch::empty_like(like);
  decode_groups(codes, bits, group, result);
  return result;
}

TEST(GroupCodes, LieWithinOneStepAndTheirMeanIsTheValue) {
  torch::manual_seed(2);
  for (const int bits : {8, 4}) {
    const int64_t group = 128;
    const torch::Tensor values = torch::randn({3, 171}) * 2 + 1;  // the last group is short
    torch::Tensor sum = torch::zeros_like(values, torch::kDouble);
    const int64_t draws = 4000;
    torch::Tensor step;
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const auto codes = encode_groups(values, bits, group, {7, draw});
      ASSERT_TRUE(codes);
      const torch::Tensor found = decoded(*codes, bits, group, values);
      step = codes->step.repeat_interleave(group).slice(0, 0, values.numel()).view_as(values);
      ASSERT_TRUE((found - values).abs().le(step * 1.0001 + 1e-6).all().item<bool>());
      sum += found;
    }
    // The error of one draw is uniform in no more than two points a step apart: deviation at most step / 2.
    const torch::Tensor error = (sum / static_cast<double>(draws) - values).abs();
    const torch::Tensor bound =
        5 * step.to(torch::kDouble) / 2 / std::sqrt(static_cast<double>(draws)) + 1e-5;
    EXPECT_TRUE(error.le(bound).all().item<bool>())
        << bits << " bits: " << (error / bound).max().item<double>();
  }
}

TEST(GroupCodes, KeepZerosAndConstantsAndRefuseWhatIsNotFinite) {
  for (const int bits : {8, 4}) {
    const torch::Tensor values = torch::randn({5, 64}).relu();
    const torch::Tensor found = decoded(*encode_groups(values, bits, 64, {1, 0}), bits, 64, values);
    EXPECT_TRUE(found.masked_select(values.eq(0)).eq(0).all().item<bool>());
    const torch::Tensor constant = torch::full({100}, 0.3, torch::kBFloat16);
    EXPECT_TRUE(decoded(*encode_groups(constant, bits, 64, {1, 0}), bits, 64, constant).equal(constant));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      torch::Tensor spoiled = values.clone();
      spoiled[4][3] = bad;
      EXPECT_FALSE(encode_groups(spoiled, bits, 64, {1, 0}));
    }
  }
}

TEST(GroupCodes, DependOnTheKeyAlone) {
  const torch::Tensor values = torch::randn({70000});
  const auto a = encode_groups(values, 4, 256, {1, 2}), b = encode_groups(values, 4, 256, {1, 2});
  const auto other = encode_groups(values, 4, 256, {1, 3});
  EXPECT_TRUE(a->codes.equal(b->codes));
  EXPECT_FALSE(a->codes.equal(other->codes));
  EXPECT_EQ(a->codes.numel(), 35000);
}

TEST(BitCodes, HoldTwoPatternsExactly) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kBool}) {
    const torch::Tensor mask = torch::rand({37, 11}).gt(0.5);
    const torch::Tensor values = dtype == torch::kBool ? mask : (mask.to(torch::kFloat) / 0.9).to(dtype);
    const auto codes = encode_two_values(values);
    ASSERT_TRUE(codes) << dtype;
    EXPECT_EQ(codes->bits.numel(), (37 * 11 + 7) / 8);
    at::Tensor found = torch::empty_like(values);
    decode_bits(*codes, found);
    EXPECT_TRUE(found.equal(values)) << dtype;
  }
  EXPECT_FALSE(encode_two_values(torch::tensor({0.F, 1.F, 2.F})));
  EXPECT_FALSE(encode_two_values(torch::tensor({0.F, -0.F, 2.F}))) << "a negative zero is another pattern";
  EXPECT_FALSE(encode_two_values(torch::tensor({int64_t{0}, int64_t{1}})));
  const auto zeros = encode_two_values(torch::zeros({9}));
  at::Tensor found = torch::ones({9});
  decode_bits(*zeros, found);
  EXPECT_TRUE(found.equal(torch::zeros({9})));
}

TEST(BitCodes, OfARangeAnswerAsTheBackwardAsks) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const torch::Tensor values = torch::tensor({-inf, -1.F, -0.F, 0.F, 1e-45F, 3.F, 6.F, 7.F, inf, nan});
  at::Tensor relu = torch::empty_like(values), relu6 = torch::empty_like(values);
  decode_bits(encode_range(values, 0, nan, 1), relu);
  decode_bits(encode_range(values, 0, 6, 3), relu6);
  const torch::Tensor gradient = torch::arange(1, 11, torch::kFloat);
  EXPECT_TRUE(at::threshold_backward(gradient, relu, 0).equal(at::threshold_backward(gradient, values, 0)));
  EXPECT_TRUE(
      at::hardtanh_backward(gradient, relu6, 0, 6).equal(at::hardtanh_backward(gradient, values, 0, 6)));
}

TEST(SpillFile, GivesBackWhatItTookInAnyOrder) {
  const ulp::test::TemporaryFolder folder;
  const auto file = SpillFile::open(folder.path().string());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has a name";
  std::vector<torch::Tensor> tensors;
  std::vector<std::shared_ptr<SpillFile::Entry>> entries;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back(i % 3 ? torch::randn({100 + i, 300})
                            : torch::randn({10, 20, 7 + i}).to(torch::kHalf).transpose(0, 1));
    entries.push_back(file->write(tensors.back()));
  }
  for (int i = 39; i >= 0; --i) {
    if (i >= 4) entries[static_cast<size_t>(i - 4)]->announce();
    const at::Tensor found = entries[static_cast<size_t>(i)]->get();
    EXPECT_TRUE(found.equal(tensors[static_cast<size_t>(i)])) << i;
    EXPECT_EQ(found.strides(), tensors[static_cast<size_t>(i)].strides());
    if (i % 2) entries[static_cast<size_t>(i)].reset();
  }
  EXPECT_TRUE(entries[0]->get().equal(tensors[0])) << "asked twice";
}

TEST(SpillFile, UsesSpaceAgain) {
  const auto file = SpillFile::open("");
  const torch::Tensor tensor = torch::randn({1 << 18});
  for (int round = 0; round < 8; ++round) {
    const auto a = file->write(tensor), b = file->write(tensor);
    while (file->bytes_written() < (round + 1) * 2 * tensor.numel() * 4) std::this_thread::yield();
    EXPECT_TRUE(b->get().equal(tensor));
  }
  EXPECT_EQ(file->size(), 2 * tensor.numel() * 4);
}

TEST(SpillFile, MayGoWhileItStillWrites) {
  for (int i = 0; i < 50; ++i) {
    auto file = SpillFile::open("");
    auto entry = file->write(torch::zeros({1 << 18}));
    file.reset();
    std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    entry.reset();  // its writer may be the last that knows it
  }
}

TEST(SpillFile, SaysWhichFolderItDoesNotGet) {
  EXPECT_ERROR(SpillFile::open("/no/such/folder"), "/no/such/folder");
}

TEST(SavedOptions, AreChecked) {
  SavedOptions options;
  EXPECT_FALSE(options.active());
  options.group = 100;
  EXPECT_ERROR(options.validate(), "multiple of 64");
  options.group = 32;
  EXPECT_ERROR(options.validate(), "group");
}

}  // namespace
