#include "ulp/prune/masks/bit_mask.h"

#include "support.h"
#include "ulp/prune/masks/apply_mask.h"

namespace ulp::prune::tests {
namespace {

TEST(BitMask, ElementIIsBitIModulo8OfByteIDividedBy8) {
  const at::Tensor keep = torch::zeros({2, 9}, at::kBool);
  for (const int i : {0, 3, 7, 8, 15, 17}) keep.view(-1)[i] = true;
  const at::Tensor bits = pack_mask(keep);
  ASSERT_EQ(bits.sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(bits[0].item<int>(), 0x89);
  EXPECT_EQ(bits[1].item<int>(), 0x81);
  EXPECT_EQ(bits[2].item<int>(), 0x02);
  EXPECT_EQ(count_kept(bits), 6);
}

TEST(BitMask, EverySizeComesBack) {
  uint64_t seed = 0;
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {0}, {1}, {7}, {8}, {9}, {3, 5, 7}, {4, 0}, {70001}}) {
    const at::Tensor keep = random_mask(sizes, ++seed);
    const at::Tensor bits = pack_mask(keep);
    EXPECT_EQ(bits.numel(), (keep.numel() + 7) / 8);
    EXPECT_TRUE(torch::equal(unpack_mask(bits, sizes), keep));
    EXPECT_EQ(count_kept(bits), keep.sum().item<int64_t>());
  }
  const at::Tensor turned = random_mask({6, 11}, 99).t();  // row-major order, whatever the memory's is
  EXPECT_TRUE(torch::equal(unpack_mask(pack_mask(turned), turned.sizes()), turned));
}

TEST(BitMask, MemoryOrderIsThatOfTheStrides) {
  const at::Tensor keep = random_mask({3, 5, 2, 7}, 4);
  const at::Tensor weight = torch::randn({3, 5, 2, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor bits = libtorch::mask_in_memory_order(pack_mask(keep), weight.sizes(), weight.strides());
  EXPECT_TRUE(torch::equal(unpack_mask(bits, {3, 2, 7, 5}), keep.permute({0, 2, 3, 1})));
}

TEST(BitMask, DamagedMasksAreErrors) {
  const at::Tensor bits = pack_mask(torch::ones({11}, at::kBool));
  EXPECT_SAYS(error_of([&] { unpack_mask(bits, {17}); }), "of 3 bytes for 17 elements, got 2");
  EXPECT_SAYS(error_of([&] { unpack_mask(bits, {10}); }), "without bits behind its 10 elements");
  EXPECT_SAYS(error_of([&] { unpack_mask(bits.to(at::kInt), {11}); }), "uint8");
  EXPECT_SAYS(error_of([&] { unpack_mask({}, {11}); }), "got no tensor");
  EXPECT_SAYS(error_of([&] { pack_mask(torch::ones({11})); }), "expected a mask of bools");
}

TEST(ApplyMask, KeptElementsHaveTheirBitsAndOthersAreZero) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const bool channels_last : {false, true}) {
      at::Tensor weight = torch::randn({3, 5, 3, 3}).to(type);
      if (channels_last) weight = weight.contiguous(at::MemoryFormat::ChannelsLast);
      weight.select(0, 0).select(0, 0).fill_(NAN);
      weight.select(0, 0).select(0, 1).fill_(-0.0);
      weight.select(0, 1).select(0, 0).fill_(-INFINITY);
      const at::Tensor keep = random_mask(weight.sizes(), 7);
      const at::Tensor result = apply_mask(weight, pack_mask(keep));
      EXPECT_EQ(result.strides(), weight.strides());
      EXPECT_TRUE(same_bits(result.masked_select(keep), weight.masked_select(keep)));
      const at::Tensor others = result.masked_select(~keep);
      EXPECT_TRUE(same_bits(others, torch::zeros_like(others))) << type;
    }
  }
}

TEST(ApplyMask, EveryLengthAndEveryPlaceOfAMask) {
  for (const int64_t size : {0, 1, 63, 64, 65, 130, 5000}) {
    const at::Tensor weight = torch::randn({size}) + 5, keep = random_mask({size}, 5);
    const at::Tensor bits = pack_mask(keep);
    EXPECT_TRUE(torch::equal(apply_mask(weight, bits), weight * keep)) << size;
    const at::Tensor shifted = torch::cat({torch::zeros({3}, at::kByte), bits}).slice(0, 3);  // not aligned
    EXPECT_TRUE(torch::equal(apply_mask(weight, shifted), weight * keep)) << size;
  }
}

TEST(ApplyMask, TheGradientIsMaskedTooAndDifferentiableAgain) {
  const at::Tensor keep = random_mask({4, 5}, 3);
  const at::Tensor bits = pack_mask(keep);
  at::Tensor w = torch::randn({4, 5}, at::kDouble).requires_grad_();
  const at::Tensor y = apply_mask(w, bits);
  const at::Tensor first = torch::autograd::grad({(y * y * y).sum()}, {w}, {}, {}, /*create_graph=*/true)[0];
  EXPECT_TRUE(torch::allclose(first, 3 * w * w * keep));
  const at::Tensor second = torch::autograd::grad({first.sum()}, {w})[0];
  EXPECT_TRUE(torch::allclose(second, 6 * w * keep));
  EXPECT_GT(second.abs().sum().item<double>(), 0);
  const at::Tensor dense = torch::autograd::grad({(apply_mask(w, bits, true) * 3).sum()}, {w})[0];
  EXPECT_TRUE(torch::equal(dense, torch::full({4, 5}, 3, at::kDouble)));
  at::Tensor bad = torch::full({4, 5}, NAN, at::kDouble);
  const at::Tensor masked = torch::autograd::grad({apply_mask(w, bits)}, {w}, {bad})[0];
  EXPECT_EQ(masked.isnan().sum().item<int64_t>(), keep.sum().item<int64_t>());
}

TEST(ApplyMask, OtherMasksAreErrors) {
  const at::Tensor w = torch::randn({4, 5});
  EXPECT_SAYS(error_of([&] { apply_mask(w, pack_mask(random_mask({4, 7}, 3))); }), "for 20 elements, got 4");
}

}  // namespace
}  // namespace ulp::prune::tests
