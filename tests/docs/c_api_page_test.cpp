// The samples of docs/c-api.md.
#include <gtest/gtest.h>

#include <cstdio>

#include "c-api/options.includes.h"
#include "c-api/run.includes.h"
#include "in_temporary_folder.h"
#include "ulp/runtime/plan/plan.h"

namespace {

namespace rt = ulp::runtime;

/// Class 7 has the bias.
rt::Plan ten_classes() {
  rt::Plan plan;
  plan.tensors = {{.name = "pixels", .shape = {rt::kBatch, 784}},
                  {.name = "scores", .shape = {rt::kBatch, 10}}};
  rt::Constant bias{rt::DataType::f32, {10}, std::vector<std::byte>(10 * sizeof(float))};
  reinterpret_cast<float*>(bias.bytes.data())[7] = 1.0F;
  plan.constants = {{"weight", {rt::DataType::f32, {10, 784}, std::vector<std::byte>(7840 * sizeof(float))}},
                    {"bias", std::move(bias)}};
  plan.steps = {{.op = rt::Op::linear,
                 .name = "fc",
                 .inputs = {0},
                 .output = 1,
                 .constants = {{"weight", "weight"}, {"bias", "bias"}}}};
  plan.inputs = {0};
  plan.outputs = {1};
  return plan;
}

TEST(CApiPage, AnEngineRuns) {
  const ulp::docs::InTemporaryFolder folder;
  ten_classes().save("model.ulp");
  static float pixels[8 * 784] = {}, scores[8 * 10] = {};
#include "c-api/run.inc"
  ASSERT_EQ(status, ULP_OK) << ulp_last_error();
  EXPECT_EQ(scores[7], 1.0F);
  EXPECT_EQ(scores[8], 0.0F);
}

TEST(CApiPage, OptionsAreAccepted) {
  const ulp::docs::InTemporaryFolder folder;
  ten_classes().save("model.ulp");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // of C++; C has none for named fields
#include "c-api/options.inc"
#pragma GCC diagnostic pop
  ulp_engine* engine = nullptr;
  ASSERT_EQ(ulp_engine_load("model.ulp", &options, &engine), ULP_OK) << ulp_last_error();
  const char* isa = nullptr;
  EXPECT_EQ(ulp_engine_isa(engine, &isa), ULP_OK);
  EXPECT_STREQ(isa, "portable");
  ulp_engine_destroy(engine);
}

}  // namespace
