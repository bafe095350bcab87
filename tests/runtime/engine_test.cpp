#include "ulp/runtime/engine/engine.h"

#include <gtest/gtest.h>

#include <thread>

#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

const Window kSame{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};

std::string name_of(Numbers numbers) {
  return to_string(type_of(numbers));
}

/// Engine and plain loops on the same inputs; the last step's values may differ by `steps`.
void check(const Plan& plan, int64_t batch, const EngineOptions& options = {}, int steps = 0) {
  Engine engine(plan, options);
  const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
  const std::vector<Bytes> expected = run_plainly(plan, batch, inputs);
  const std::vector<Bytes> got = run_engine(engine, batch, inputs);
  for (size_t i = 0; i < expected.size(); ++i) expect_same(engine.outputs()[i], expected[i], got[i], steps);
}

class EngineOps : public ::testing::TestWithParam<Numbers> {};

TEST_P(EngineOps, ConvWithStridePaddingDilationAndGroups) {
  for (const int64_t groups : {1, 2, 6}) {
    Builder b(GetParam(), static_cast<uint64_t>(groups));
    const Window w{.kernel_h = 3,
                   .kernel_w = 2,
                   .stride_h = 2,
                   .stride_w = 1,
                   .pad_h = 2,
                   .pad_w = 1,
                   .dilation_h = 2,
                   .dilation_w = 1};
    b.output(b.leave(b.conv(b.enter(b.input({kBatch, 6, 9, 7})), 12, w, Activation::relu, groups)));
    check(b.plan, 3);
  }
}

TEST_P(EngineOps, ConvAddsItsResidualBeforeTheActivation) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 4, 5, 5}));
  const int32_t y = b.conv(x, 4, kSame);
  b.output(b.leave(b.conv(x, 4, kSame, Activation::relu6, 1, y)));
  check(b.plan, 2);
}

TEST_P(EngineOps, LinearOnRowsOfAnyRank) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kBatch, 37}, {kBatch, 5, 17}, {4, 9}}) {
    Builder b(GetParam());
    b.output(b.leave(b.linear(b.enter(b.input(shape)), 11, Activation::relu)));
    check(b.plan, 5);
  }
}

TEST_P(EngineOps, PoolsInEveryMode) {
  for (const bool ceil : {false, true}) {
    for (const bool include : {false, true}) {
      Builder b(GetParam());
      const int32_t x = b.enter(b.input({kBatch, 5, 7, 8}));
      PoolWindow w{{.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 3, .pad_h = 1, .pad_w = 1},
                   ceil};
      b.output(b.leave(b.op(Op::max_pool, {x}, PoolAttributes{w})));
      w.count_include_pad = include;
      b.output(b.leave(b.op(Op::avg_pool, {x}, PoolAttributes{w})));
      b.output(b.leave(b.op(Op::global_avg_pool, {x})));
      // Means are the only sums that a kernel may divide instead of multiply: one rounding apart, also when
      // narrowed.
      check(b.plan, 2, {}, 2);
    }
  }
}

TEST(EngineMeans, OfCodesRoundAwayFromCodeZeroWhereThePlanSaysSo) {
  for (const bool include : {false, true}) {
    Builder b(Numbers::u8, 5);
    const int32_t x = b.enter(b.input({kBatch, 5, 7, 8}));
    const PoolWindow w{
        {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 3, .pad_h = 1, .pad_w = 1}, true, include};
    b.plan.tensors[static_cast<size_t>(x)].scale = 1;  // inputs are whole numbers: means of four often tie
    const int32_t y = b.op(Op::avg_pool, {x}, PoolAttributes{w, MeanRounding::half_away});
    b.plan.tensors[static_cast<size_t>(y)].scale = b.info(x).scale;
    b.plan.tensors[static_cast<size_t>(y)].zero_point = b.info(x).zero_point;
    b.output(b.leave(y));
    check(b.plan, 3);
    b.plan.steps[1].get<PoolAttributes>().rounding = MeanRounding::half_even;
    const std::vector<Bytes> inputs = make_inputs(b.plan, 3, 7);
    Plan away = b.plan;
    away.steps[1].get<PoolAttributes>().rounding = MeanRounding::half_away;
    Engine even(b.plan), other(away);
    EXPECT_NE(run_engine(even, 3, inputs), run_engine(other, 3, inputs));
  }
}

TEST_P(EngineOps, ImagesOfAnotherSize) {
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{10, 14}, {3, 20}, {1, 1}, {5, 7}, {4, 6}}) {
    Builder b(GetParam());
    const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
    b.output(b.leave(b.op(Op::resize_nearest, {x}, NearestAttributes{h, w})));
    b.output(b.leave(b.op(Op::resize_bilinear, {x}, BilinearAttributes{h, w})));
    b.output(b.leave(b.op(Op::resize_bilinear, {x}, BilinearAttributes{h, w, /*align_corners=*/true})));
    check(b.plan, 3, {.threads = 2});
  }
}

TEST_P(EngineOps, ImagesByAFactor) {
  for (const bool exact : {false, true}) {
    Builder b(GetParam());
    const int32_t x = b.enter(b.input({kBatch, 3, 5, 7}));
    const ResizeSteps steps{1 / 2.3F, 1 / 0.6F};
    b.output(b.leave(b.op(Op::resize_nearest, {x}, NearestAttributes{11, 4, steps, exact})));
    b.output(b.leave(b.op(Op::resize_nearest, {x}, NearestAttributes{9, 13, {}, exact})));
    b.output(b.leave(b.op(Op::resize_bilinear, {x}, BilinearAttributes{11, 4, false, steps})));
    check(b.plan, 3, {.threads = 2});
  }
}

TEST_P(EngineOps, SlicesOfVolumesAreImages) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 5, 3, 7, 8}), Layout::nhwc);
  const int32_t y = b.conv(x, 6, kSame, Activation::relu);
  b.output(b.leave(b.conv(y, 6, kSame, Activation::none, 2, y)));
  const PoolWindow w{{.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 3, .pad_h = 1, .pad_w = 1},
                     true};
  b.output(b.leave(b.op(Op::max_pool, {x}, PoolAttributes{w})));
  b.output(b.leave(b.op(Op::avg_pool, {x}, PoolAttributes{w})));
  b.output(b.leave(b.op(Op::resize_nearest, {x}, NearestAttributes{9, 3})));
  b.output(b.leave(b.op(Op::resize_bilinear, {x}, BilinearAttributes{9, 3})));
  const int32_t gate = b.enter(b.input({kBatch, 5, 1, 1, 1}), Layout::nhwc);
  const PointwiseAttributes larger{PointwiseText::from_text("max x0 x1").value()};
  if (GetParam() != Numbers::u8) b.output(b.leave(b.op(Op::pointwise, {x, gate}, larger)));
  b.output(b.leave(b.op(Op::concat, {x, y, x})));
  b.output(b.leave(b.op(Op::concat, {x, x}, ConcatAttributes{2})));
  b.output(b.leave(b.op(Op::pad, {x}, PadAttributes{{{0, 1}, {2, 0}, {0, 3}, {1, 1}}})));
  check(b.plan, 3, {.threads = 2}, 2);
}

TEST_P(EngineOps, ChannelsBecomePixels) {
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{15, 8}, {14, 8}, {13, 7}}) {
    Builder b(GetParam());
    const int32_t x = b.enter(b.input({kBatch, 12, 5, 4}));
    b.output(b.leave(b.op(Op::depth_to_space, {x}, DepthToSpaceAttributes{{3, 2}, h, w})));
    check(b.plan, 3, {.threads = 2});
  }
}

TEST_P(EngineOps, AHeightOfOneComesAndGoes) {
  Builder b(GetParam());
  const int32_t image = b.op(Op::unsqueeze, {b.enter(b.input({kBatch, 3, 6}))});
  b.output(b.leave(image));
  b.output(b.leave(b.op(Op::squeeze, {image})));
  b.output(b.leave(b.op(Op::squeeze, {b.enter(b.input({kBatch, 4, 1, 5}))})));
  check(b.plan, 3);
}

TEST_P(EngineOps, FlattenGivesLogicalOrder) {
  Builder b(GetParam());
  b.output(b.leave(b.op(Op::flatten, {b.enter(b.input({kBatch, 3, 4, 5}))})));
  check(b.plan, 3);
}

TEST_P(EngineOps, AddAndRelu) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 3, 4, 4}));
  const int32_t y = b.enter(b.input({kBatch, 3, 4, 4}));
  const int32_t sum = b.op(Op::add, {x, y}, ActivationAttributes{Activation::relu});
  b.output(b.leave(sum));
  b.output(b.leave(b.op(Op::relu, {sum}, ActivationAttributes{Activation::relu6})));
  check(b.plan, 3);
}

TEST_P(EngineOps, ChannelsOfImagesAndRowsAreJoinedCutAndShuffled) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{kBatch, 6, 5, 3}, {kBatch, 6}, {kBatch, 4, 6}}) {
    for (const kernels::Isa isa : kernels::available_isas()) {
      Builder b(GetParam());
      const int32_t x = b.enter(b.input(shape)), y = b.enter(b.input(shape));
      const int32_t all = b.op(Op::concat, {x, b.slice(y, 1, 3), x, b.slice(y, 5, 1)});
      b.output(b.leave(all));
      b.output(b.leave(b.op(Op::channel_shuffle, {all}, ShuffleAttributes{4})));
      // The same numbers on both sides: bytes are copied.
      b.plan.tensors[static_cast<size_t>(all)].scale = b.info(x).scale;
      b.plan.tensors[static_cast<size_t>(all)].zero_point = b.info(x).zero_point;
      b.plan.tensors[static_cast<size_t>(all + 2)].scale = b.info(x).scale;
      b.plan.tensors[static_cast<size_t>(all + 2)].zero_point = b.info(x).zero_point;
      check(b.plan, 70, {.threads = 2, .isa = kernels::to_string(isa)});
    }
  }
}

TEST_P(EngineOps, AnyDimensionIsJoined) {
  for (const int64_t axis : {1, 2, 3}) {
    for (const bool image : {false, true}) {
      std::vector<int64_t> a = {kBatch, 2, 5, 3}, b = a, c = a;
      b[static_cast<size_t>(axis)] = 4;
      c[static_cast<size_t>(axis)] = 1;
      Builder builder(GetParam());
      std::vector<int32_t> parts;
      for (std::vector<int64_t> shape : {a, b, c}) {
        if (!image) shape.push_back(2);
        parts.push_back(builder.enter(builder.input(shape)));
      }
      builder.output(builder.leave(builder.op(Op::concat, parts, ConcatAttributes{axis})));
      check(builder.plan, 9, {.threads = 2});
    }
  }
}

/// Attributes of a move of these strides, the result plain or an image.
MoveAttributes move_of(std::vector<MoveStride> strides, int64_t offset, const std::vector<int64_t>& shape) {
  MoveAttributes attributes{std::move(strides), offset, {}};
  for (const int64_t size : shape) attributes.shape.push_back({size});
  return attributes;
}

TEST_P(EngineOps, StridedCopies) {
  const MoveAttributes cases[] = {
      move_of({{120, 1}}, 0, {8, 15}),                         // nothing
      move_of({{5, 1}, {24, 5}}, 0, {5, 24}),                  // transposed
      move_of({{4, 1}, {5, 4}, {6, 20}}, 0, {4, 5, 6}),        // from the channels inside to plain
      move_of({{6, -20}, {20, 1}}, 100, {6, 20}),              // turned round
      move_of({{120, -1}}, 119, {2, 60}),                      // all of it
      move_of({{3, 40}, {7, 0}, {10, 2}}, 1, {21, 10}),        // repeated, every other one
      move_of({{3, 0}, {2, 0}}, 77, {6}),                      // one element
      move_of({{9, 12}, {2, 0}, {24, 1}}, 0, {9, 48}),         // windows that overlap, twice
      move_of({{2, 60}, {3, 1}, {2, 30}, {10, 3}}, 0, {120}),  // four loops
  };
  for (const MoveAttributes& attributes : cases) {
    Builder b(GetParam());
    b.output(b.leave(b.op(Op::move, {b.enter(b.input({kBatch, 5, 4, 6}))}, attributes)));
    b.plan.tensors[2].layout = Layout::plain;
    check(b.plan, 17, {.threads = 2});
  }
}

TEST_P(EngineOps, BordersOfEveryKind) {
  using enum kernels::PadMode;
  for (const kernels::PadMode mode : {constant, reflect, replicate, circular}) {
    for (const std::vector<PadSides>& sides : {std::vector<PadSides>{{0, 0}, {2, 1}, {3, 2}},
                                               {{1, 2}, {0, 0}, {0, 0}},
                                               {{1, -2}, {-1, 3}, {2, 0}},
                                               {{0, 0}, {-2, 2}, {1, -1}}}) {
      Builder b(GetParam());
      const int32_t x = b.enter(b.input({kBatch, 3, 5, 4}));
      b.output(b.leave(b.op(Op::pad, {x}, PadAttributes{sides, mode, 1.5F})));
      const int32_t row = b.enter(b.input({kBatch, 7}));
      b.output(b.leave(b.op(Op::pad, {row}, PadAttributes{{{3, 2}}, mode, -2})));
      check(b.plan, 9, {.threads = 2});
    }
  }
}

TEST_P(EngineOps, ReductionsOfEveryKind) {
  using Dims = std::vector<ReducedDim>;
  for (const auto& [kind, text, help] : EnumNames<kernels::ReduceKind>::list) {
    const bool place = kind == kernels::ReduceKind::argmax || kind == kernels::ReduceKind::argmin;
    for (const bool keepdim : {false, true}) {
      for (const Dims& dims : {Dims{{1}}, {{2}}, {{3}}, {{2}, {3}}, {{1}, {3}}, {{1}, {2}, {3}}}) {
        if (place && dims.size() > 1) continue;
        SCOPED_TRACE(std::string(text) + ", " + std::to_string(dims.size()) + " dimensions");
        const ReduceAttributes attributes{kind, dims, keepdim, 0.5F};
        Builder b(GetParam());
        for (const bool image : {true, false}) {
          const int32_t in = b.input({kBatch, 5, 4, 6});
          int32_t x = b.enter(in);
          const bool channels = dims[0].dim == 1 || dims.size() > 1;
          if (!image || (!keepdim && !channels)) {
            x = b.op(Op::convert, {x});
            b.plan.tensors[static_cast<size_t>(x)].layout = Layout::plain;
            b.plan.tensors[static_cast<size_t>(x)].scale = b.info(x - 1).scale;
            b.plan.tensors[static_cast<size_t>(x)].zero_point = b.info(x - 1).zero_point;
          }
          const Layout layout = keepdim ? b.info(x).layout : Layout::plain;
          b.output(b.text({.op = Op::reduce, .inputs = {x}, .attributes = attributes}, {}, layout));
        }
        check(b.plan, 3, {.threads = 2}, 8);
      }
    }
  }
}

TEST(Engine, SumsAlongADimension) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 5, 4, 6});
  for (const int64_t dim : {1, 2, 3}) {
    b.output(b.op(Op::cumsum, {x}, CumulativeAttributes{dim}));
    b.output(b.op(Op::cumsum, {x}, CumulativeAttributes{dim, /*product=*/true}));
  }
  b.output(b.op(Op::softmax, {x}, SoftmaxAttributes{.log = true}));
  check(b.plan, 7, {.threads = 2}, 8);
}

TEST(Engine, ProductsOfMatrices) {
  for (const bool bf16 : {false, true}) {
    Builder b(bf16 ? Numbers::bf16 : Numbers::f32);
    // [N, 9, 2 * 4] x [N, 7, 2 * 4]^T for two heads; the first with a constant; a constant with the second.
    const int32_t x = b.enter(b.input({kBatch, 9, 8})), z = b.enter(b.input({kBatch, 7, 8}));
    const MatmulAttributes scores{{{2, 4, 4}}, {0, 8, 1}, {0, 1, 8}, 9, 4, 7, {{2}, {9}, {7}}};
    b.output(b.text({.op = Op::matmul, .inputs = {x, z}, .attributes = scores}));
    const MatmulAttributes right{{{3, 0, 40}}, {0, 8, 1}, {0, 5, 1}, 9, 8, 5, {{3}, {9}, {5}}};
    b.output(b.text({.op = Op::matmul, .inputs = {x}, .attributes = right}, {{"b", {3, 8, 5}}}));
    const MatmulAttributes left{{}, {0, 7, 1}, {0, 8, 1}, 11, 7, 8, {{11}, {8}}};
    b.output(b.text({.op = Op::matmul, .inputs = {z}, .attributes = left}, {{"a", {11, 7}}}));
    check(b.plan, 5, {.threads = 2});
  }
}

TEST(Engine, AConstantStandsInEveryItem) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 3, 4});
  const int32_t token = b.text({.op = Op::constant, .inputs = {x}}, {{"value", {1, 4}}});
  b.output(b.op(Op::concat, {token, x, token}, ConcatAttributes{1}));
  check(b.plan, 5, {.threads = 2});
}

TEST_P(EngineOps, SmallNetworkOnEveryInstructionSetAndThreadCount) {
  const Plan plan = small_network(GetParam());
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(std::string(kernels::to_string(isa)) + ", " + std::to_string(threads) + " threads");
      // Softmax ends the network: exp and a sum of 10 terms, each a few roundings.
      check(plan, 5, {.threads = threads, .isa = kernels::to_string(isa)}, 32);
    }
  }
}

TEST_P(EngineOps, BatchesInAnyOrderGiveTheSameResult) {
  const Plan plan = small_network(GetParam());
  Engine engine(plan, {.threads = 2});
  const std::vector<Bytes> all = make_inputs(plan, 64, 3);
  const std::vector<Bytes> expected = run_engine(engine, 64, all);
  for (const int64_t batch : {1, 7, 64, 1, 3}) {
    std::vector<Bytes> part;
    for (size_t i = 0; i < all.size(); ++i) {
      part.emplace_back(all[i].begin(),
                        all[i].begin() + static_cast<int64_t>(byte_count(engine.inputs()[i], batch)));
    }
    const std::vector<Bytes> got = run_engine(engine, batch, part);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(std::equal(got[i].begin(), got[i].end(), expected[i].begin())) << "batch " << batch;
    }
  }
}

/// Items [first, first + count) of a buffer.
Bytes items_of(const TensorInfo& info, const Bytes& all, int64_t first, int64_t count) {
  const auto size = static_cast<int64_t>(byte_count(info, 1));
  return {all.begin() + first * size, all.begin() + (first + count) * size};
}

TEST_P(EngineOps, UnevenSlicesEqualItemsOneByOne) {
  const Plan plan = small_network(GetParam());
  Engine one_by_one(plan, {.threads = 1});
  const TensorInfo& in = one_by_one.inputs()[0];
  constexpr int64_t kMost = 1031;
  const Bytes all = make_inputs(plan, kMost, 11).at(0);
  std::vector<Bytes> expected(one_by_one.outputs().size());
  for (int64_t item = 0; item < kMost; ++item) {
    const std::vector<Bytes> one = run_engine(one_by_one, 1, {items_of(in, all, item, 1)});
    for (size_t o = 0; o < one.size(); ++o)
      expected[o].insert(expected[o].end(), one[o].begin(), one[o].end());
  }
  // No slicing divides these: one item more and one less than whole slices, and slices of few items.
  for (const int threads : {1, 2, 3, 5}) {
    Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {4, 5, 13, 19, 21, 63, 257, 1031}) {
      SCOPED_TRACE("batch " + std::to_string(batch) + ", " + std::to_string(threads) + " threads");
      const std::vector<Bytes> got = run_engine(engine, batch, {items_of(in, all, 0, batch)});
      for (size_t o = 0; o < got.size(); ++o) {
        const TensorInfo& info = engine.outputs()[o];
        expect_same(info, items_of(info, expected[o], 0, batch), got[o]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runtime, EngineOps, ::testing::Values(Numbers::f32, Numbers::bf16, Numbers::u8),
                         [](const auto& info) { return name_of(info.param); });

TEST(Engine, QuantizedChainEqualsIntegerArithmeticDoneByHand) {
  // One pixel, one channel: 2.0 -> q = round(2 / 0.5) + 10 = 14; acc = (14 - 10) * 3 + 5 = 17; y = round(17 *
  // m) + 20 with m = 0.5 * 0.25 / 0.125 = 1; relu6 clamps at 6 / 0.125 = 48 steps.
  for (const auto& [bias, steps] : {std::pair{5, 17}, {-40, 0}, {100, 48}}) {
    Plan plan;
    plan.tensors = {{"x", DataType::f32, {kBatch, 1, 1, 1}, Layout::plain, 1.0F, 0},
                    {"q", DataType::u8, {kBatch, 1, 1, 1}, Layout::nhwc, 0.5F, 10},
                    {"y", DataType::u8, {kBatch, 1, 1, 1}, Layout::nhwc, 0.125F, 20}};
    plan.constants["w"] = constant_of<int8_t>(DataType::i8, {1, 1, 1, 1}, {3});
    plan.constants["b"] = constant_of<int32_t>(DataType::i32, {1}, {bias});
    plan.constants["s"] = constant_of<float>(DataType::f32, {1}, {0.25F});
    plan.steps = {{.op = Op::convert, .name = "quantize", .inputs = {0}, .output = 1},
                  {.op = Op::conv,
                   .name = "conv",
                   .inputs = {1},
                   .output = 2,
                   .constants = {{"weight", "w"}, {"bias", "b"}, {"weight_scale", "s"}},
                   .attributes = ConvAttributes{.activation = Activation::relu6}}};
    plan.inputs = {0};
    plan.outputs = {2};
    Engine engine(plan);
    const float x = 2.0F;
    uint8_t y = 0;
    const void* in[] = {&x};
    void* out[] = {&y};
    engine.run(1, in, out);
    EXPECT_EQ(int{y}, 20 + steps);
  }
}

TEST(Engine, WritesNothingOutsideTheOutputs) {
  const Plan plan = small_network(Numbers::u8);
  Engine engine(plan);
  const std::vector<Bytes> inputs = make_inputs(plan, 3, 1);
  std::vector<Bytes> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  for (const TensorInfo& info : engine.outputs())
    buffers.emplace_back(byte_count(info, 3) + 128, std::byte{0xA5});
  for (Bytes& bytes : buffers) out.push_back(bytes.data() + 64);
  const std::vector<Bytes> kept = inputs;
  engine.run(3, in, out);
  EXPECT_EQ(inputs, kept);
  for (const Bytes& bytes : buffers) {
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(bytes[i], std::byte{0xA5});
      EXPECT_EQ(bytes[bytes.size() - 1 - i], std::byte{0xA5});
    }
  }
}

TEST(Engine, RefusesWrongCalls) {
  const Plan plan = small_network(Numbers::f32);
  Engine engine(plan);
  std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  std::vector<float> a(10), b(8);
  const void* in[] = {inputs[0].data()};
  void* out[] = {a.data(), b.data()};
  const void* no_in[] = {nullptr};
  void* half_out[] = {a.data(), nullptr};
  EXPECT_THROW(engine.run(0, in, out), Error);
  EXPECT_THROW(engine.run(-3, in, out), Error);
  EXPECT_THROW(engine.run(1, {}, out), Error);
  EXPECT_THROW(engine.run(1, in, std::span(out, 1)), Error);
  EXPECT_THROW(engine.run(1, no_in, out), Error);
  EXPECT_THROW(engine.run(1, in, half_out), Error);
  EXPECT_THROW(engine.run(int64_t{1} << 60, in, out), Error);
  EXPECT_THROW(engine.reserve(0), Error);
  EXPECT_THROW(Engine(plan, {.threads = -1}), Error);
  EXPECT_THROW(Engine(plan, {.isa = "z80"}), Error);
  EXPECT_NO_THROW(engine.run(1, in, out)) << "an error must leave the engine usable";
  try {
    engine.run(1, in, half_out);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("output 1"), std::string::npos) << error.what();
  }
}

TEST(Engine, ReserveSizesTheArenaOnce) {
  Engine engine(small_network(Numbers::f32));
  engine.reserve(16);
  const size_t bytes = engine.arena_bytes();
  EXPECT_GT(bytes, 0U);
  run_engine(engine, 4, make_inputs(small_network(Numbers::f32), 4, 1));
  EXPECT_EQ(engine.arena_bytes(), bytes);
  EXPECT_GT(engine.constant_bytes(), 0U);
}

TEST(Engine, UsesAGivenParallel) {
  class Counting final : public Parallel {
   public:
    int workers() const override { return 1; }
    void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
      ++calls;
      for (int64_t i = 0; i < tasks; ++i) task(i, 0);
    }
    mutable int calls = 0;
  } counting;
  const Plan plan = small_network(Numbers::f32);
  Engine engine(plan, {.threads = 9, .isa = {}, .parallel = &counting});
  run_engine(engine, 2, make_inputs(plan, 2, 1));
  EXPECT_EQ(engine.threads(), 1);
  EXPECT_GT(counting.calls, 0);
}

TEST(Engine, ProfileNamesEveryStep) {
  const Plan plan = small_network(Numbers::u8);
  Engine engine(plan);
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  std::vector<Bytes> outputs;
  std::vector<void*> out;
  for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, 2));
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  const void* in[] = {inputs[0].data()};
  const std::vector<StepProfile> profile = engine.profile(2, in, out);
  ASSERT_EQ(profile.size(), plan.steps.size());
  EXPECT_EQ(profile[1].op, "conv");
  EXPECT_EQ(profile[1].step, plan.steps[1].name);
  EXPECT_EQ(profile[1].attributes,
            "activation=relu6, window.kernel_h=3, window.kernel_w=3, window.pad_h=1, window.pad_w=1");
  EXPECT_EQ(profile[0].attributes, "");
  EXPECT_EQ(profile[1].output_shape, "u8 [batch, 8, 8, 8]");
  EXPECT_FALSE(profile[1].kernel.empty());
  EXPECT_EQ(outputs, run_engine(engine, 2, inputs));
}

TEST(Engine, TwoEnginesRunInTwoThreadsAtOnce) {
  const Plan plan = small_network(Numbers::u8);
  const std::vector<Bytes> inputs = make_inputs(plan, 8, 5);
  Engine first(plan, {.threads = 2}), second(plan, {.threads = 2});
  const std::vector<Bytes> expected = run_engine(first, 8, inputs);
  const auto repeat = [&](Engine& engine, int* wrong) {
    for (int i = 0; i < 50; ++i) *wrong += run_engine(engine, 8, inputs) != expected;
  };
  int wrong_first = 0, wrong_second = 0;
  std::thread other(repeat, std::ref(second), &wrong_second);
  repeat(first, &wrong_first);
  other.join();
  EXPECT_EQ(wrong_first + wrong_second, 0);
}

}  // namespace
}  // namespace ulp::runtime
