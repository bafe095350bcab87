// Sparse linear layers give what dense ones give with the same zeros, on every instruction set.
#include "ulp/kernels/sparse/sparse_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

/// Which weights are zero.
enum class Zeros { nowhere, blocks, single, one_panel, all };

struct SparseLayer {
  int64_t rows, in, out;
  Zeros zeros = Zeros::blocks;
  int percent = 70;  ///< of blocks or weights that are zero
};

bool is_zero(const SparseLayer& layer, const std::vector<int>& draws, int64_t o, int64_t i, int64_t inputs) {
  const int64_t block = o / 16 * ((layer.in + inputs - 1) / inputs) + i / inputs;
  const int64_t at = layer.zeros == Zeros::single ? o * layer.in + i : block;
  switch (layer.zeros) {
    case Zeros::nowhere:
      return false;
    case Zeros::all:
      return true;
    case Zeros::one_panel:
      return o / 16 == 1;
    default:
      return draws[static_cast<size_t>(at)] < layer.percent;
  }
}

struct LayerData {
  std::vector<int8_t> i8;
  std::vector<float> f32, scale, bias;
  std::vector<uint16_t> bf16;
  std::vector<int32_t> bias_i32;
  std::vector<uint8_t> x, residual;

  LayerData(const SparseLayer& l, DataType type, DataType residual_type)
      : i8(random_ints<int8_t>(l.in * l.out, 1, -127, 127)),
        f32(random_floats(l.in * l.out, 2)),
        scale(random_floats(l.out, 3, 0.0005F, 0.002F)),
        bias(random_floats(l.out, 4)),
        bias_i32(random_ints<int32_t>(l.out, 5, -5000, 5000)) {
    const std::vector<int> draws = random_ints<int>(l.in * l.out, 6, 0, 99);
    const int64_t inputs = type == DataType::u8 ? 4 : 1;
    for (int64_t o = 0; o < l.out; ++o) {
      for (int64_t i = 0; i < l.in; ++i) {
        const auto at = static_cast<size_t>(o * l.in + i);
        if (i8[at] == 0) i8[at] = 1;
        if (!is_zero(l, draws, o, i, inputs)) continue;
        i8[at] = 0;
        f32[at] = (o + i) % 2 == 0 ? 0.0F : -0.0F;
      }
    }
    for (float v : f32) bf16.push_back(float_to_bf16(v));
    x = bytes_of(type, l.rows * l.in, 7);
    residual = bytes_of(residual_type, l.rows * l.out, 8);
  }

  static std::vector<uint8_t> bytes_of(DataType type, int64_t n, uint32_t seed) {
    if (type == DataType::u8) return random_ints<uint8_t>(n, seed, 0, 255);
    const std::vector<float> floats = random_floats(n, seed, -2, 3);
    std::vector<uint8_t> out(static_cast<size_t>(n * element_bytes(type)));
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t narrow = float_to_bf16(floats[i]);
      if (type == DataType::f32) std::memcpy(out.data() + 4 * i, &floats[i], 4);
      if (type == DataType::bf16) std::memcpy(out.data() + 2 * i, &narrow, 2);
    }
    return out;
  }

  ConvWeights weights(DataType type) const {
    if (type == DataType::u8) return {.i8 = i8.data(), .scale = scale.data(), .bias_i32 = bias_i32.data()};
    if (type == DataType::bf16) return {.bf16 = bf16.data(), .bias = bias.data()};
    return {.f32 = f32.data(), .bias = bias.data()};
  }
};

struct Ending {
  DataType output;
  Activation activation;
  bool residual;
  DataType residual_type;
};

ConvConfig config_of(const SparseLayer& l, DataType type, const Ending& ending) {
  ConvConfig config;
  config.shape.in_channels = l.in;
  config.shape.out_channels = l.out;
  config.input = type;
  config.output = ending.output;
  config.activation = ending.activation;
  config.residual = ending.residual;
  config.residual_type = ending.residual_type;
  config.input_q = {0.02F, 117};
  config.output_q = {0.05F, 130};
  config.residual_q = {0.04F, 99};
  return config;
}

std::vector<uint8_t> run(const Conv& conv, const ConvConfig& config, int64_t batch, const LayerData& data,
                         const Parallel& parallel) {
  const ConvShape& s = config.shape;
  Guarded<uint8_t> y(batch * s.out_h() * s.out_w() * s.out_channels * element_bytes(config.output), 16);
  const size_t bytes = conv.workspace_bytes(batch, parallel.workers());
  Workspace workspace(bytes + 1);
  auto* end = static_cast<uint8_t*>(workspace.data()) + bytes;
  *end = 0x77;
  conv.run(batch, data.x.data(), config.residual ? data.residual.data() : nullptr, y.data(), workspace.data(),
           parallel);
  EXPECT_TRUE(y.intact()) << conv.name();
  EXPECT_EQ(*end, 0x77) << conv.name() << " wrote behind its workspace";
  return y.values();
}

using Make = std::unique_ptr<Conv> (*)(const ConvConfig&, const ConvWeights&, Isa);

void expect_dense_bits(Make make, const SparseLayer& layer, DataType type, const Ending& ending, Isa isa) {
  const LayerData data(layer, type, ending.residual_type);
  const ConvConfig config = config_of(layer, type, ending);
  const auto dense = make_conv(config, data.weights(type), isa);
  const auto sparse = make(config, data.weights(type), isa);
  ASSERT_NE(sparse, nullptr);
  const std::vector<uint8_t> expected = run(*dense, config, layer.rows, data, SerialParallel());
  for (const int workers : {1, 3}) {
    ASSERT_EQ(run(*sparse, config, layer.rows, data, ThreadParallel(workers)), expected)
        << sparse->name() << " of " << to_string(isa) << " against " << dense->name() << ", " << workers
        << " workers, " << layer.rows << " rows of " << layer.in << " -> " << layer.out << ", zeros "
        << static_cast<int>(layer.zeros) << "; " << repeat_command();
  }
}

// Every tile of rows and panels, ends of all sizes, no rows.
const SparseLayer kLayers[] = {{0, 8, 16},
                               {1, 1, 1},
                               {1, 4, 16},
                               {1, 64, 100},
                               {2, 37, 49},
                               {3, 130, 64},
                               {4, 63, 127},
                               {5, 33, 40},
                               {6, 12, 17},
                               {7, 65, 33},
                               {8, 40, 80, Zeros::single, 90},
                               {9, 31, 15},
                               {16, 128, 64},
                               {17, 100, 96},
                               {33, 70, 31, Zeros::single, 97},
                               {70, 52, 48, Zeros::one_panel},
                               {5, 20, 36, Zeros::nowhere},
                               {1, 20, 36, Zeros::all},
                               {19, 20, 36, Zeros::all}};

const Ending kEndings[] = {{DataType::u8, Activation::none, false, DataType::f32},
                           {DataType::u8, Activation::relu, true, DataType::u8},
                           {DataType::u8, Activation::gelu, true, DataType::f32},
                           {DataType::f32, Activation::relu6, true, DataType::bf16},
                           {DataType::f32, Activation::gelu, false, DataType::f32}};

class SparseLinear : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(, SparseLinear, ::testing::ValuesIn(available_isas()), isa_name);

TEST_P(SparseLinear, BlocksOf8BitsGiveTheBitsOfTheDenseLayer) {
  for (const SparseLayer& layer : kLayers) {
    for (const Ending& ending : kEndings) {
      expect_dense_bits(make_block_linear, layer, DataType::u8, ending, GetParam());
    }
  }
}

TEST_P(SparseLinear, BitmasksGiveTheBitsOfTheDenseLayer) {
  for (const SparseLayer& layer : kLayers) {
    for (const Ending& ending : kEndings) {
      expect_dense_bits(make_bitmask_linear, layer, DataType::u8, ending, GetParam());
    }
  }
  for (const int percent : {0, 50, 99}) {
    const SparseLayer layer{4, 516, 40, Zeros::single, percent};
    expect_dense_bits(make_bitmask_linear, layer, DataType::u8, kEndings[0], GetParam());
  }
}

TEST_P(SparseLinear, BlocksOfFloatsGiveTheBitsOfTheDenseLayer) {
  const Ending endings[] = {{DataType::f32, Activation::none, false, DataType::f32},
                            {DataType::f32, Activation::gelu, true, DataType::f32},
                            {DataType::bf16, Activation::relu, true, DataType::bf16}};
  for (const SparseLayer& layer : kLayers) {
    for (const Ending& ending : endings) {
      expect_dense_bits(make_block_linear, layer, DataType::f32, ending, GetParam());
      const LayerData data(layer, DataType::bf16, ending.residual_type);
      if (make_block_linear(config_of(layer, DataType::bf16, ending), data.weights(DataType::bf16),
                            GetParam()))
        expect_dense_bits(make_block_linear, layer, DataType::bf16, ending, GetParam());
    }
  }
}

TEST_P(SparseLinear, TasksOfManyRowsAndOfPartsOfTheOutputsJoinUp) {
  expect_dense_bits(make_block_linear, {300, 4096, 32, Zeros::blocks, 80}, DataType::u8, kEndings[0],
                    GetParam());
  expect_dense_bits(make_block_linear, {3, 1024, 1000, Zeros::blocks, 80}, DataType::u8, kEndings[0],
                    GetParam());
  expect_dense_bits(make_bitmask_linear, {9, 1023, 1000, Zeros::single, 80}, DataType::u8, kEndings[0],
                    GetParam());
}

TEST_P(SparseLinear, A1x1ConvolutionIsALayerOverItsPixels) {
  const SparseLayer layer{3 * 5 * 7, 24, 40};
  for (const Make make : {make_block_linear, make_bitmask_linear}) {
    const LayerData data(layer, DataType::u8, DataType::u8);
    ConvConfig config = config_of(layer, DataType::u8, kEndings[1]);
    config.shape.in_h = 5;
    config.shape.in_w = 7;
    const auto dense = make_conv(config, data.weights(DataType::u8), GetParam());
    const auto sparse = make(config, data.weights(DataType::u8), GetParam());
    ASSERT_NE(sparse, nullptr);
    EXPECT_EQ(run(*sparse, config, 3, data, SerialParallel()),
              run(*dense, config, 3, data, SerialParallel()));
  }
}

TEST_P(SparseLinear, WorkspaceGrowsWithRowsAndWorkers) {
  const SparseLayer layer{1, 1030, 64};
  const LayerData data(layer, DataType::u8, DataType::u8);
  const ConvConfig config = config_of(layer, DataType::u8, kEndings[0]);
  for (const Make make : {make_block_linear, make_bitmask_linear}) {
    const auto sparse = make(config, data.weights(DataType::u8), GetParam());
    for (const int64_t rows : {1, 5, 700, 5000}) {
      EXPECT_LE(sparse->workspace_bytes(rows, 1), sparse->workspace_bytes(rows + 1, 1));
      EXPECT_LE(sparse->workspace_bytes(rows, 1), sparse->workspace_bytes(rows, 2));
    }
  }
}

TEST(SparseLinearIsa, LayersForWhatTheMachineLacksRunOnWhatItHas) {
  const SparseLayer layer{5, 68, 40};
  for (const Isa isa :
       {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx, Isa::amx_emulated, Isa::portable}) {
    for (const DataType type : {DataType::u8, DataType::f32}) {
      const Ending ending{type, Activation::none, false, type};
      const LayerData data(layer, type, type);
      const ConvConfig config = config_of(layer, type, ending);
      expect_dense_bits(make_block_linear, layer, type, ending, isa);
      if (type != DataType::u8) continue;  // the order of sums is up to the instruction set
      const auto plain = make_conv(config, data.weights(type), Isa::portable);
      const auto dense = make_conv(config, data.weights(type), isa);
      EXPECT_EQ(run(*dense, config, layer.rows, data, SerialParallel()),
                run(*plain, config, layer.rows, data, SerialParallel()));
    }
  }
}

TEST(SparseLinearCount, FindsBlocksAndWeightsOfZero) {
  // 17 outputs of 6 inputs: two panels by two blocks of four inputs.
  std::vector<int8_t> codes(17 * 6, 0);
  codes[0 * 6 + 0] = 3;    // block (0, 0)
  codes[15 * 6 + 3] = -1;  // the same one
  codes[16 * 6 + 5] = 7;   // block (1, 1)
  const std::vector<float> scale(17, 0.1F);
  ConvConfig config;
  config.shape.in_channels = 6;
  config.shape.out_channels = 17;
  config.input = DataType::u8;
  const ZeroCount found = count_zeros(config, {.i8 = codes.data(), .scale = scale.data()});
  EXPECT_EQ(found.weights, 17 * 6);
  EXPECT_EQ(found.nonzero, 3);
  EXPECT_EQ(found.blocks, 4);
  EXPECT_EQ(found.kept, 2);

  std::vector<float> floats(17 * 6, -0.0F);
  floats[16 * 6 + 5] = std::numeric_limits<float>::denorm_min();
  config.input = DataType::f32;
  const ZeroCount found_f32 = count_zeros(config, {.f32 = floats.data()});
  EXPECT_EQ(found_f32.nonzero, 1);
  EXPECT_EQ(found_f32.blocks, 12);  // of one input
  EXPECT_EQ(found_f32.kept, 1);
  EXPECT_DOUBLE_EQ(found_f32.block_density(), 1.0 / 12);

  std::vector<uint16_t> halves(17 * 6, 0x8000);
  halves[3] = 1;
  config.input = DataType::bf16;
  EXPECT_EQ(count_zeros(config, {.bf16 = halves.data()}).kept, 1);
}

TEST(SparseLinearCount, LeavesOutProductsWithInfiniteInputs) {
  // Input 1 meets weights of zero alone.
  std::vector<float> weights(16 * 2, 0.0F), x = {2, std::numeric_limits<float>::infinity()};
  for (size_t o = 0; o < 16; ++o) weights[2 * o] = static_cast<float>(o);
  ConvConfig config;
  config.shape.in_channels = 2;
  config.shape.out_channels = 16;
  for (const Isa isa : available_isas()) {
    const auto sparse = make_block_linear(config, {.f32 = weights.data()}, isa);
    std::vector<float> y(16);
    Workspace workspace(sparse->workspace_bytes(1, 1));
    sparse->run(1, x.data(), nullptr, y.data(), workspace.data(), SerialParallel());
    for (size_t o = 0; o < 16; ++o) EXPECT_EQ(y[o], 2.0F * static_cast<float>(o)) << to_string(isa);
  }
}

TEST(SparseLinearCount, TakesLinearLayersAlone) {
  ConvConfig config;
  config.shape = {8, 8, 16, 16, 3, 3};
  const std::vector<float> weights(16 * 16 * 9, 0.0F);
  const std::vector<int8_t> codes(16 * 16 * 9, 0);
  const std::vector<float> scale(16, 1.0F);
  EXPECT_EQ(make_block_linear(config, {.f32 = weights.data()}, Isa::portable), nullptr);
  EXPECT_THROW(count_zeros(config, {.f32 = weights.data()}), Error);
  config.shape = {8, 8, 16, 16, 1, 1, 2, 2};
  EXPECT_EQ(make_block_linear(config, {.f32 = weights.data()}, Isa::portable), nullptr);
  config.shape = {1, 1, 16, 16};
  EXPECT_EQ(make_bitmask_linear(config, {.f32 = weights.data()}, Isa::portable), nullptr);
  config.shape = {1, 1, (1 << 16) + 1, 1};
  const std::vector<float> wide((1 << 16) + 1, 1.0F);
  EXPECT_EQ(make_block_linear(config, {.f32 = wide.data()}, Isa::portable), nullptr);
  EXPECT_THROW(make_block_linear(config, {}, Isa::portable), Error);
  config.shape.in_channels = 0;
  EXPECT_THROW(make_block_linear(config, {.f32 = wide.data()}, Isa::portable), Error);
}

TEST(SparseLinearCount, TheLargestIndexIsReached) {
  // The last input of 65536 has the index 65535.
  ConvConfig config;
  config.shape.in_channels = 1 << 16;
  std::vector<float> weights(1 << 16, 0.0F), x(1 << 16, 1.0F);
  weights.back() = 3.0F;
  for (const Isa isa : available_isas()) {
    const auto sparse = make_block_linear(config, {.f32 = weights.data()}, isa);
    float y = 0;
    Workspace workspace(sparse->workspace_bytes(1, 1));
    sparse->run(1, x.data(), nullptr, &y, workspace.data(), SerialParallel());
    EXPECT_EQ(y, 3.0F) << to_string(isa);
  }
}

}  // namespace
}  // namespace ulp::kernels
