#include "ulp/amp/precision.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/amp/autocast.h"
#include "ulp/amp/grad_scaler.h"
#include "ulp/base/error.h"
#include "ulp/formats/format.h"

namespace {

using ulp::amp::find_precision;
using ulp::amp::Precision;

TEST(Precision, NamesAreFormatsOfTheTable) {
  for (const Precision& precision : ulp::amp::precisions()) {
    EXPECT_EQ(&find_precision(precision.name), &precision);
    EXPECT_EQ(ulp::formats::find(precision.name).name, precision.name);
  }
}

TEST(Precision, OnlyFormatsNarrowerThanFp32InRangeNeedAScaler) {
  const double fp32 = ulp::formats::find("fp32").smallest_normal();
  for (const Precision& precision : ulp::amp::precisions()) {
    EXPECT_EQ(precision.needs_scaler, ulp::formats::find(precision.name).smallest_normal() > fp32)
        << precision.name;
  }
}

TEST(Precision, AnUnknownNameListsTheKnownOnes) {
  try {
    find_precision("fp12");
    FAIL() << "no error";
  } catch (const ulp::Error& error) {
    EXPECT_STREQ(error.what(), "[amp.find_precision] expected one of fp32, bf16, fp16, got 'fp12'");
  }
}

// One training step in each precision, the way a training loop uses the struct.
TEST(Precision, EachOneTrains) {
  for (const Precision& precision : ulp::amp::precisions()) {
    torch::manual_seed(1);
    torch::nn::Linear linear(8, 1);
    torch::optim::SGD optimizer(linear->parameters(), 0.05);
    ulp::amp::GradScaler scaler({.init_scale = 1024.0, .enabled = precision.needs_scaler});
    const auto x = torch::randn({64, 8});
    const auto target = x.sum(1, /*keepdim=*/true);
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      torch::Tensor y;
      {
        const ulp::amp::Autocast guard(torch::kCPU, precision.autocast_dtype.value_or(torch::kBFloat16),
                                       precision.autocast_dtype.has_value());
        y = linear(x);
      }
      EXPECT_EQ(y.scalar_type(), precision.autocast_dtype.value_or(torch::kFloat));
      const auto loss = torch::mse_loss(y.to(torch::kFloat), target);
      scaler.scale(loss).backward();
      EXPECT_EQ(scaler.step(optimizer), ulp::amp::StepResult::stepped);
      scaler.update();
      last = loss.item<float>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.05f * first) << precision.name;
  }
}

}  // namespace
