#include "ulp/libtorch/conv_guard.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>

namespace {

using ulp::libtorch::guarded_conv2d;
using ulp::libtorch::needs_conv_guard;

struct Case {
  int64_t in, out, kernel, stride, padding, groups;
  bool guarded;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.in << "->" << c.out << " kernel " << c.kernel << " stride " << c.stride << " padding "
             << c.padding << " groups " << c.groups;
}

class ConvGuard : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
};

/// Values are small integers, so that sums are exact in any order and equality can be asked for.
torch::Tensor integers(torch::IntArrayRef shape) {
  return torch::randint(-4, 5, shape).to(torch::kDouble);
}

TEST_P(ConvGuard, OutputAndGradientsAreThoseOfThePlainConvolution) {
  const Case c = GetParam();
  torch::manual_seed(1);
  torch::nn::Conv2d layer(
      torch::nn::Conv2dOptions(c.in, c.out, c.kernel).stride(c.stride).padding(c.padding).groups(c.groups));
  {
    torch::NoGradGuard no_grad;
    layer->weight.copy_(integers(layer->weight.sizes()));
    layer->bias.copy_(integers(layer->bias.sizes()));
  }
  const auto exact_weight = layer->weight.detach().to(torch::kDouble).requires_grad_();
  for (int64_t size : {7, 8, 28}) {
    const auto exact_input = integers({8, c.in, size, size}).requires_grad_();
    const auto input =
        exact_input.detach().to(torch::kFloat).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
    layer->zero_grad();
    exact_weight.mutable_grad() = torch::Tensor();

    const auto expected = torch::conv2d(exact_input, exact_weight, layer->bias.detach().to(torch::kDouble),
                                        c.stride, c.padding, 1, c.groups);
    const auto output = guarded_conv2d(*layer, input);
    EXPECT_TRUE(torch::equal(output.to(torch::kDouble), expected)) << c << " size " << size;

    const auto gradient = integers(expected.sizes());
    expected.backward(gradient);
    output.backward(gradient.to(torch::kFloat).contiguous(torch::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(torch::equal(input.grad().to(torch::kDouble), exact_input.grad())) << c << " size " << size;
    EXPECT_TRUE(torch::equal(layer->weight.grad().to(torch::kDouble), exact_weight.grad()))
        << c << " size " << size;
  }
  EXPECT_EQ(needs_conv_guard(layer->weight, *layer->options.stride()) && c.padding == 0, c.guarded) << c;
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvGuard,
                         ::testing::Values(Case{1, 4, 1, 2, 0, 1, true}, Case{4, 4, 1, 2, 0, 1, true},
                                           Case{1, 16, 1, 2, 0, 1, true}, Case{3, 16, 1, 2, 0, 1, true},
                                           Case{4, 16, 1, 2, 0, 1, true}, Case{8, 16, 1, 2, 0, 1, true},
                                           Case{8, 16, 1, 3, 0, 2, true}, Case{16, 32, 1, 2, 0, 1, false},
                                           Case{8, 16, 1, 1, 0, 1, false}, Case{8, 16, 3, 2, 1, 1, false}));

TEST(ConvGuardTypes, WorksInBfloat16) {
  torch::manual_seed(1);
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 16, 1).stride(2));
  const auto input = torch::randn({8, 4, 28, 28})
                         .to(torch::kBFloat16)
                         .contiguous(torch::MemoryFormat::ChannelsLast)
                         .requires_grad_();
  layer->to(torch::kBFloat16);
  const auto output = guarded_conv2d(*layer, input);
  output.sum().backward();
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{8, 16, 14, 14}));
  EXPECT_TRUE(input.grad().isfinite().all().item<bool>());
  EXPECT_EQ(input.grad().count_nonzero().item<int64_t>(), 8 * 4 * 14 * 14);
}

/// The fault is in code for vectors of eight floats and shows up as a damaged heap: run the cases above again
/// with that code, on whatever machine this is, and with glibc's heap checks.
TEST(ConvGuardTypes, HoldsInOtherInstructionSetsToo) {
#ifdef ULP_SANITIZED  // they bring heaps of their own
  const std::string checks;
#else
  const std::string checks = "LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 ";
#endif
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const char* isa : {"SSE41", "AVX2"}) {
    const std::string command =
        std::string("OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=").append(isa).append(" ").append(checks) + "'" +
        program + "' --gtest_filter='Shapes/ConvGuard.*'";
    EXPECT_EQ(std::system((command + " > /dev/null 2>&1").c_str()), 0) << "repeat with: " << command;
  }
}

}  // namespace
