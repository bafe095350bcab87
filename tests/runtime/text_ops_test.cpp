// The ops on tokens: engine against plain loops, refusals, and ids outside their table.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "exact_activation.h"
#include "plain_loops.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/sequence/attention.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

/// Largest |a - b| as a share of the largest |a|, over f32 outputs.
void expect_close(const Plan& plan, int64_t batch, const EngineOptions& options, double bound) {
  Engine engine(plan, options);
  const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
  const std::vector<Bytes> expected = run_plainly(plan, batch, inputs);
  const std::vector<Bytes> got = run_engine(engine, batch, inputs);
  for (size_t i = 0; i < expected.size(); ++i) {
    const plain::View a{const_cast<std::byte*>(expected[i].data()), engine.outputs()[i]};
    const plain::View b{const_cast<std::byte*>(got[i].data()), engine.outputs()[i]};
    const int64_t count = element_count(engine.outputs()[i], batch);
    float largest = 0;
    for (int64_t e = 0; e < count; ++e) largest = std::max(largest, std::abs(a.get(e)));
    for (int64_t e = 0; e < count; ++e) {
      if (a.get(e) == b.get(e)) continue;  // infinities of masks, too
      ASSERT_NEAR(a.get(e), b.get(e), bound * largest) << options.isa << " output " << i << " element " << e;
    }
  }
}

/// Float ops are a few roundings of 2^-24 apart; nothing behind them is rounded to codes.
constexpr double kFloat = 64 * 0x1p-24;

TEST(TextOps, EachOpMatchesPlainLoops) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    const EngineOptions options{.threads = 2, .isa = kernels::to_string(isa)};
    for (const DataType type : {DataType::i32, DataType::i64}) {
      Builder b(Numbers::f32);
      const int32_t ids = b.input({kBatch, 5}, type);
      const int32_t words = b.text({.op = Op::embedding, .inputs = {ids}}, {{"weight", {9, 7}}});
      b.output(words);
      b.output(
          b.text({.op = Op::add, .inputs = {words}, .attributes = ActivationAttributes{Activation::relu}},
                 {{"addend", {5, 7}}}));
      b.output(b.text({.op = Op::token_mask, .inputs = {ids}, .attributes = TokenAttributes{2}}));
      expect_close(b.plan, 3, options, 0);
    }
    Builder b(Numbers::f32);
    const int32_t x = b.input({kBatch, 6, 24}), r = b.input({kBatch, 6, 10}), k = b.input({kBatch, 9, 24});
    b.output(b.text({.op = Op::layer_norm, .inputs = {x}, .attributes = LayerNormAttributes{1e-5F}},
                    {{"weight", {24}}, {"bias", {24}}}));
    b.output(b.text({.op = Op::layer_norm, .inputs = {x}, .attributes = LayerNormAttributes{0.5F}}));
    b.output(b.text({.op = Op::select, .inputs = {x}, .attributes = SelectAttributes{4}}));
    b.output(b.text({.op = Op::attention, .inputs = {x, k, k}, .attributes = AttentionAttributes{4, 0.1F}}));
    b.output(b.text(
        {.op = Op::attention, .inputs = {x, x, x}, .attributes = AttentionAttributes{2, 0.05F, true}}));
    const int32_t shared = b.input({kBatch, 6, 12});
    b.output(b.text(
        {.op = Op::attention,
         .inputs = {x, shared, shared},
         .attributes = AttentionAttributes{.heads = 4, .scale = 0.1F, .causal = true, .kv_heads = 2}}));
    b.output(b.text({.op = Op::attention,
                     .inputs = {x, x, x},
                     .attributes = AttentionAttributes{
                         .heads = 3, .scale = 0.3F, .causal = true, .window = 2, .softcap = 0.5F}}));
    for (const bool per_tensor : {false, true}) {
      b.output(b.text({.op = Op::dynamic_linear,
                       .inputs = {x, r},
                       .attributes = DynamicLinearAttributes{Activation::gelu, per_tensor}},
                      {{"weight", {10, 24}}, {"weight_scale", {10}}, {"bias", {10}}}));
    }
    for (const Activation curve : ulp::test::all_curves()) {
      b.output(b.linear(x, 11, curve));
      b.output(b.op(Op::relu, {x}, ActivationAttributes{curve}));
    }
    for (const int64_t batch : {1, 3, 40}) expect_close(b.plan, batch, options, kFloat);
  }
}

TEST(TextOps, GroupNormOfEveryRankAndLayoutMatchesPlainLoops) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    Builder b(Numbers::f32);
    std::vector<int32_t> inputs = {b.enter(b.input({kBatch, 24, 5, 7}))};
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{kBatch, 24, 9}, {kBatch, 24, 3, 5}, {kBatch, 24, 2, 3, 4}, {2, 24, 70}}) {
      inputs.push_back(b.input(shape));
    }
    for (const int32_t x : inputs) {
      for (const int64_t groups : {1, 3, 24}) {
        const Step step{
            .op = Op::group_norm, .inputs = {x}, .attributes = GroupNormAttributes{groups, 1e-5F}};
        const Layout layout = b.info(x).layout;
        b.output(b.leave(b.text(step, {{"weight", {24}}, {"bias", {24}}}, layout)));
        b.output(b.leave(b.text(step, {}, layout)));
      }
    }
    for (const int64_t batch : {1, 4})
      expect_close(b.plan, batch, {.threads = 2, .isa = kernels::to_string(isa)}, kFloat);
  }
}

/// The tensor holds numbers of this type.
int32_t typed(Builder& b, int32_t tensor, DataType type) {
  TensorInfo& info = b.plan.tensors[static_cast<size_t>(tensor)];
  info.type = type;
  if (type == DataType::u8) {
    info.scale = 0.05F;
    info.zero_point = 110;
  }
  return tensor;
}

/// At most one step of the type between both, and seldom: float64 and f32 round to different sides now and then. `in_bf16`:
/// the output whose kernel multiplies in bf16, -1 for none; it is off by a part of the largest value as well.
void expect_rounded(const Plan& plan, DataType type, int64_t batch, const EngineOptions& options,
                    int64_t in_bf16) {
  Engine engine(plan, options);
  const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
  const std::vector<Bytes> expected = run_plainly(plan, batch, inputs);
  const std::vector<Bytes> got = run_engine(engine, batch, inputs);
  for (size_t i = 0; i < expected.size(); ++i) {
    const plain::View a{const_cast<std::byte*>(expected[i].data()), engine.outputs()[i]};
    const plain::View b{const_cast<std::byte*>(got[i].data()), engine.outputs()[i]};
    const int64_t count = element_count(engine.outputs()[i], batch);
    const bool wider = static_cast<int64_t>(i) == in_bf16;
    int64_t different = 0;
    for (int64_t e = 0; e < count; ++e) {
      const float step = type == DataType::u8 ? 0.05001F : 0x1p-7F * std::abs(a.get(e)) + 0x1p-20F;
      const float unit = step + (wider ? 0x1p-8F : 0.0F);
      ASSERT_NEAR(a.get(e), b.get(e), unit) << options.isa << " output " << i << " element " << e;
      different += a.get(e) != b.get(e);
    }
    EXPECT_LE(different, wider ? count : 2 + count / 100) << options.isa << " output " << i;
  }
}

TEST(TextOps, WhatComputesInFloatReadsAndWritesBf16AndCodes) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const DataType type : {DataType::bf16, DataType::u8}) {
      Builder b(Numbers::f32);
      const auto held = [&](int32_t x) {
        return typed(b, b.text({.op = Op::convert, .inputs = {x}}, {}, b.info(x).layout), type);
      };
      const auto made = [&](Step step,
                            const std::vector<std::pair<const char*, std::vector<int64_t>>>& constants,
                            Layout layout = Layout::plain) {
        b.output(b.leave(typed(b, b.text(std::move(step), constants, layout), type)));
      };
      const int32_t rows = b.input({kBatch, 6, 24}), keys = b.input({kBatch, 9, 24});
      const int32_t x = held(rows), image = held(b.enter(b.input({kBatch, 24, 5, 7})));
      made({.op = Op::layer_norm, .inputs = {x}, .attributes = LayerNormAttributes{1e-5F}},
           {{"weight", {24}}, {"bias", {24}}});
      made({.op = Op::group_norm, .inputs = {image}, .attributes = GroupNormAttributes{3, 1e-5F}},
           {{"bias", {24}}}, Layout::nhwc);
      made({.op = Op::reduce,
            .inputs = {x},
            .attributes = ReduceAttributes{.kind = kernels::ReduceKind::mean, .dims = {{2}}}},
           {});
      const int32_t narrow = held(keys);
      const kernels::AttentionShape shape{.heads = 4, .depth = 6, .query = {.type = type}};
      const auto attention = static_cast<int64_t>(b.plan.outputs.size());
      const int64_t in_bf16 = kernels::attention_in_bf16(shape, isa) ? attention : -1;
      made({.op = Op::attention, .inputs = {x, narrow, narrow}, .attributes = AttentionAttributes{4, 0.1F}},
           {});
      const bool half = type == DataType::bf16;
      if (!half) {
        const int32_t mask = b.input({kBatch, 9});
        made({.op = Op::attention,
              .inputs = {x, narrow, narrow, mask},
              .attributes = AttentionAttributes{3, 0.4F}},
             {});
        made({.op = Op::attention, .inputs = {x, x, x}, .attributes = AttentionAttributes{2, 0.2F, true}},
             {});
      }
      // Codes are no operands of these.
      const int32_t q = half ? x : rows, k = half ? narrow : keys;
      made({.op = Op::token_mean, .inputs = {q}}, {});
      MatmulAttributes product{.loops = {}, .a = {0, 24, 1}, .b = {0, 1, 24}, .shape = {{6}, {9}}};
      product.rows = 6;
      product.inner = 24;
      product.columns = 9;
      made({.op = Op::matmul, .inputs = {q, k}, .attributes = product}, {});
      for (const int64_t batch : {1, 3}) {
        expect_rounded(b.plan, type, batch, {.threads = 2, .isa = kernels::to_string(isa)}, in_bf16);
      }
    }
  }
}

TEST(TextOps, Bf16TablesAndSumsWithConstants) {
  Builder b(Numbers::f32);
  const int32_t ids = b.input({kBatch, 5}, DataType::i64);
  const int32_t words = b.text({.op = Op::embedding, .inputs = {ids}}, {{"weight", {9, 7}}});
  const int32_t sum = b.text({.op = Op::add, .inputs = {words}}, {{"addend", {5, 7}}});
  b.output(b.leave(sum));
  for (const int32_t x : {words, sum}) typed(b, x, DataType::bf16);
  for (auto& [name, constant] : b.plan.constants) {  // multiples of 1/8 up to 1: bf16 holds them
    std::vector<uint16_t> half;
    for (size_t at = 0; at < constant.bytes.size(); at += 4) {
      uint32_t bits;
      std::memcpy(&bits, constant.bytes.data() + at, 4);
      half.push_back(static_cast<uint16_t>(bits >> 16));
    }
    constant = constant_of(DataType::bf16, constant.shape, half);
  }
  expect_close(b.plan, 3, {.threads = 2}, 0);
  b.plan.constants.begin()->second.type = DataType::i8;
  EXPECT_THROW(b.plan.verify(), Error);
}

TEST(TextOps, MeansOverStepsMatchPlainLoops) {
  for (const DataType type : {DataType::i32, DataType::i64}) {
    Builder b(Numbers::f32);
    const int32_t ids = b.input({kBatch, 2}, type), x = b.input({kBatch, 2, 7}),
                  all = b.input({kBatch, 5, 3});
    // Two ids below 5: some texts hold nothing but the token.
    b.output(b.text({.op = Op::token_mean, .inputs = {x, ids}, .attributes = TokenAttributes{1}}));
    b.output(b.text({.op = Op::token_mean, .inputs = {all}}));
    for (const int64_t batch : {1, 40}) expect_close(b.plan, batch, {.threads = 2}, kFloat);
  }
}

TEST(TextOps, BadMeansOverStepsAreRefused) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 5, 3}), ids = b.input({kBatch, 4}, DataType::i64),
                flat = b.input({kBatch, 5});
  const auto message = [&](const Step& step) -> std::string {
    try {
      static_cast<void>(b.plan.output_shape(step));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto expect = [&](const Step& step, const char* part) {
    EXPECT_NE(message(step).find(part), std::string::npos) << message(step);
  };
  expect({.op = Op::token_mean, .inputs = {x, ids}}, "expected ids [batch, 5], got [batch, 4]");
  expect({.op = Op::token_mean, .inputs = {x, flat}}, "expected ids of type i32 or i64");
  expect({.op = Op::token_mean, .inputs = {flat}}, "of at least 3 dimensions");
  expect({.op = Op::token_mean, .inputs = {x}, .attributes = TokenAttributes{2}}, "a token is for ids");
}

/// Brings the matrices of a plan to bf16.
void round_matrices(Plan& plan) {
  for (auto& [name, constant] : plan.constants) {
    if (constant.shape.size() != 2) continue;
    std::vector<float> values(constant.bytes.size() / sizeof(float));
    std::memcpy(values.data(), constant.bytes.data(), constant.bytes.size());
    std::vector<uint16_t> rounded;
    for (const float v : values) rounded.push_back(kernels::float_to_bf16(v));
    constant = constant_of(DataType::bf16, constant.shape, rounded);
  }
}

TEST(TextOps, RecurrentLayersMatchPlainLoops) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    const EngineOptions options{.threads = 2, .isa = kernels::to_string(isa)};
    for (const Op op : {Op::lstm, Op::gru}) {
      Builder floats(Numbers::f32), codes(Numbers::f32);
      const int32_t x = floats.input({kBatch, 6, 9}), q = codes.input({kBatch, 6, 9});
      for (const bool reverse : {false, true}) {
        floats.output(floats.recurrent(op, x, 10, false, reverse));
        codes.output(codes.recurrent(op, q, 10, true, reverse));
        codes.output(codes.recurrent(op, q, 17, true, reverse, true));
      }
      for (const int64_t batch : {1, 3, 40}) {
        expect_close(floats.plan, batch, options, 4 * kFloat);
        Plan rounded = floats.plan;
        round_matrices(rounded);
        // An h next to the middle of two bf16 numbers may be rounded to the other one.
        expect_close(rounded, batch, options, 0x1p-8);
        // The roundings of one step can move an input of the next by a code.
        expect_close(codes.plan, batch, options, 2.0 / 255);
      }
    }
  }
}

TEST(TextOps, RecurrentLayersBeginWithStatesAndGiveThem) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    const EngineOptions options{.threads = 2, .isa = kernels::to_string(isa)};
    for (const Op op : {Op::lstm, Op::gru}) {
      Builder floats(Numbers::f32), codes(Numbers::f32);
      for (Builder* b : {&floats, &codes}) {
        const int32_t x = b->input({kBatch, 5, 9}), h = b->input({kBatch, 10});
        std::vector<int32_t> states = {h};
        if (op == Op::lstm) states.push_back(b->input({kBatch, 10}));
        for (const bool reverse : {false, true})
          b->output(b->recurrent_from(op, x, states, b == &codes, reverse));
      }
      for (const int64_t batch : {1, 3, 40}) {
        expect_close(floats.plan, batch, options, 4 * kFloat);
        expect_close(codes.plan, batch, options, 2.0 / 255);
      }
    }
  }
}

TEST(TextOps, TheBatchMovesToTheFirstDimensionAndBack) {
  for (const DataType type : {DataType::f32, DataType::i64, DataType::u8}) {
    Builder b(Numbers::f32);
    const auto moved = [&](int32_t x, int64_t to) {
      const int32_t made =
          b.typed({.op = Op::move_batch, .inputs = {x}, .attributes = MoveBatchAttributes{to}}, type);
      TensorInfo& info = b.plan.tensors[static_cast<size_t>(made)];
      info.scale = b.info(x).scale;
      info.zero_point = b.info(x).zero_point;
      return made;
    };
    const int32_t first = moved(b.input({3, kBatch, 2, 5}, type), 0);
    const int32_t second = moved(b.input({2, 3, kBatch}, type), 0);
    b.output(first);
    b.output(moved(first, 1));
    b.output(moved(first, 3));
    b.output(second);
    for (const int64_t batch : {1, 7})
      for (const int threads : {1, 2}) expect_close(b.plan, batch, {.threads = threads}, 0);
  }
}

TEST(TextOps, ANetworkOfThemMatchesPlainLoops) {
  // Roundings before a dynamic layer can move an input by a code: 1 / 255 of its row's range each.
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int64_t batch : {1, 2, 33}) {
      expect_close(small_text_network(), batch, {.threads = 2, .isa = kernels::to_string(isa)}, 2.0 / 255);
    }
  }
}

TEST(TextOps, SlicesOfABatchGiveTheSameBits) {
  const Plan plan = small_text_network();
  Engine one(plan, {.threads = 1}), two(plan, {.threads = 2});
  const std::vector<Bytes> inputs = make_inputs(plan, 64, 3);
  EXPECT_EQ(run_engine(one, 64, inputs), run_engine(two, 64, inputs));
  // Item by item, too: no item knows of another.
  const std::vector<Bytes> all = run_engine(one, 64, inputs);
  const size_t in = inputs[0].size() / 64, out = all[0].size() / 64;
  for (size_t i = 0; i < 64; i += 9) {
    const Bytes item(inputs[0].begin() + static_cast<std::ptrdiff_t>(i * in),
                     inputs[0].begin() + static_cast<std::ptrdiff_t>((i + 1) * in));
    const Bytes expected(all[0].begin() + static_cast<std::ptrdiff_t>(i * out),
                         all[0].begin() + static_cast<std::ptrdiff_t>((i + 1) * out));
    EXPECT_EQ(run_engine(one, 1, {item})[0], expected) << i;
  }
}

TEST(TextOps, OneQuantizerForTheWholeBatchSeesTheWholeBatch) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 16});
  b.output(b.text(
      {.op = Op::dynamic_linear, .inputs = {x}, .attributes = DynamicLinearAttributes{.per_tensor = true}},
      {{"weight", {8, 16}}, {"weight_scale", {8}}}));
  expect_close(b.plan, 100, {.threads = 2}, kFloat);
}

TEST(TextOps, FilesKeepEveryField) {
  const TemporaryFolder folder;
  const Plan plan = small_text_network();
  plan.save(folder / "text.ulp");
  const Plan loaded = Plan::load(folder / "text.ulp");
  ASSERT_EQ(loaded.steps.size(), plan.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    EXPECT_EQ(loaded.steps[i].op, plan.steps[i].op);
    EXPECT_EQ(loaded.steps[i].attributes, plan.steps[i].attributes);
  }
  Engine before(plan), after(loaded);
  const std::vector<Bytes> inputs = make_inputs(plan, 5, 1);
  EXPECT_EQ(run_engine(before, 5, inputs), run_engine(after, 5, inputs));
}

TEST(TextOps, IdsOutsideTheTableAreRefusedByName) {
  Builder b(Numbers::f32);
  b.output(
      b.text({.op = Op::embedding, .inputs = {b.input({kBatch, 3}, DataType::i64)}}, {{"weight", {9, 4}}}));
  Engine engine(b.plan);
  for (const int64_t bad : {int64_t{9}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const std::vector<int64_t> ids = {0, 8, 1, 2, bad, 3};
    std::vector<float> y(24);
    const void* in[] = {ids.data()};
    void* out[] = {y.data()};
    try {
      engine.run(2, in, out);
      ADD_FAILURE() << bad << ": accepted";
    } catch (const Error& error) {
      EXPECT_NE(
          std::string(error.what()).find("[runtime.Engine.run] expected ids in [0, 9) in input 'input0'"),
          std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad) + " at element 4"), std::string::npos);
    }
  }
}

/// A change to the first step of an op that verify() must refuse, with words of the message.
struct BadStep {
  const char* what;
  Op op;
  std::function<void(Plan&, Step&)> change;
  const char* message;
};

TensorInfo& tensor(Plan& plan, int32_t index) {
  return plan.tensors[static_cast<size_t>(index)];
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Embeddings, masks and sums.
std::vector<BadStep> bad_tables_and_sums() {
  return {
      {"float ids", Op::embedding, [](Plan& p, Step& s) { tensor(p, s.inputs[0]).type = DataType::f32; },
       "expected ids"},
      {"byte ids", Op::token_mask, [](Plan& p, Step& s) { tensor(p, s.inputs[0]).type = DataType::i8; },
       "expected ids"},
      {"no table", Op::embedding, [](Plan&, Step& s) { s.constants.clear(); }, "constant 'weight'"},
      {"flat table", Op::embedding, [](Plan& p, Step& s) { constant(p, s, "weight").shape = {132}; },
       "2 dimensions"},
      {"addend shape", Op::add,
       [](Plan& p, Step& s) {
         constant(p, s, "addend").shape = {12, 6};
       },
       "constant 'addend'"},
      {"addend and two inputs", Op::add, [](Plan&, Step& s) { s.inputs.push_back(s.inputs[0]); },
       "or one and an 'addend'"},
      {"sum with gelu", Op::add,
       [](Plan&, Step& s) { s.get<ActivationAttributes>().activation = Activation::gelu; }, "after a sum"},
      {"norm weight", Op::layer_norm,
       [](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {3, 4};
       },
       "constant 'weight'"},
      {"groups", Op::group_norm, [](Plan&, Step& s) { s.get<GroupNormAttributes>().groups = 4; },
       "groups that divide the 6 channels, got 4"},
      {"group norm weight", Op::group_norm,
       [](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {3, 2};
       },
       "constant 'weight'"},
      {"group norm of rows", Op::group_norm, [](Plan& p, Step& s) { s.inputs = {p.steps[0].output}; },
       "at least 3 dimensions"},
      {"epsilon NaN", Op::layer_norm, [=](Plan&, Step& s) { s.get<LayerNormAttributes>().epsilon = kNan; },
       "expected epsilon in [0, "},
      {"epsilon negative", Op::layer_norm, [](Plan&, Step& s) { s.get<LayerNormAttributes>().epsilon = -1; },
       "expected epsilon in [0, "}};
}

/// Norms, attention, cutting and dynamic linear layers.
std::vector<BadStep> bad_rows_and_attention() {
  return {{"heads", Op::attention, [](Plan&, Step& s) { s.get<AttentionAttributes>().heads = 5; },
           "heads that divide 12"},
          {"no heads", Op::attention, [](Plan&, Step& s) { s.get<AttentionAttributes>().heads = 0; },
           "expected heads >= 1, got 0"},
          {"scale", Op::attention, [=](Plan&, Step& s) { s.get<AttentionAttributes>().scale = kNan; },
           "expected scale in ["},
          {"shared heads", Op::attention, [](Plan&, Step& s) { s.get<AttentionAttributes>().kv_heads = 5; },
           "expected kv_heads that divide the "},
          {"heads of keys", Op::attention, [](Plan&, Step& s) { s.get<AttentionAttributes>().kv_heads = 1; },
           "v [N, keys, kv_heads * depth]"},
          {"window", Op::attention, [](Plan&, Step& s) { s.get<AttentionAttributes>().window = 2; },
           "expected causal attention without a mask where queries have a window"},
          {"soft cap", Op::attention, [=](Plan&, Step& s) { s.get<AttentionAttributes>().softcap = -1; },
           "expected softcap in ["},
          {"mask", Op::attention, [](Plan&, Step& s) { s.inputs[3] = s.inputs[0]; }, "expected a mask"},
          {"keys", Op::attention, [](Plan&, Step& s) { s.inputs[1] = s.inputs[3]; }, "at least 3 dimensions"},
          {"index", Op::select, [](Plan&, Step& s) { s.get<SelectAttributes>().begin = 6; },
           "an index in [0, 6)"},
          {"negative index", Op::select, [](Plan&, Step& s) { s.get<SelectAttributes>().begin = -1; },
           "expected begin >= 0, got -1"},
          {"weight type", Op::dynamic_linear,
           [](Plan& p, Step& s) { constant(p, s, "weight").type = DataType::u8; }, "constant 'weight'"},
          {"no scales", Op::dynamic_linear, [](Plan&, Step& s) { s.constants.erase("weight_scale"); },
           "'weight_scale', got none"},
          {"scale NaN", Op::dynamic_linear,
           [](Plan& p, Step& s) { std::memcpy(constant(p, s, "weight_scale").bytes.data(), &kNan, 4); },
           "finite and > 0"},
          {"bias type", Op::dynamic_linear,
           [](Plan& p, Step& s) { constant(p, s, "bias").type = DataType::i32; }, "constant 'bias'"}};
}

/// LSTM and GRU, and an unknown activation.
std::vector<BadStep> bad_recurrent_steps() {
  return {{"input gates", Op::lstm,
           [](Plan& p, Step& s) {
             constant(p, s, "weight_ih").shape = {12, 32};
           },
           "constant 'weight_ih'"},
          {"hidden gates", Op::gru, [](Plan&, Step& s) { s.constants.erase("weight_hh"); },
           "constant 'weight_hh'"},
          {"bf16 and f32", Op::lstm,
           [](Plan& p, Step& s) {
             Constant& weight = constant(p, s, "weight_hh");
             weight.type = DataType::bf16;
             weight.bytes.resize(weight.bytes.size() / 2);
           },
           "constant 'weight_ih'"},
          {"one bias short", Op::lstm,
           [](Plan& p, Step& s) {
             constant(p, s, "bias_hh").shape = {2, 16};
           },
           "constant 'bias_hh'"},
          {"codes and floats", Op::gru,
           [](Plan&, Step& s) { s.constants["weight_ih"] = s.constants.at("weight_hh"); },
           "constant 'weight_ih'"},
          {"hidden scale NaN", Op::gru,
           [](Plan& p, Step& s) { std::memcpy(constant(p, s, "weight_hh_scale").bytes.data(), &kNan, 4); },
           "finite and > 0"},
          {"scale of floats", Op::lstm,
           [](Plan&, Step& s) { s.constants["weight_hh_scale"] = s.constants.at("bias_hh"); },
           "are for i8 weights"},
          {"per_tensor of floats", Op::lstm,
           [](Plan&, Step& s) { s.get<RecurrentAttributes>().per_tensor = true; }, "are for i8 weights"},
          {"one state of two", Op::lstm, [](Plan&, Step& s) { s.inputs.push_back(s.inputs[0]); },
           "expected no first states or 2, got 1"},
          {"states of other sizes", Op::gru, [](Plan&, Step& s) { s.inputs.push_back(s.inputs[0]); },
           "expected first states [batch, 5]"},
          {"c of a GRU", Op::gru, [](Plan&, Step& s) { s.get<RecurrentAttributes>().last_c = true; },
           "last_c is for lstm"},
          {"a text without steps", Op::lstm, [](Plan& p, Step& s) { s.inputs = p.inputs; },
           "to be f32 of at least 3"},
          {"curve unknown", Op::relu,
           [](Plan&, Step& s) {
             s.get<ActivationAttributes>().activation = static_cast<Activation>(kActivationCount);
           },
           "expected activation to be none, relu"}};
}

TEST(TextOps, StepsTakeTheBatchFirst) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({3, kBatch, 5});
  const int32_t rows = b.text({.op = Op::move_batch, .inputs = {x}, .attributes = MoveBatchAttributes{0}});
  b.output(b.op(Op::relu, {rows}, ActivationAttributes{Activation::relu}));
  ASSERT_NO_THROW(b.plan.verify());
  const auto refused = [&](const std::function<void(Plan&)>& change, const std::string& says) {
    Plan plan = b.plan;
    change(plan);
    try {
      plan.verify();
      ADD_FAILURE() << "accepted, expected: " << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused([&](Plan& plan) { plan.steps[1].inputs = {x}; }, "expected the batch as dimension 0 of");
  refused([](Plan& plan) { plan.steps[0].get<MoveBatchAttributes>().to = 1; }, "dimension 1 to 1 of");
  refused([](Plan& plan) { plan.steps[0].get<MoveBatchAttributes>().to = 3; }, "dimension 1 to 3 of");
  refused([](Plan& plan) { plan.tensors[0].shape = {3, 4, 5}; }, "with a batch");
  refused([](Plan& plan) { plan.tensors[0].shape = {kBatch, kBatch, 5}; }, "only one dimension may be");
}

TEST(TextOps, BadStepsAreRefused) {
  std::vector<BadStep> all = bad_tables_and_sums();
  for (const std::vector<BadStep>& more : {bad_rows_and_attention(), bad_recurrent_steps()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  ASSERT_NO_THROW(small_text_network().verify());
  for (const BadStep& bad : all) {
    Plan plan = small_text_network();
    Step* step = nullptr;
    for (Step& candidate : plan.steps) {
      if (step == nullptr && candidate.op == bad.op) step = &candidate;
    }
    ASSERT_NE(step, nullptr) << bad.what;
    bad.change(plan, *step);
    try {
      plan.verify();
      ADD_FAILURE() << bad.what << ": accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(bad.message), std::string::npos)
          << bad.what << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace ulp::runtime
