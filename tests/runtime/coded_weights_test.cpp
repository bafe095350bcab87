// Linear layers and embeddings with coded weights against the same plan with the weights written out.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>

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
  bool zero, minimum = false;
};
constexpr Coding kCodings[] = {
    {8, 0, false}, {8, 8, false}, {4, 8, false}, {4, 12, true}, {4, 6, false, true}};

/// Rounded twice on every machine.
float less(float product, float minimum) {
  const volatile float rounded = product;
  return rounded - minimum;
}

/// Replaces the weight of a step by random codes; returns the numbers that they stand for.
std::vector<float> encode(Builder& b, Plan& plan, Step& step, const Coding& coding) {
  Constant& weight = plan.constants.at(step.constants.at("weight"));
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  const int64_t group = coding.group == 0 ? columns : coding.group, groups = (columns + group - 1) / group;
  std::vector<uint8_t> codes, zeros;
  std::vector<float> scales, minima, values;
  for (int64_t i = 0; i < rows * groups; ++i) {
    scales.push_back(0.01F * static_cast<float>(b.random().integer(1, 9)));
    zeros.push_back(static_cast<uint8_t>(b.random().integer(0, 15)));
    minima.push_back(0.003F * static_cast<float>(b.random().integer(-5, 9)));
  }
  if (coding.minimum) scales[1] = 0;
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
      if (coding.bits == 4 && !coding.minimum) code -= coding.zero ? zeros[part] : 8;
      const float value = static_cast<float>(code) * scales[part];
      if (k < columns) values.push_back(coding.minimum ? less(value, minima[part]) : value);
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
  if (coding.minimum) {
    step.constants["weight_minimum"] = step.name + ".minimum";
    plan.constants[step.name + ".minimum"] = constant_of(DataType::f32, parts, minima);
  }
  return values;
}

/// A table of 9 rows of 24 and a layer of 24 inputs.
Builder embedding_network() {
  Builder b(Numbers::f32);
  const int32_t words =
      b.text({.op = Op::embedding, .inputs = {b.input({kBatch, 5}, DataType::i64)}}, {{"weight", {9, 24}}});
  b.output(words);
  b.output(b.linear(words, 19, Activation::gelu));
  return b;
}

TEST(CodedWeights, GiveWhatTheirNumbersGive) {
  for (const Coding& coding : kCodings) {
    Builder b = embedding_network();
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

struct BadCodedStep {
  const char* what;
  size_t step;
  std::function<void(Plan&, Step&)> change;
  const char* message;
};

void expect_refused(const Coding& coding, std::span<const BadCodedStep> all) {
  Builder b = embedding_network();
  Plan good = b.plan;
  for (const size_t index : {0, 1}) encode(b, good, good.steps[index], coding);
  ASSERT_NO_THROW(good.verify());
  for (const BadCodedStep& bad : all) {
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

TEST(CodedWeights, BadOnesAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const BadCodedStep all[] = {
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
  expect_refused({4, 12, true}, all);
}

TEST(CodedWeights, BadMinimaAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto beside_zeros = [](Plan& p, Step& s) {
    s.constants["weight_zero"] = "zeros";
    p.constants["zeros"] =
        constant_of(DataType::u8, constant(p, s, "weight_minimum").shape,
                    std::vector<uint8_t>(constant(p, s, "weight_minimum").bytes.size() / 4));
  };
  const auto without_codes = [](Plan& p, Step& s) {
    Constant& weight = constant(p, s, "weight");
    weight = constant_of(DataType::f32, {weight.shape[0], 24},
                         std::vector<float>(static_cast<size_t>(weight.shape[0] * 24)));
    s.constants.erase("weight_scale");
  };
  const BadCodedStep all[] = {
      {"both in a layer", 1, beside_zeros, "'weight_zero' or 'weight_minimum', got both"},
      {"both in a table", 0, beside_zeros, "'weight_zero' or 'weight_minimum', got both"},
      {"of floats in a layer", 1, without_codes, "'weight_minimum' is for 4-bit codes"},
      {"of floats in a table", 0, without_codes, "'weight_minimum' is for a coded 'weight'"},
      {"infinite", 0,
       [&](Plan& p, Step& s) {
         std::memcpy(constant(p, s, "weight_minimum").bytes.data() + 4, &infinity, 4);
       },
       "'weight_minimum' to be finite, got inf"},
      {"type", 1, [](Plan& p, Step& s) { constant(p, s, "weight_minimum").type = DataType::i32; },
       "'weight_minimum' to be f32"},
      {"shape", 1, [](Plan& p, Step& s) { constant(p, s, "weight_minimum").shape = {38}; },
       "'weight_minimum' to be f32 [19, 2]"},
      {"of 8 bits", 1,
       [](Plan& p, Step& s) {
         Constant& weight = constant(p, s, "weight");
         weight.type = DataType::i8;
         weight.shape = {19, 2, 12};
         weight.bytes.resize(weight.bytes.size() * 2);
       },
       "'weight_minimum' is for 4-bit codes"}};
  expect_refused({4, 12, false, true}, all);
}

TEST(CodedWeights, SurviveEveryOtherShapeOfTheirConstants) {
  for (const Coding& coding : {Coding{4, 12, true}, Coding{4, 12, false, true}}) {
    Builder b = embedding_network();
    for (const size_t index : {0, 1}) encode(b, b.plan, b.plan.steps[index], coding);
    expect_other_shapes_survived(b.plan);
  }
}

}  // namespace
}  // namespace ulp::runtime
