// What attention gives queries that see no key (AttentionAttributes::blind).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "error_of.h"
#include "plain_loops.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

// Means of 8 whole numbers from -4 to 4 are exact in every type.
constexpr int64_t kWords = 8, kWidth = 68, kItems = 3;

Plan masked_attention(Numbers numbers, bool causal, BlindQueries blind) {
  Builder b(numbers);
  const DataType type = type_of(numbers);
  const auto held = [&](int32_t x) {
    return type == DataType::f32 ? x : b.typed({.op = Op::convert, .inputs = {x}}, type);
  };
  std::vector<int32_t> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(held(b.input({kBatch, kWords, kWidth})));
  inputs.push_back(b.input({kBatch, kWords}));
  const AttentionAttributes attributes{.heads = 2, .scale = 0.1F, .causal = causal, .blind = blind};
  const int32_t mixed = b.typed({.op = Op::attention, .inputs = inputs, .attributes = attributes}, type);
  b.output(type == DataType::f32 ? mixed : b.leave(mixed));
  for (TensorInfo& tensor : b.plan.tensors) {
    if (tensor.type != DataType::u8) continue;
    tensor.scale = 0.125F;
    tensor.zero_point = 128;
  }
  return b.plan;
}

/// Item 0 sees no key, item 1 those from the third on, item 2 all.
constexpr int64_t kHidden[kItems] = {kWords, 2, 0};

std::vector<Bytes> masked_inputs(const Plan& plan) {
  std::vector<Bytes> inputs = make_inputs(plan, kItems, 5);
  std::vector<float> mask(static_cast<size_t>(kItems * kWords), 0.0F);
  for (int64_t item = 0; item < kItems; ++item)
    std::fill_n(mask.begin() + item * kWords, kHidden[item], -std::numeric_limits<float>::infinity());
  std::memcpy(inputs[3].data(), mask.data(), inputs[3].size());
  return inputs;
}

std::vector<float> floats(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// What a query that sees no key gets in a column.
float expected_of(BlindQueries blind, Numbers numbers, const std::vector<float>& values, int64_t item,
                  int64_t column) {
  if (blind == BlindQueries::nan && numbers != Numbers::u8) return std::nanf("");  // codes have none
  if (blind != BlindQueries::mean) return 0.0F;
  float sum = 0;
  for (int64_t k = 0; k < kWords; ++k)
    sum += values[static_cast<size_t>((item * kWords + k) * kWidth + column)];
  return sum / kWords;
}

void expect_blind(Numbers numbers, bool causal, BlindQueries blind, const EngineOptions& options) {
  const Plan plan = masked_attention(numbers, causal, blind);
  Engine engine(plan, options), zeros(masked_attention(numbers, causal, BlindQueries::zeros), options);
  const std::vector<Bytes> inputs = masked_inputs(plan);
  const std::vector<float> got = floats(run_engine(engine, kItems, inputs)[0]),
                           seeing = floats(run_engine(zeros, kItems, inputs)[0]), values = floats(inputs[2]);
  ASSERT_EQ(got.size(), static_cast<size_t>(kItems * kWords * kWidth));
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
    const int64_t column = i % kWidth, query = i / kWidth % kWords, item = i / kWidth / kWords;
    const bool sees = kHidden[item] < kWords && (!causal || query >= kHidden[item]);
    const auto at = static_cast<size_t>(i);
    const float expected = sees ? seeing[at] : expected_of(blind, numbers, values, item, column);
    ASSERT_TRUE(got[at] == expected || (std::isnan(got[at]) && std::isnan(expected)))
        << options.isa << " item " << item << " query " << query << " column " << column << ": expected "
        << expected << ", got " << got[at];
  }
}

TEST(BlindQueries, GetZerosNanOrTheMeanOfAllValues) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int threads : {1, 3}) {
      for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8}) {
        for (const bool causal : {false, true}) {
          for (const BlindQueries blind : {BlindQueries::zeros, BlindQueries::nan, BlindQueries::mean})
            expect_blind(numbers, causal, blind, {.threads = threads, .isa = kernels::to_string(isa)});
        }
      }
    }
  }
}

TEST(BlindQueries, NeedAMask) {
  for (const BlindQueries blind : {BlindQueries::nan, BlindQueries::mean}) {
    Plan plan = masked_attention(Numbers::f32, true, blind);
    ASSERT_NO_THROW(plan.verify());
    plan.steps.back().inputs.pop_back();
    EXPECT_ERROR(plan.verify(), "expected a mask where queries may see no key");
    plan.steps.back().get<AttentionAttributes>().blind = BlindQueries::zeros;
    EXPECT_NO_THROW(plan.verify());
  }
}

}  // namespace
}  // namespace ulp::runtime
