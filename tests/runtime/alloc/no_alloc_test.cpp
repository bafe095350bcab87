// Counts every allocation of the process, in all threads, by standing in for malloc and its relatives.
#include <gtest/gtest.h>

#include "../support.h"
#include "counted_allocations.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/ulp_runtime.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

void expect_no_allocation(const Plan& plan) {
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int threads : {1, 3}) {
      counting = true;
      allocations = 0;
      Engine engine(plan, {.threads = threads, .isa = kernels::to_string(isa)});
      EXPECT_GT(allocations, 10) << "the library's allocations must be seen";
      counting = false;
      // Buffers for the largest batch serve the smaller ones.
      const std::vector<Bytes> inputs = make_inputs(plan, 64, 1);
      std::vector<Bytes> outputs;
      std::vector<const void*> in;
      std::vector<void*> out;
      for (const Bytes& bytes : inputs) in.push_back(bytes.data());
      for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, 64));
      for (Bytes& bytes : outputs) out.push_back(bytes.data());

      for (const bool reserved : {true, false}) {
        if (reserved) {
          engine.reserve(64);
        } else {
          engine.run(64, in, out);
        }
        allocations = 0;
        counting = true;
        for (const int64_t batch : {1, 64, 1, 7, 64}) engine.run(batch, in, out);
        counting = false;
        EXPECT_EQ(allocations, 0) << kernels::to_string(isa) << ", " << threads << " threads, reserved "
                                  << reserved;
      }
    }
  }
}

class NoAllocation : public ::testing::TestWithParam<Numbers> {};

TEST_P(NoAllocation, RunAllocatesNothingAfterTheLargestBatch) {
  expect_no_allocation(small_network(GetParam()));
}

TEST(NoAllocationOnText, RunAllocatesNothingAfterTheLargestBatch) {
  expect_no_allocation(small_text_network());
}

TEST(NoAllocationOnSigns, RunAllocatesNothingAfterTheLargestBatch) {
  expect_no_allocation(small_binary_network());
}

TEST(NoAllocationOfContexts, AContextTakesItsArenaAndLittleElse) {
  Builder b(Numbers::f32);
  b.output(b.linear(b.linear(b.input({kBatch, 512}), 512), 512));
  const Engine engine(b.plan, {.threads = 1});
  ASSERT_GT(engine.constant_bytes(), size_t{2} << 20);
  constexpr int64_t kLittle = 8192;
  for (int i = 0; i < 3; ++i) {
    allocated = 0;
    counting = true;
    Context context(engine);
    context.reserve(2);
    counting = false;
    EXPECT_GT(context.arena_bytes(), 0U);
    EXPECT_LE(allocated, static_cast<int64_t>(context.arena_bytes()) + kLittle);
  }
}

TEST(NoAllocationInC, RunAllocatesNothingOnceReserved) {
  constexpr int64_t kItems = 64;
  const Plan plan = small_network(Numbers::f32);
  const TemporaryFolder folder;
  plan.save(folder / "plan.ulp");
  ulp_engine* engine = nullptr;
  ASSERT_EQ(ulp_engine_load((folder / "plan.ulp").c_str(), nullptr, &engine), ULP_OK) << ulp_last_error();
  ulp_context_options options = {};
  options.struct_size = sizeof options;
  options.threads = 3;
  ulp_context* context = nullptr;
  ASSERT_EQ(ulp_context_create(engine, &options, &context), ULP_OK) << ulp_last_error();
  const std::vector<Bytes> inputs = make_inputs(plan, kItems, 1);
  std::vector<Bytes> outputs;
  std::vector<ulp_const_buffer> in;
  std::vector<ulp_buffer> out;
  for (const Bytes& bytes : inputs) in.push_back({bytes.data(), bytes.size()});
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    size_t bytes = 0;
    ASSERT_EQ(ulp_context_output_bytes(context, i, kItems, &bytes), ULP_OK) << ulp_last_error();
    outputs.emplace_back(bytes);
  }
  for (Bytes& bytes : outputs) out.push_back({bytes.data(), bytes.size()});
  ASSERT_EQ(ulp_context_reserve(context, kItems), ULP_OK) << ulp_last_error();
  allocations = 0;
  counting = true;
  const ulp_status status = ulp_context_run(context, kItems, in.data(), in.size(), out.data(), out.size());
  counting = false;
  EXPECT_EQ(status, ULP_OK) << ulp_last_error();
  EXPECT_EQ(allocations, 0);
  ulp_context_destroy(context);
  ulp_engine_destroy(engine);
}

INSTANTIATE_TEST_SUITE_P(Runtime, NoAllocation, ::testing::Values(Numbers::f32, Numbers::bf16, Numbers::u8),
                         [](const auto& info) { return std::string(to_string(type_of(info.param))); });

}  // namespace
}  // namespace ulp::runtime
