// NormalFloat of 4 bits beside bitsandbytes (tests/golden/make_nf4.py).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/io/safetensors.h"
#include "ulp/lora/frozen_weight.h"
#include "ulp/lora/nf4.h"

namespace ulp::lora {
namespace {

using at::Tensor;

class Nf4Golden : public ::testing::TestWithParam<std::string> {
 protected:
  static const io::TensorFile& file() {
    static const io::TensorFile read =
        io::load_tensors(std::string(ULP_SOURCE_DIR) + "/tests/golden/nf4.safetensors");
    return read;
  }
  static Tensor of(const std::string& name) { return *file().find(name); }
  Tensor own(const std::string& name) const { return of(GetParam() + '.' + name); }
};

TEST_P(Nf4Golden, CodesScalesAndValues) {
  const Tensor w = own("w");
  const Nf4Tensor codes = quantize_nf4(w, false);
  EXPECT_TRUE(at::equal(codes.absmax, own("absmax")));
  // Both halves of the last byte, of which one may be padding, too.
  const int64_t whole = w.numel() / 2;
  EXPECT_TRUE(at::equal(codes.codes.narrow(0, 0, whole), own("codes").narrow(0, 0, whole)));
  EXPECT_TRUE(at::equal(dequantize(freeze_weight("w", w, LoraBase::nf4, {})), own("values")));
}

TEST_P(Nf4Golden, DoubleQuantization) {
  const Tensor w = own("w");
  const Nf4Tensor made = quantize_nf4(w, true);
  // The mean is summed in another order there, and the tables are a rounding apart.
  EXPECT_TRUE(at::allclose(*made.offset, own("offset"), /*rtol=*/2e-7, 0));
  EXPECT_TRUE(at::allclose(*made.scale_absmax, own("scale_absmax"), 2e-6, 0));
  // Few numbers near the middle of two have the farther one there.
  const Tensor same = made.absmax.eq(own("absmax_codes"));
  EXPECT_GT(same.to(at::kFloat).mean().item<double>(), 0.95);
  const Nf4Tensor theirs{made.codes, own("absmax_codes"), own("scale_absmax"), own("offset")};
  const Tensor error = (nf4_scales(made) - own("absmax")).abs(),
               their_error = (nf4_scales(theirs) - own("absmax")).abs();
  EXPECT_TRUE(error.le(their_error + 1e-8).all().item<bool>());
  const FrozenWeight weight{.format = LoraBase::nf4,
                            .parts = {theirs.codes, theirs.absmax, *theirs.scale_absmax, *theirs.offset},
                            .rows = w.size(0),
                            .columns = w.size(1)};
  EXPECT_TRUE(at::allclose(dequantize(weight), own("double_values"), 1e-6, 0));
}

INSTANTIATE_TEST_SUITE_P(All, Nf4Golden, ::testing::Values("even", "odd", "many"));

TEST_F(Nf4Golden, Tables) {
  const Tensor table = of("table"), dynamic = of("dynamic");
  for (int i = 0; i < 16; ++i) EXPECT_EQ(nf4_table()[i], table[i].item<float>()) << i;
  for (int i = 0; i < 256; ++i)
    EXPECT_NEAR(dynamic_table()[i], dynamic[i].item<float>(), 2e-7 * std::abs(dynamic_table()[i])) << i;
}

}  // namespace
}  // namespace ulp::lora
