// The ops on ids: engine against plain loops, refusals, and ids that steps made outside their range.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "error_of.h"
#include "plain_loops.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

using ulp::test::error_of;

/// The plan's outputs are the plain loops' bits at several batch sizes and thread counts.
void expect_plain_results(const Plan& plan) {
  for (const int threads : {1, 3}) {
    Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {1, 2, 5, 40}) {
      const std::vector<Bytes> inputs = make_inputs(plan, batch, 7);
      const std::vector<Bytes> expected = run_plainly(plan, batch, inputs),
                               got = run_engine(engine, batch, inputs);
      for (size_t i = 0; i < expected.size(); ++i) expect_same(engine.outputs()[i], expected[i], got[i]);
    }
  }
}

Constant ids_of(std::vector<int64_t> shape, const std::vector<int64_t>& ids) {
  return constant_of(DataType::i64, std::move(shape), ids);
}

class IndexOps : public ::testing::TestWithParam<Numbers> {};

TEST_P(IndexOps, GatherPicksRowsAlongAnyDimension) {
  for (const DataType type : {DataType::i32, DataType::i64}) {
    Builder b(GetParam());
    const int32_t x = b.enter(b.input({kBatch, 5, 6, 7})), y = b.enter(b.input({kBatch, 9, 5}));
    const int32_t plain = b.op(Op::move, {x}, MoveAttributes{{{5, 1}, {42, 5}}, 0, {{5}, {42}}});
    b.plan.tensors[static_cast<size_t>(plain)].layout = Layout::plain;
    const int32_t ids = b.input({kBatch, 4}, type), one = b.input({kBatch}, type),
                  table = b.input({kBatch, 2, 3}, type);
    for (const int32_t list : {ids, one, table}) {
      for (const int64_t dim : {1, 2}) {
        b.output(b.op(Op::gather, {y, list}, GatherAttributes{.dim = dim}));
        b.output(b.op(Op::gather, {plain, list}, GatherAttributes{.dim = dim, .from_end = true}));
      }
    }
    expect_plain_results(b.plan);
  }
}

TEST_P(IndexOps, GatherPicksByConstants) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 4, 5, 3, 2, 2})), y = b.enter(b.input({kBatch, 7}));
  b.plan.constants["ids"] = ids_of({2, 3}, {0, 2, 1, 2, 2, 0});
  b.plan.constants["last"] = ids_of({}, {-1});
  const auto pick = [&](int32_t from, const char* ids, const GatherAttributes& own) {
    b.output(b.typed({.op = Op::gather, .inputs = {from}, .constants = {{"ids", ids}}, .attributes = own},
                     b.info(from).type));
  };
  for (const int64_t dim : {1, 2, 3}) pick(x, "ids", {.dim = dim});
  pick(y, "last", {.from_end = true});
  expect_plain_results(b.plan);
}

TEST_P(IndexOps, GatherPicksElementByElement) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 5, 6, 5, 2, 1}));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kBatch, 5, 6, 5, 2, 1},
                                            {kBatch, 9, 6, 5, 2, 1},
                                            {kBatch, 2, 3, 9, 1, 1},
                                            {kBatch, 1, 8, 5, 2, 1}}) {
    const int32_t ids = b.input(shape, DataType::i64);
    for (const int64_t dim : {1, 2, 3}) {
      bool fits = true;
      for (size_t d = 1; d < shape.size(); ++d)
        fits = fits && (static_cast<int64_t>(d) == dim || shape[d] <= b.info(x).shape[d]);
      if (fits) b.output(b.op(Op::gather, {x, ids}, GatherAttributes{.dim = dim, .each = true}));
    }
  }
  ASSERT_GE(b.plan.outputs.size(), 5U);
  expect_plain_results(b.plan);
}

TEST_P(IndexOps, ScatterReplaces) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 5, 6, 7})), rows = b.enter(b.input({kBatch, 8}));
  const int32_t plain = b.op(Op::move, {x}, MoveAttributes{{{5, 1}, {42, 5}}, 0, {{5}, {42}}});
  b.plan.tensors[static_cast<size_t>(plain)].layout = Layout::plain;
  const auto source_of = [&](int32_t of, const std::vector<int64_t>& shape) {
    const int32_t source = b.enter(b.input(shape));
    b.plan.tensors[static_cast<size_t>(source)].scale = b.info(of).scale;
    b.plan.tensors[static_cast<size_t>(source)].zero_point = b.info(of).zero_point;
    return source;
  };
  const int32_t wide = b.input({kBatch, 3, 42}, DataType::i64),
                tall = b.input({kBatch, 5, 70}, DataType::i32), few = b.input({kBatch, 3}, DataType::i64);
  b.output(b.op(Op::scatter, {plain, wide, source_of(plain, {kBatch, 3, 42})}, ScatterAttributes{.dim = 1}));
  b.output(b.op(Op::scatter, {plain, tall, source_of(plain, {kBatch, 5, 70})}, ScatterAttributes{.dim = 2}));
  b.output(b.op(Op::scatter, {rows, few, source_of(rows, {kBatch, 3})}, ScatterAttributes{}));
  if (GetParam() != Numbers::u8) {
    b.output(b.op(Op::scatter, {rows, few}, ScatterAttributes{.value = 1.5F}));
    // Its input's memory becomes the result's.
    const int32_t turned = b.op(Op::relu, {rows}, ActivationAttributes{Activation::relu});
    b.output(b.leave(b.op(Op::scatter, {turned, few}, ScatterAttributes{.value = -2})));
  }
  expect_plain_results(b.plan);
}

TEST_P(IndexOps, SortsAlongAnyDimension) {
  Builder b(GetParam());
  const int32_t x = b.enter(b.input({kBatch, 5, 30, 3, 2})), rows = b.enter(b.input({kBatch, 300}));
  for (const bool descending : {false, true}) {
    for (const int64_t kept : {0, 1, 4}) {
      for (const int64_t dim : {1, 2}) {
        b.output(b.op(Op::sort, {x}, SortAttributes{dim, descending, kept}));
        b.output(b.typed(
            {.op = Op::sort, .inputs = {x}, .attributes = SortAttributes{dim, descending, kept, true}},
            DataType::i64));
      }
      b.output(b.op(Op::sort, {rows}, SortAttributes{1, descending, kept}));
    }
  }
  expect_plain_results(b.plan);
}

INSTANTIATE_TEST_SUITE_P(Runtime, IndexOps, ::testing::Values(Numbers::f32, Numbers::bf16, Numbers::u8),
                         [](const auto& info) { return std::string(to_string(type_of(info.param))); });

TEST(IdSteps, ScatterAdds) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 5, 7}), source = b.input({kBatch, 30, 4});
  const int32_t ids = b.input({kBatch, 30, 4}, DataType::i64), counted = b.input({kBatch, 9}, DataType::i32);
  b.output(b.op(Op::scatter, {x, ids, source}, ScatterAttributes{1, kernels::ScatterMode::add}));
  const int32_t counts = b.text({.op = Op::constant, .inputs = {x}}, {{"value", {5}}});
  b.output(b.op(Op::scatter, {counts, counted}, ScatterAttributes{1, kernels::ScatterMode::add, 1}));
  expect_plain_results(b.plan);
}

TEST(IdSteps, IdsAreMovedJoinedPickedAndHeldAsConstants) {
  for (const DataType type : {DataType::i32, DataType::i64}) {
    Builder b(Numbers::f32);
    const int32_t ids = b.input({kBatch, 3, 4}, type), more = b.input({kBatch, 2, 4}, type);
    const int32_t all = b.op(Op::concat, {ids, more}, ConcatAttributes{1});
    const int32_t turned = b.op(Op::move, {all}, MoveAttributes{{{4, 1}, {5, 4}}, 0, {{4}, {5}}});
    b.output(all);
    b.output(turned);
    b.output(b.op(Op::gather, {turned, ids}, GatherAttributes{.dim = 2}));
    b.output(b.text({.op = Op::embedding, .inputs = {turned}}, {{"weight", {5, 6}}}));
    expect_plain_results(b.plan);
  }
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 6});
  b.plan.constants["ids"] = ids_of({3}, {5, 0, 2});
  const int32_t ids =
      b.typed({.op = Op::constant, .inputs = {x}, .constants = {{"value", "ids"}}}, DataType::i64);
  b.output(b.op(Op::gather, {x, ids}, GatherAttributes{}));
  b.output(ids);
  expect_plain_results(b.plan);
}

TEST(IdSteps, IdsCountFromTheEndWhereTheyMay) {
  Builder b(Numbers::f32);
  b.output(b.text({.op = Op::embedding,
                   .inputs = {b.input({kBatch, 3}, DataType::i64)},
                   .attributes = EmbeddingAttributes{true}},
                  {{"weight", {9, 4}}}));
  Engine engine(b.plan);
  const auto run = [&](const std::vector<int64_t>& ids) {
    Bytes bytes(ids.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    return run_engine(engine, 1, {bytes});
  };
  EXPECT_EQ(run({-1, -9, 3}), run({8, 0, 3}));
  EXPECT_SAYS(error_of([&] { run({0, -10, 3}); }), "expected ids in [-9, 9) in input 'input0'");
}

/// x [batch, 4] becomes ids of `step`, whose input with ids is -1.
Plan looks_up(Step step, const std::vector<std::pair<const char*, std::vector<int64_t>>>& constants = {}) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 4});
  const int32_t ids = b.typed({.op = Op::convert, .inputs = {x}}, DataType::i64);
  for (int32_t& input : step.inputs) input = input < 0 ? ids : x;
  b.output(b.text(std::move(step), constants));
  return b.plan;
}

TEST(IdSteps, IdsThatAStepMadeAreRefusedAsTheyAreUsed) {
  const std::vector<std::pair<Plan, int64_t>> cases = {
      {looks_up({.op = Op::embedding, .inputs = {-1}}, {{"weight", {9, 5}}}), 9},
      {looks_up({.op = Op::embedding, .inputs = {-1}}, {{"weight", {9, 6}}, {"weight_scale", {9}}}), 9},
      {looks_up({.op = Op::gather, .inputs = {0, -1}}), 4},
      {looks_up({.op = Op::gather, .inputs = {0, -1}, .attributes = GatherAttributes{.each = true}}), 4},
      {looks_up({.op = Op::scatter, .inputs = {0, -1}, .attributes = ScatterAttributes{.value = 2}}), 4},
      {looks_up({.op = Op::scatter, .inputs = {0, -1, 0}}), 4}};
  for (const auto& [plan, rows] : cases) {
    for (const int threads : {1, 3}) {
      Engine engine(plan, {.threads = threads});
      for (const int64_t batch : {1, 3, 100}) {
        std::vector<float> x(static_cast<size_t>(batch) * 4, 1.0F);
        std::vector<float> y(byte_count(engine.outputs()[0], batch) / sizeof(float));
        const auto run = [&] {
          const void* in[] = {x.data()};
          void* out[] = {y.data()};
          engine.run(batch, in, out);
        };
        EXPECT_NO_THROW(run());
        const std::vector<float> before = y;
        for (const float bad : {static_cast<float>(rows), -1.0F, 1e30F, -1e30F, NAN}) {
          x.back() = bad;
          x[x.size() - 3] = bad;
          const std::string said = error_of(run), name = plan.steps.back().name;
          EXPECT_SAYS(said, "[runtime.Engine.run] expected ids in [0, " + std::to_string(rows) + ") for '" +
                                name + "', got ");
          if (std::isnan(bad)) {
            EXPECT_SAYS(said, "got NaN or less than any id");
          }
          EXPECT_SAYS(said, " at element " + std::to_string(x.size() - 3) + " of the ids");
          x.back() = x[x.size() - 3] = 1;
          EXPECT_NO_THROW(run());
          EXPECT_EQ(y, before) << "the engine is usable";
        }
      }
    }
  }
}

TEST(IdSteps, ProfilesRefuseBadIds) {
  const Plan plan = looks_up({.op = Op::gather, .inputs = {0, -1}});
  Engine engine(plan);
  std::vector<float> x = {0, 1, 2, 4}, y(4);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  EXPECT_SAYS(error_of([&] { static_cast<void>(engine.profile(1, in, out)); }), "got 4 at element 3");
}

/// Tensors for steps that must be refused: x [N, 5, 7], ids [N, 5, 7] and [N, 3], numbers [N, 3], codes.
struct Refused {
  Builder b{Numbers::f32};
  int32_t x = b.input({kBatch, 5, 7}), ids = b.input({kBatch, 5, 7}, DataType::i64),
          few = b.input({kBatch, 3}, DataType::i64), numbers = b.input({kBatch, 3}),
          image = b.input({kBatch, 2, 3, 4}, DataType::f32, Layout::nhwc),
          fixed = b.input({2, 3}, DataType::i64);

  std::string message(const Step& step) {
    return error_of([&] { static_cast<void>(b.plan.output_shape(step)); });
  }
};

TEST(IdSteps, BadStepsAreRefused) {
  Refused r;
  const auto gather = [&](std::vector<int32_t> inputs, const GatherAttributes& own) {
    return r.message({.op = Op::gather, .inputs = std::move(inputs), .attributes = own});
  };
  EXPECT_SAYS(gather({r.x}, {}), "expected ids, got none");
  EXPECT_SAYS(gather({r.x, r.numbers}, {}), "expected ids of type i32 or i64");
  EXPECT_SAYS(gather({r.x, r.few}, {.dim = 3}), "more than 3 dimensions");
  EXPECT_SAYS(gather({r.x, r.few}, {.dim = 0}), "expected dim in [1, 7], got 0");
  EXPECT_SAYS(gather({r.image, r.few}, {}), "layout plain");
  EXPECT_SAYS(gather({r.x, r.fixed}, {}), "of the first size of the input");
  EXPECT_SAYS(gather({r.x, r.few}, {.each = true}), "no larger than the input");
  EXPECT_SAYS(gather({r.numbers, r.ids}, {.each = true}), "no larger than the input");
  const auto scatter = [&](std::vector<int32_t> inputs, const ScatterAttributes& own = {}) {
    return r.message({.op = Op::scatter, .inputs = std::move(inputs), .attributes = own});
  };
  EXPECT_SAYS(scatter({r.x, r.few}), "no larger than the input");
  EXPECT_SAYS(scatter({r.numbers, r.few, r.x}), "a source of the shape of the ids");
  EXPECT_SAYS(scatter({r.x, r.x}), "expected ids of type i32 or i64");
  EXPECT_SAYS(scatter({r.numbers, r.few}, {.dim = 2}), "more than 2 dimensions");
  const auto sort = [&](int32_t x, const SortAttributes& own) {
    return r.message({.op = Op::sort, .inputs = {x}, .attributes = own});
  };
  EXPECT_SAYS(sort(r.numbers, {.kept = 4}), "at most 3 elements, got 4");
  EXPECT_SAYS(sort(r.few, {}), "expected tensors of type f32, bf16 or u8");
  EXPECT_SAYS(sort(r.numbers, {.dim = 2}), "more than 2 dimensions");
}

TEST(IdSteps, BadConstantIdsAreRefused) {
  Refused r;
  Step step{.op = Op::gather, .inputs = {r.numbers}, .constants = {{"ids", "ids"}}};
  for (const int64_t bad : {int64_t{3}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    r.b.plan.constants["ids"] = ids_of({4}, {0, 2, bad, 1});
    EXPECT_SAYS(r.message(step), "expected ids in [0, 3) in constant 'ids', got " + std::to_string(bad));
  }
  step.attributes = GatherAttributes{.from_end = true};
  r.b.plan.constants["ids"] = ids_of({2}, {-3, 2});
  EXPECT_EQ(r.b.plan.output_shape(step), (std::vector<int64_t>{kBatch, 2}));
  r.b.plan.constants["ids"] = ids_of({2}, {-4, 2});
  EXPECT_SAYS(r.message(step), "expected ids in [-3, 3)");
  r.b.plan.constants["ids"] = constant_of(DataType::f32, {2}, std::vector<float>{0, 1});
  EXPECT_SAYS(r.message(step), "constant 'ids' of type i32 or i64, got f32");
  step.inputs.push_back(r.few);
  EXPECT_SAYS(r.message(step), "an input or as a constant, got both");
}

/// Why a plan is refused whose last step was changed.
std::string verified(Builder b, const std::function<void(Plan&, Step&, TensorInfo&)>& change) {
  Step& last = b.plan.steps.back();
  b.plan.outputs = {last.output};
  EXPECT_NO_THROW(b.plan.verify()) << last.name;
  change(b.plan, last, b.plan.tensors[static_cast<size_t>(last.output)]);
  return error_of([&] { b.plan.verify(); });
}

TEST(IdSteps, BadResultsAreRefused) {
  Refused r;
  const auto made = [&](const Step& step, DataType type = DataType::f32) {
    Builder b = r.b;
    b.typed(step, type);
    return b;
  };
  const Builder gather = made({.op = Op::gather, .inputs = {r.x, r.few}}),
                added = made({.op = Op::scatter,
                              .inputs = {r.numbers, r.few, r.numbers},
                              .attributes = ScatterAttributes{.mode = kernels::ScatterMode::add}}),
                sorted = made({.op = Op::sort, .inputs = {r.numbers}}),
                places = made(
                    {.op = Op::sort, .inputs = {r.numbers}, .attributes = SortAttributes{.places = true}},
                    DataType::i64);
  const auto typed = [](DataType type) { return [type](Plan&, Step&, TensorInfo& y) { y.type = type; }; };
  EXPECT_SAYS(verified(gather, typed(DataType::bf16)), "an output of type f32");
  EXPECT_SAYS(verified(gather, [](Plan&, Step&, TensorInfo& y) { y.shape[1] = 4; }), "output of shape");
  EXPECT_SAYS(verified(sorted, typed(DataType::i64)), "an output of type f32");
  EXPECT_SAYS(verified(places, typed(DataType::f32)), "places of type i64");
  EXPECT_SAYS(verified(added, [](Plan&, Step& s, TensorInfo&) { s.get<ScatterAttributes>().value = 1; }),
              "a source or a value, got both");
  EXPECT_SAYS(verified(added,
                       [&](Plan& p, Step&, TensorInfo&) {
                         p.tensors[static_cast<size_t>(r.numbers)].type = DataType::bf16;
                         p.tensors.back().type = DataType::bf16;
                       }),
              "to join elements of type f32");
}

}  // namespace
}  // namespace ulp::runtime
