#include "ulp/lora/nf4.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "ulp/libtorch/torch_parallel.h"

namespace ulp::lora {

namespace {

constexpr int kDynamicExponents = 7;

/// Half of the positive numbers and their negatives, a decade an exponent: the middles of 2^i equal parts of
/// [0.1, 1], times 10^(i - 6); then 0 and 1.
std::array<float, 256> make_dynamic_table() {
  std::array<float, 256> table{};
  size_t size = 0;
  for (int i = 0; i < kDynamicExponents; ++i) {
    const int parts = 1 << i;
    const double decade = std::pow(10.0, i - (kDynamicExponents - 1));
    for (int part = 0; part < parts; ++part) {
      const double middle = 0.1 + 0.9 * (part + 0.5) / parts;
      table[size++] = static_cast<float>(decade * middle);
      table[size++] = static_cast<float>(-decade * middle);
    }
  }
  table[size++] = 0;
  table[size++] = 1;
  std::ranges::sort(table);
  return table;
}

/// The nearest number of an ascending table; of two the lower.
template <size_t N>
uint8_t nearest(const std::array<float, N>& middles, float x) {
  return static_cast<uint8_t>(std::lower_bound(middles.begin(), middles.end(), x) - middles.begin());
}

/// The middles between neighbours.
template <size_t N>
std::array<float, N - 1> middles_of(const std::array<float, N>& table) {
  std::array<float, N - 1> middles{};
  for (size_t i = 0; i + 1 < N; ++i) middles[i] = (table[i] + table[i + 1]) / 2;
  return middles;
}

float largest_magnitude(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

/// A block's codes, two in a byte, the first one in the high half. What pads the last byte is 0.
void quantize_block(std::span<const float> values, float absmax, uint8_t* codes) {
  static const std::array<float, 15> middles = middles_of(nf4_table());
  const float scale = absmax > 0 ? absmax : 1;
  const auto code = [&](size_t i) {
    const float x = i < values.size() ? values[i] / scale : 0;
    int below = 0;
    for (const float middle : middles) below += x > middle;
    return below;
  };
  for (size_t i = 0; i < values.size(); i += 2)
    codes[i / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
}

Nf4Tensor with_coded_scales(Nf4Tensor made) {
  static const std::array<float, 255> middles = middles_of(dynamic_table());
  const int64_t blocks = made.absmax.numel();
  const std::span<const float> scales(made.absmax.const_data_ptr<float>(), static_cast<size_t>(blocks));
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto offset = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(blocks, 1)));
  const at::Tensor codes = at::empty({blocks}, at::kByte);
  const at::Tensor largest = at::empty({(blocks + kNf4ScaleBlock - 1) / kNf4ScaleBlock}, at::kFloat);
  for (int64_t block = 0; block < largest.numel(); ++block) {
    const int64_t from = block * kNf4ScaleBlock, to = std::min(blocks, from + kNf4ScaleBlock);
    float most = 0;
    for (int64_t i = from; i < to; ++i) most = std::max(most, std::abs(scales[i] - offset));
    largest.mutable_data_ptr<float>()[block] = most;
    for (int64_t i = from; i < to; ++i) {
      const float x = most > 0 ? (scales[i] - offset) / most : 0;
      codes.mutable_data_ptr<uint8_t>()[i] = nearest(middles, x);
    }
  }
  made.absmax = codes;
  made.scale_absmax = largest;
  made.offset = at::full({1}, offset, at::kFloat);
  return made;
}

}  // namespace

const std::array<float, 16>& nf4_table() {
  // Published in appendix E of the paper.
  static constexpr std::array<float, 16> table = {-1.0F,
                                                  -0.6961928009986877F,
                                                  -0.5250730514526367F,
                                                  -0.39491748809814453F,
                                                  -0.28444138169288635F,
                                                  -0.18477343022823334F,
                                                  -0.09105003625154495F,
                                                  0.0F,
                                                  0.07958029955625534F,
                                                  0.16093020141124725F,
                                                  0.24611230194568634F,
                                                  0.33791524171829224F,
                                                  0.44070982933044434F,
                                                  0.5626170039176941F,
                                                  0.7229568362236023F,
                                                  1.0F};
  return table;
}

const std::array<float, 256>& dynamic_table() {
  static const std::array<float, 256> table = make_dynamic_table();
  return table;
}

Nf4Tensor quantize_nf4(const at::Tensor& values, bool double_quant) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().to(at::kCPU, at::kFloat).contiguous().view({-1});
  const int64_t size = flat.numel(), blocks = (size + kNf4Block - 1) / kNf4Block;
  Nf4Tensor made{.codes = at::empty({(size + 1) / 2}, at::kByte), .absmax = at::empty({blocks}, at::kFloat)};
  const float* in = flat.const_data_ptr<float>();
  auto* codes = made.codes.mutable_data_ptr<uint8_t>();
  auto* scales = made.absmax.mutable_data_ptr<float>();
  libtorch::parallel_for(0, blocks, /*grain=*/64, [&](int64_t from, int64_t to) {
    for (int64_t block = from; block < to; ++block) {
      const int64_t first = block * kNf4Block;
      const std::span<const float> own(in + first, static_cast<size_t>(std::min(size - first, kNf4Block)));
      scales[block] = largest_magnitude(own);
      quantize_block(own, scales[block], codes + first / 2);
    }
  });
  return double_quant ? with_coded_scales(std::move(made)) : made;
}

at::Tensor nf4_scales(const Nf4Tensor& codes) {
  if (!codes.scale_absmax) return codes.absmax;
  const std::array<float, 256>& numbers = dynamic_table();
  const at::Tensor table =
      at::from_blob(const_cast<float*>(numbers.data()), {256}, at::kFloat).to(codes.absmax.device());
  const at::Tensor of_block =
      codes.scale_absmax->repeat_interleave(kNf4ScaleBlock).narrow(0, 0, codes.absmax.numel());
  return table.index_select(0, codes.absmax.to(at::kInt)).mul_(of_block).add_(*codes.offset);
}

}  // namespace ulp::lora
