#include "ulp/amp/autocast/precision.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/keeps_float.h"

namespace {

using ulp::amp::find_precision;
using ulp::amp::Precision;
using ulp::test::error_of;

TEST(PrecisionName, IsARowOfTheTable) {
  using ulp::amp::PrecisionName;
  EXPECT_EQ(PrecisionName().name(), "fp32");
  size_t index = 0;
  for (const Precision& precision : ulp::amp::precisions()) {
    const PrecisionName name = precision.name;
    EXPECT_EQ(&*name, &precision);
    EXPECT_EQ(name.index(), index);
    EXPECT_EQ(PrecisionName::at(index), name);
    EXPECT_EQ(PrecisionName::choices()[index], precision.name);
    EXPECT_EQ(PrecisionName::choice_help()[index], precision.summary);
    ++index;
  }
  EXPECT_EQ(PrecisionName::choices().size(), index);
}

TEST(Precision, NamesAreUnique) {
  for (const Precision& precision : ulp::amp::precisions()) {
    EXPECT_EQ(&find_precision(precision.name), &precision);
    EXPECT_FALSE(precision.summary.empty()) << precision.name;
  }
}

// Pure fp16 (O3) is the exception by definition: Apex's O3 has a loss scale of 1.
TEST(Precision, OnlyFormatsNarrowerThanFp32InRangeNeedAScaler) {
  for (const Precision& precision : ulp::amp::precisions()) {
    const auto dtype = precision.autocast_dtype ? precision.autocast_dtype : precision.parameter_dtype;
    const bool narrow = dtype == torch::kHalf;
    EXPECT_EQ(precision.needs_scaler, narrow && precision.name != "O3") << precision.name;
  }
}

TEST(Precision, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(error_of([] { find_precision("fp12"); }),
            "[amp.find_precision] expected one of fp32, tf32, bf16, fp16, mixed_bfloat16, mixed_float16, O0, "
            "O1, O1:bf16, O2, O2:bf16, O3, O3:bf16, fp8:delayed, fp8:current, fp8:rowwise, fp8:block, mxfp8, "
            "nvfp4, int8, int8:switchback, int8:rowwise, int8:jetfire, got 'fp12'");
}

TEST(Precision, ADeviceThatCannotIsAnError) {
  EXPECT_EQ(error_of([] { check_device(find_precision("tf32"), torch::kCPU); }),
            "[amp.precision] expected a device with tf32, got cpu, which has none; use fp32");
  EXPECT_EQ(error_of([] { autocast_for(find_precision("bf16"), torch::kMeta); }),
            "[amp.precision] expected the device cpu or cuda for 'bf16', got meta");
  if (!torch::cuda::is_available()) {
    EXPECT_EQ(error_of([] { autocast_for(find_precision("fp16"), torch::kCUDA); }),
              "[amp.precision] expected a GPU for 'fp16' on cuda, found none");
    EXPECT_EQ(error_of([] { ulp::amp::allow_tf32(true); }),
              "[amp.allow_tf32] expected a GPU to compute in tf32, found none; fp32 stays fp32 on a CPU");
  }
}

TEST(Precision, ForbiddingTf32SaysWhatWasAllowed) {
  at::globalContext().setAllowTF32CuDNN(true);
  at::globalContext().setFloat32MatmulPrecision("high");
  EXPECT_TRUE(ulp::amp::allow_tf32(false));
  EXPECT_FALSE(ulp::amp::allow_tf32(false));
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
}

TEST(Precision, AGuardWithoutAutocastOptsOut) {
  const auto outer = autocast_for(find_precision("bf16"), torch::kCPU);
  const auto a = torch::ones({2, 2});
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kBFloat16);
  const auto inner = autocast_for(find_precision("fp32"), torch::kCPU);
  EXPECT_EQ(torch::mm(a, a).scalar_type(), torch::kFloat);
}

TEST(Precision, O1TakesTheCudaLists) {
  const auto x = torch::ones({2, 2}, torch::kHalf);
  {
    const auto guard = autocast_for(find_precision("O1"), torch::kCPU);
    EXPECT_EQ(torch::exp(x).scalar_type(), torch::kFloat);
  }
  const auto guard = autocast_for(find_precision("fp16"), torch::kCPU);
  EXPECT_EQ(torch::exp(x).scalar_type(), torch::kHalf);
}

torch::nn::Sequential small_net() {
  using namespace torch::nn;
  return Sequential(Conv2d(3, 4, 3), BatchNorm2d(4), ReLU(), Conv2d(4, 2, 1),
                    BatchNorm2d(BatchNorm2dOptions(2).affine(false)));
}

// Apex's table: O2 keeps batch norms in fp32, O3 does not.
TEST(Precision, ParametersAndBuffersAreCastInPlace) {
  const std::pair<const char*, at::ScalarType> cases[] = {{"O2", torch::kHalf},
                                                          {"O2:bf16", torch::kBFloat16},
                                                          {"O3", torch::kHalf},
                                                          {"O3:bf16", torch::kBFloat16}};
  for (const auto& [name, dtype] : cases) {
    SCOPED_TRACE(name);
    const Precision& precision = find_precision(name);
    auto net = small_net();
    const auto before = net->parameters();
    net->forward(torch::randn({2, 3, 5, 5})).square().sum().backward();
    apply_precision(*net, precision);
    const auto after = net->named_parameters();
    const auto norm = precision.batch_norm_fp32 ? torch::kFloat : dtype;
    EXPECT_EQ(after["0.weight"].scalar_type(), dtype);
    EXPECT_EQ(after["3.bias"].scalar_type(), dtype);
    EXPECT_EQ(after["1.weight"].scalar_type(), norm);
    EXPECT_EQ(net->named_buffers()["1.running_var"].scalar_type(), norm);
    EXPECT_EQ(net->named_buffers()["4.running_mean"].scalar_type(), norm);
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].scalar_type(), torch::kLong);
    EXPECT_FALSE(after["0.weight"].grad().defined());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].is_same(net->parameters()[i]));

    const auto y = net->forward(cast_input(precision, torch::randn({2, 3, 5, 5})));
    EXPECT_EQ(y.scalar_type(), dtype);
    y.to(torch::kFloat).square().sum().backward();
    EXPECT_EQ(after["0.weight"].grad().scalar_type(), dtype);
    EXPECT_EQ(after["1.weight"].grad().scalar_type(), norm);
    EXPECT_TRUE(torch::isfinite(after["0.weight"].grad()).all().item<bool>());
  }
}

TEST(Precision, ACapturedModelIsCastAsTheModelItself) {
  auto net = small_net();
  const auto example = torch::randn({2, 3, 5, 5});
  const auto captured = ulp::capture(net, {example});
  auto twin = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  const Precision& precision = find_precision("O2:bf16");
  apply_precision(*captured, precision);
  apply_precision(*twin, precision);
  EXPECT_EQ(captured->named_parameters()["0.weight"].scalar_type(), torch::kBFloat16);
  EXPECT_EQ(captured->named_parameters()["1.weight"].scalar_type(), torch::kFloat);
  EXPECT_EQ(captured->named_buffers()["4.running_mean"].scalar_type(), torch::kFloat);
  const auto x = cast_input(precision, torch::randn({4, 3, 5, 5}));
  EXPECT_TRUE(torch::equal(captured->forward(x), twin->forward(x)));
}

/// A layer that stays as it is.
struct FloatLayer : torch::nn::LinearImpl, ulp::libtorch::KeepsFloat {
  FloatLayer() : LinearImpl(2, 2) {}
};

TEST(Precision, GraphsAndFloatModulesInsideOfAModuleAreWhatTheyAre) {
  auto net = small_net();
  torch::nn::Module outer;
  const auto captured = ulp::capture(net, {torch::randn({2, 3, 5, 5})});
  outer.register_module("net", captured);
  outer.register_module("float", std::make_shared<FloatLayer>());
  apply_precision(outer, find_precision("O2:bf16"));
  const auto state = outer.named_parameters();
  EXPECT_EQ(state["net.0.weight"].scalar_type(), torch::kBFloat16);
  EXPECT_EQ(state["net.1.weight"].scalar_type(), torch::kFloat);
  EXPECT_EQ(outer.named_buffers()["net.4.running_mean"].scalar_type(), torch::kFloat);
  EXPECT_EQ(state["float.weight"].scalar_type(), torch::kFloat);
  apply_precision(outer, find_precision("O3:bf16"));
  EXPECT_EQ(state["net.1.weight"].scalar_type(), torch::kBFloat16);
  EXPECT_EQ(state["float.bias"].scalar_type(), torch::kFloat);
}

TEST(Precision, PrecisionsWithFp32ParametersAndFp64ModelsAreLeftAlone) {
  auto net = small_net();
  apply_precision(*net, find_precision("bf16"));
  EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kFloat);
  net->to(torch::kDouble);
  apply_precision(*net, find_precision("O3"));
  EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kDouble);
  EXPECT_EQ(cast_input(find_precision("O3"), torch::ones(1, torch::kLong)).scalar_type(), torch::kLong);
}

// The way a training loop uses the struct.
TEST(Precision, EachOneWithFp32ParametersTrains) {
  for (const Precision& precision : ulp::amp::precisions()) {
    if (precision.parameter_dtype || precision.tf32) continue;
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
        const auto guard = autocast_for(precision, torch::kCPU);
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
