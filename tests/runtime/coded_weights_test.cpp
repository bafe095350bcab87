// Linear layers and embeddings with coded weights against the same plan with the weights written out.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "plain_loops.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

struct Coding {
  int bits;
  int64_t group;  ///< 0: one scale a row, stored in 2 dimensions
  bool zero;
};
constexpr Coding kCodings[] = {{8, 0, false}, {8, 8, false}, {4, 8, false}, {4, 12, true}};

/// Replaces the weight of a step by random codes; returns the numbers that they stand for.
std::vector<float> encode(Builder& b, Plan& plan, Step& step, const Coding& coding) {
  Constant& weight = plan.constants.at(step.constants.at("weight"));
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  const int64_t group = coding.group == 0 ? columns : coding.group, groups = (columns + group - 1) / group;
  std::vector<uint8_t> codes, zeros;
  std::vector<float> scales, values;
  for (int64_t i = 0; i < rows * groups; ++i) {
    scales.push_back(0.01F * static_cast<float>(b.random().integer(1, 9)));
    zeros.push_back(static_cast<uint8_t>(b.random().integer(0, 15)));
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < groups * group; ++k) {
      const auto part = static_cast<size_t>(row * groups + k / group);
      int code =
          static_cast<int>(coding.bits == 8 ? b.random().integer(-127, 127) : b.random().integer(0, 15));
      if (coding.bits == 8) {
        codes.push_back(static_cast<uint8_t>(static_cast<int8_t>(code)));
      } else if (k % 2 == 0) {
        codes.push_back(static_cast<uint8_t>(code));
      } else {
        codes.back() = static_cast<uint8_t>(codes.back() | code << 4);
      }
      if (coding.bits == 4) code -= coding.zero ? zeros[part] : 8;
      if (k < columns) values.push_back(static_cast<float>(code) * scales[part]);
    }
  }
  std::vector<int64_t> parts = {rows}, shape = {rows};
  if (coding.group != 0) parts.push_back(groups), shape.push_back(groups);
  shape.push_back(coding.bits == 8 ? group : group / 2);
  weight = constant_of(coding.bits == 8 ? DataType::i8 : DataType::u8, shape, codes);
  step.constants["weight_scale"] = step.name + ".scale";
  plan.constants[step.name + ".scale"] = constant_of(DataType::f32, parts, scales);
  if (coding.zero) {
    step.constants["weight_zero"] = step.name + ".zero";
    plan.constants[step.name + ".zero"] = constant_of(DataType::u8, parts, zeros);
  }
  return values;
}

/// A table of 9 rows of 24 and a layer of 24 inputs.
Builder network() {
  Builder b(Numbers::f32);
  const int32_t words =
      b.text({.op = Op::embedding, .inputs = {b.input({kBatch, 5}, DataType::i64)}}, {{"weight", {9, 24}}});
  b.output(words);
  b.output(b.linear(words, 19, Activation::gelu));
  return b;
}

TEST(CodedWeights, GiveWhatTheirNumbersGive) {
  for (const Coding& coding : kCodings) {
    Builder b = network();
    Plan coded = b.plan, plain = b.plan;
    for (const size_t index : {0, 1}) {
      const std::vector<float> values = encode(b, coded, coded.steps[index], coding);
      Constant& weight = plain.constants.at(plain.steps[index].constants.at("weight"));
      weight = constant_of(DataType::f32, weight.shape, values);
    }
    const TemporaryFolder folder;
    coded.save(folder / "coded.ulp");
    for (const kernels::Isa isa : kernels::available_isas()) {
      const EngineOptions options{.threads = 2, .isa = kernels::to_string(isa)};
      Engine one(folder / "coded.ulp", options), two(plain, options);
      for (const int64_t batch : {1, 40}) {
        const std::vector<Bytes> inputs = make_inputs(plain, batch, 5);
        const auto got = run_engine(one, batch, inputs), expected = run_engine(two, batch, inputs);
        EXPECT_EQ(got[0], expected[0]) << "rows of the table";
        const plain::View a{const_cast<std::byte*>(expected[1].data()), one.outputs()[1]};
        const plain::View c{const_cast<std::byte*>(got[1].data()), one.outputs()[1]};
        for (int64_t i = 0; i < element_count(a.info, batch); ++i) {
          // 24 products, each below 12 * 12, in sums of another rounding.
          ASSERT_NEAR(a.get(i), c.get(i), 2 * 24 * 0x1p-24 * 24 * 144) << options.isa << " element " << i;
        }
      }
    }
  }
}

TEST(CodedWeights, BadOnesAreRefused) {
  struct Bad {
    const char* what;
    size_t step;
    std::function<void(Plan&, Step&)> change;
    const char* message;
  };
  const auto constant = [](Plan& p, const Step& s, const char* role) -> Constant& {
    return p.constants.at(s.constants.at(role));
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Bad all[] = {
      {"no scales", 1, [](Plan&, Step& s) { s.constants.erase("weight_scale"); }, "'weight_scale', got none"},
      {"scale NaN", 1,
       [&](Plan& p, Step& s) { std::memcpy(constant(p, s, "weight_scale").bytes.data() + 8, &nan, 4); },
       "'weight_scale' to be finite"},
      {"scale shape", 0, [&](Plan& p, Step& s) { constant(p, s, "weight_scale").shape = {18}; },
       "'weight_scale' to be f32 [9, 2]"},
      {"zero type", 1, [&](Plan& p, Step& s) { constant(p, s, "weight_zero").type = DataType::i8; },
       "'weight_zero' to be u8"},
      {"flat codes", 1,
       [&](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {19, 12};
       },
       "coded 'weight' of 3 dimensions"},
      {"other groups", 1,
       [&](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {19, 3, 4};
       },
       "'weight_scale' to be f32 [19, 3]"},
      {"too few columns", 1,
       [&](Plan& p, Step& s) {
         constant(p, s, "weight").shape = {38, 1, 6};
       },
       "expected a coded 'weight' of 24 columns"},
      {"zero of 8 bits", 1,
       [&](Plan& p, Step& s) {
         Constant& weight = constant(p, s, "weight");
         weight.type = DataType::i8;
         weight.shape = {19, 2, 12};
         weight.bytes.resize(weight.bytes.size() * 2);
       },
       "'weight_zero' is for 4-bit codes"},
      {"bias type", 1, [&](Plan& p, Step& s) { constant(p, s, "bias").type = DataType::i32; },
       "'bias' to be f32"}};
  Builder b = network();
  Plan good = b.plan;
  for (const size_t index : {0, 1}) encode(b, good, good.steps[index], {4, 12, true});
  ASSERT_NO_THROW(good.verify());
  for (const Bad& bad : all) {
    Plan plan = good;
    bad.change(plan, plan.steps[bad.step]);
    try {
      plan.verify();
      ADD_FAILURE() << bad.what << ": accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(bad.message), std::string::npos)
          << bad.what << ": " << error.what();
    }
  }
}

TEST(CodedWeights, SurviveEveryOtherShapeOfTheirConstants) {
  Builder b = network();
  for (const size_t index : {0, 1}) encode(b, b.plan, b.plan.steps[index], {4, 12, true});
  expect_other_shapes_survived(b.plan);
}

}  // namespace
}  // namespace ulp::runtime
