// The casts of ulp/formats against LibTorch's: every code of every 8 and 16 bit format, the middle between
// each pair of neighbours, and the fp32 numbers beside each of these.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ulp/formats/convert.h"
#include "ulp/formats/format.h"

namespace {

using namespace ulp::formats;

struct SameFormat {
  const char* name;
  at::ScalarType dtype;
};

class AgainstTorch : public ::testing::TestWithParam<SameFormat> {
 protected:
  const Format& format_ = find(GetParam().name);
  const bool bytes_ = format_.bits() == 8;

  uint64_t code_at(const torch::Tensor& tensor, size_t i) const {
    const void* data = tensor.data_ptr();
    return bytes_ ? static_cast<const uint8_t*>(data)[i] : static_cast<const uint16_t*>(data)[i];
  }
};

TEST_P(AgainstTorch, EveryCodeHasTheSameValue) {
  const int64_t count = int64_t{1} << format_.bits();
  auto codes = torch::empty({count}, GetParam().dtype);
  for (int64_t i = 0; i < count; ++i) {
    bytes_ ? static_cast<uint8_t*>(codes.data_ptr())[i] = static_cast<uint8_t>(i)
           : static_cast<uint16_t*>(codes.data_ptr())[i] = static_cast<uint16_t>(i);
  }
  const auto values = codes.to(torch::kFloat);
  for (int64_t i = 0; i < count; ++i) {
    const auto theirs = static_cast<double>(values.data_ptr<float>()[i]);
    const double ours = decode(format_, static_cast<uint64_t>(i));
    ASSERT_TRUE(ours == theirs || (std::isnan(ours) && std::isnan(theirs)))
        << i << ": " << ours << " " << theirs;
  }
}

TEST_P(AgainstTorch, EveryNeighbourhoodRoundsTheSame) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> inputs;
  const auto add_around = [&](double x) {
    const auto centre = static_cast<float>(x);
    for (float value : {std::nextafter(centre, 0.0f), centre, std::nextafter(centre, kInf)}) {
      inputs.push_back(value);
      inputs.push_back(-value);
    }
  };
  for (uint64_t code = 0; code <= format_.max_code(); ++code) {
    const double value = decode(format_, code);
    add_around(value);
    add_around((value + (code < format_.max_code() ? decode(format_, code + 1) : value * 1.125)) / 2);
  }
  for (double x : {format_.max() * 1.07, format_.max() * 2, 3.4e38, 0.0}) add_around(x);
  inputs.insert(inputs.end(), {kInf, -kInf, std::nanf("")});

  const auto theirs = torch::tensor(inputs).to(GetParam().dtype);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float x = inputs[i];
    // The difference that convert.h names.
    if (format_.kind == Kind::scale && std::fabs(x) > 0x1p-127f && std::fabs(x) < 0x1.8p-127f) continue;
    const uint64_t ours = encode(format_, x), other = code_at(theirs, i);
    if (std::isnan(decode(format_, other))) {
      ASSERT_TRUE(std::isnan(decode(format_, ours))) << x;
    } else {
      ASSERT_EQ(ours, other) << format_.name << " " << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AgainstTorch,
                         ::testing::Values(SameFormat{"bf16", torch::kBFloat16},
                                           SameFormat{"fp16", torch::kHalf},
                                           SameFormat{"fp8_e4m3fn", at::kFloat8_e4m3fn},
                                           SameFormat{"fp8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                           SameFormat{"fp8_e5m2", at::kFloat8_e5m2},
                                           SameFormat{"fp8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                           SameFormat{"e8m0", at::kFloat8_e8m0fnu}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
