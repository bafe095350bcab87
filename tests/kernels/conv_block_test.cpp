// Convolutions with the 1x1 layers around them, run by rows: the bits of the layers one by one.
#include "ulp/kernels/conv/conv_block.h"

#include <gtest/gtest.h>

#include <deque>
#include <span>

#include "conv_shapes.h"
#include "helpers.h"
#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

using test::conv_shape;

struct ConvBlockCase {
  const char* name;
  int64_t hw, in, middle, out;  ///< in = 0: no layer before the one in the middle
  int64_t kernel, stride, pad, dilation;
  bool residual;
  Activation activation;
  bool dense = false;  ///< the layer in the middle, which is depthwise otherwise
};

constexpr ConvBlockCase kConvBlockCases[] = {
    {"bottleneck", 14, 16, 48, 16, 3, 1, 1, 1, true, Activation::relu6},
    {"stride_two", 15, 8, 24, 20, 3, 2, 1, 1, false, Activation::relu},
    {"two_layers", 17, 0, 33, 19, 3, 1, 1, 1, false, Activation::none},
    {"two_layers_residual", 9, 0, 16, 16, 3, 1, 1, 1, true, Activation::relu},
    {"five_by_five", 13, 5, 17, 7, 5, 1, 2, 1, true, Activation::hardswish},
    {"no_padding", 12, 6, 19, 8, 3, 1, 0, 1, false, Activation::silu},
    {"dilated", 16, 4, 20, 5, 3, 1, 2, 2, false, Activation::relu},
    {"stride_beyond_window", 13, 4, 16, 6, 1, 3, 0, 1, false, Activation::none},
    {"padding_beyond_image", 3, 4, 16, 6, 3, 1, 3, 1, false, Activation::none},
    {"one_pixel", 1, 3, 18, 2, 3, 1, 1, 1, false, Activation::relu6},
    {"wider_than_the_cache", 64, 24, 320, 24, 3, 2, 1, 1, false, Activation::relu6},
    {"dense", 14, 64, 16, 64, 3, 1, 1, 1, true, Activation::relu, true},
    {"dense_stride_two", 15, 20, 24, 36, 3, 2, 1, 1, false, Activation::relu, true},
    {"dense_two_layers", 17, 0, 20, 19, 3, 1, 1, 1, true, Activation::none, true},
    {"dense_odd_channels", 11, 13, 17, 7, 5, 1, 2, 1, true, Activation::hardswish, true},
    {"dense_dilated", 16, 4, 20, 5, 3, 1, 2, 2, false, Activation::silu, true},
    {"dense_beyond_image", 3, 4, 16, 6, 3, 1, 3, 1, false, Activation::none, true},
};

/// A block's layers with their weights.
class Block {
 public:
  Block(const ConvBlockCase& c, DataType type) : type_(type) {
    if (c.in > 0) add(conv_shape(c.hw, c.in, c.middle, 1, 1, 0), c.activation);
    const int64_t groups = c.dense ? 1 : c.middle;
    add(conv_shape(c.hw, c.middle, c.middle, c.kernel, c.stride, c.pad, c.dilation, groups), c.activation);
    add(conv_shape(layers_.back().config.shape.out_h(), c.middle, c.out, 1, 1, 0), Activation::none);
    layers_.back().config.residual = c.residual;
    layers_.back().config.residual_type = type;
    layers_.back().config.residual_q = {0.031F, 77};
  }
  const std::vector<BlockLayer>& layers() const { return layers_; }

 private:
  void add(const ConvShape& shape, Activation activation) {
    const auto seed = static_cast<uint32_t>(layers_.size());
    BlockLayer layer;
    layer.config.shape = shape;
    layer.config.input = layer.config.output = type_;
    layer.config.activation = activation;
    layer.config.input_q = {0.02F + 0.01F * static_cast<float>(seed), 100 + static_cast<int>(seed)};
    layer.config.output_q = {0.03F + 0.01F * static_cast<float>(seed), 101 + static_cast<int>(seed)};
    const int64_t weights =
        shape.out_channels * (shape.in_channels / shape.groups) * shape.kernel_h * shape.kernel_w;
    floats_.push_back(test::random_floats(weights, seed));
    codes_.push_back(test::random_ints<int8_t>(weights, seed + 10, -127, 127));
    scales_.push_back(test::random_floats(shape.out_channels, seed + 20, 0.001F, 0.01F));
    biases_.push_back(test::random_floats(shape.out_channels, seed + 30));
    integer_biases_.push_back(test::random_ints<int32_t>(shape.out_channels, seed + 40, -3000, 3000));
    layer.weights.f32 = floats_.back().data();
    layer.weights.i8 = codes_.back().data();
    layer.weights.scale = scales_.back().data();
    layer.weights.bias = biases_.back().data();
    layer.weights.bias_i32 = integer_biases_.back().data();
    layers_.push_back(layer);
  }

  DataType type_;
  std::vector<BlockLayer> layers_;
  std::deque<std::vector<float>> floats_, scales_, biases_;
  std::deque<std::vector<int8_t>> codes_;
  std::deque<std::vector<int32_t>> integer_biases_;
};

/// Numbers of a type, of which any bytes make some but for the exponents of floats.
std::vector<uint8_t> numbers(DataType type, int64_t count, uint32_t seed) {
  if (type == DataType::u8) return test::random_ints<uint8_t>(count, seed, 0, 255);
  std::vector<uint8_t> bytes(static_cast<size_t>(count * element_bytes(type)));
  const std::vector<float> floats = test::random_floats(count, seed);
  const int64_t from = type == DataType::bf16 ? 2 : 0, size = element_bytes(type);
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(bytes.data() + i * size,
                reinterpret_cast<const uint8_t*>(&floats[static_cast<size_t>(i)]) + from,
                static_cast<size_t>(size));
  return bytes;
}

int64_t in_count(const ConvShape& s, int64_t batch) {
  return batch * s.in_h * s.in_w * s.in_channels;
}
int64_t out_count(const ConvShape& s, int64_t batch) {
  return batch * s.out_h() * s.out_w() * s.out_channels;
}

std::vector<uint8_t> run(const Conv& conv, int64_t batch, const std::vector<uint8_t>& x,
                         const std::vector<uint8_t>& residual, size_t result_bytes, int workers) {
  const test::ThreadParallel parallel(workers);
  test::Guarded<uint8_t> y(static_cast<int64_t>(result_bytes));
  test::Workspace workspace(conv.workspace_bytes(batch, workers));
  conv.run(batch, x.data(), residual.empty() ? nullptr : residual.data(), y.data(), workspace.data(),
           parallel);
  EXPECT_TRUE(y.intact()) << "wrote outside the output";
  return y.values();
}

class ConvBlockTest : public ::testing::TestWithParam<std::tuple<Isa, DataType, size_t>> {};

TEST_P(ConvBlockTest, GivesTheBitsOfItsLayers) {
  SCOPED_TRACE(test::repeat_command());
  const auto [isa, type, index] = GetParam();
  const Block block(kConvBlockCases[index], type);
  const std::unique_ptr<Conv> joined = make_conv_block(block.layers(), isa);
  if (isa == Isa::portable) {
    EXPECT_EQ(joined, nullptr);
    return;
  }
  if (joined == nullptr) GTEST_SKIP() << "a kernel of " << to_string(isa) << " does not run by rows";
  for (const int64_t batch : {1, 3}) {
    const ConvConfig& last = block.layers().back().config;
    std::vector<uint8_t> x = numbers(type, in_count(block.layers()[0].config.shape, batch), 5), residual;
    if (last.residual) residual = numbers(type, out_count(last.shape, batch), 6);
    const std::vector<uint8_t> given = x;
    for (const BlockLayer& layer : block.layers()) {
      const auto bytes = static_cast<size_t>(out_count(layer.config.shape, batch) * element_bytes(type));
      x = run(*make_conv(layer.config, layer.weights, isa), batch, x,
              layer.config.residual ? residual : std::vector<uint8_t>{}, bytes, 1);
    }
    for (const int workers : {1, 2, 5, 9})
      EXPECT_EQ(run(*joined, batch, given, residual, x.size(), workers), x)
          << batch << " images, " << workers;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvBlockTest,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Values(DataType::f32, DataType::bf16, DataType::u8),
                                            ::testing::Range(size_t{0}, std::size(kConvBlockCases))),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  to_string(std::get<1>(info.param)) + "_" +
                                  kConvBlockCases[std::get<2>(info.param)].name;
                         });

// Few rows for many workers: each would compute most of the others' again.
TEST(ConvBlock, ManyWorkersOnOneImageRunTheLayersApart) {
  const Block block({"", 8, 16, 48, 16, 3, 1, 1, 1, false, Activation::relu}, DataType::f32);
  for (const Isa isa : available_isas()) {
    const std::unique_ptr<Conv> joined = make_conv_block(block.layers(), isa);
    if (joined == nullptr) continue;
    const std::unique_ptr<Conv> apart = make_layers_apart(block.layers(), isa);
    EXPECT_GE(joined->workspace_bytes(1, 8), apart->workspace_bytes(1, 8));
    EXPECT_GE(joined->workspace_bytes(100, 8), apart->workspace_bytes(7, 8));
    EXPECT_LT(joined->workspace_bytes(100, 8), apart->workspace_bytes(100, 8));
    EXPECT_EQ(joined->name(), apart->name());
  }
}

/// What runs by rows on every machine that has more than plain loops.
bool takes(const std::vector<BlockLayer>& layers) {
  const std::vector<Isa> isas = available_isas();
  return std::ranges::any_of(isas, [&](Isa isa) { return make_conv_block(layers, isa) != nullptr; });
}

TEST(ConvBlock, TakesALayerBetween1x1LayersAlone) {
  if (available_isas().size() == 1) GTEST_SKIP() << "plain loops do not run by rows";
  const Block block(kConvBlockCases[0], DataType::f32);
  const std::vector<BlockLayer>& good = block.layers();
  EXPECT_TRUE(takes(good));
  EXPECT_TRUE(takes({good[1], good[2]}));
  EXPECT_FALSE(takes({good[0], good[1]})) << "no 1x1 layer behind";
  EXPECT_FALSE(takes({good[1]}));
  EXPECT_FALSE(takes({good[0], good[0], good[2]})) << "sizes do not follow";
  const Block dense({"", 9, 20, 16, 20, 3, 1, 1, 1, false, Activation::relu, true}, DataType::f32);
  EXPECT_TRUE(takes(dense.layers()));
  const Block flat({"", 9, 20, 16, 20, 1, 1, 0, 1, false, Activation::relu, true}, DataType::f32);
  EXPECT_FALSE(takes(flat.layers())) << "nothing but 1x1 layers";
  std::vector<BlockLayer> changed = dense.layers();
  changed[1].config.shape.groups = 2;
  EXPECT_FALSE(takes(changed)) << "groups in the middle";
  changed = good;
  changed[1].config.residual = true;
  EXPECT_FALSE(takes(changed)) << "a residual in the middle";
  changed = good;
  changed[2].config.input = changed[2].config.output = DataType::bf16;
  EXPECT_FALSE(takes(changed)) << "another type between two layers";
  changed = good;
  changed[0].config.shape.stride_h = 0;
  EXPECT_THROW(takes(changed), ulp::Error);
}

TEST(ConvBlock, TakesLittleMemoryForLargeImages) {
  const Block block({"", 224, 32, 192, 32, 3, 1, 1, 1, false, Activation::relu}, DataType::f32);
  for (const Isa isa : available_isas()) {
    const std::unique_ptr<Conv> joined = make_conv_block(block.layers(), isa);
    if (joined == nullptr) continue;
    const size_t between = 224 * 224 * 192 * 4;  // of one image
    EXPECT_LT(8 * joined->workspace_bytes(7, 1), between);
    EXPECT_EQ(joined->workspace_bytes(7, 3), 3 * joined->workspace_bytes(1, 1));
  }
}

}  // namespace
}  // namespace ulp::kernels
