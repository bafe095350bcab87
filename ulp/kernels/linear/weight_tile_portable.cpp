// Plain loops over coded weights.
#include "ulp/kernels/elementwise/curves.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

/// The code of an input in a group as the number that WeightTileArgs::x multiplies: 8 bits.
float code8(const WeightTileArgs& t, int64_t group, int64_t k, int64_t channel) {
  return static_cast<float>(reinterpret_cast<const int8_t*>(
      t.codes)[channel / kWeightLanes * t.panel_bytes + (group * t.group + k) * kWeightLanes +
               channel % kWeightLanes]);
}

/// The same for 4 bits.
float code4(const WeightTileArgs& t, int64_t group, int64_t k, int64_t channel) {
  const int64_t words = (t.group + kCodesOfWord - 1) / kCodesOfWord;
  const int64_t at = (group * words + k / kCodesOfWord) * kWeightLanes + channel % kWeightLanes;
  const uint8_t* bytes = t.codes + channel / kWeightLanes * t.panel_bytes + at * 4;
  const int64_t j = k % kCodesOfWord;
  const auto code = static_cast<uint32_t>(bytes[j / 2] >> (j % 2 * 4) & 15);
  return static_cast<float>(j == kCodesOfWord - 1 ? code : code << (4 * j));
}

using CodeFn = float (*)(const WeightTileArgs&, int64_t group, int64_t k, int64_t channel);

/// The products of a group of inputs without the scale. `middle`: what codes have more than signed ones.
template <CodeFn kCode>
float sum_group(const WeightTileArgs& t, int64_t row, int64_t group, int64_t channel, float middle) {
  float parts[2] = {};
  if (t.negative_sums != nullptr) {
    const int64_t at = (channel / kWeightLanes * t.groups + group) * kWeightLanes + channel % kWeightLanes;
    parts[0] = t.negative_sums[row * t.groups + group] * (middle + (t.zero == nullptr ? 0 : t.zero[at]));
  }
  const float* x = t.x + row * t.x_stride + group * t.x_group;
  const int64_t left = t.in - group * t.group, length = left < t.group ? left : t.group;
  for (int64_t k = 0; k < length; ++k) parts[k % 2] += x[k] * kCode(t, group, k, channel);
  return parts[0] + parts[1];
}

/// A panel of one row.
template <CodeFn kCode>
void panel_row(const WeightTileArgs& t, int64_t row, int64_t panel, float middle) {
  const int64_t first = panel * kWeightLanes;
  const int64_t left = t.channels - first < kWeightLanes ? t.channels - first : kWeightLanes;
  const int64_t y = row * t.y_stride + first;
  for (int64_t c = 0; c < left; ++c) {
    float sum = static_cast<const float*>(t.finish->bias)[t.channel + first + c];
    for (int64_t group = 0; group < t.groups; ++group) {
      const int64_t at = (panel * t.groups + group) * kWeightLanes + c;
      sum += sum_group<kCode>(t, row, group, first + c, middle) * t.scale[at];
      if (t.minimum != nullptr) sum += t.negative_sums[row * t.groups + group] * t.minimum[at];
    }
    finish_store(*t.finish, sum, t.residual == nullptr ? nullptr : t.residual + y, t.y + y, c);
  }
  if (t.finish->curve != Activation::none) apply_curve(t.finish->curve, t.y + y, t.y + y, left);
}

template <CodeFn kCode, int kMiddle>
void multiply_codes(const WeightTileArgs& t) {
  const float middle = t.minimum == nullptr ? kMiddle : 0;  // beside minima zero points are 0
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t panel = 0; panel * kWeightLanes < t.channels; ++panel)
      panel_row<kCode>(t, row, panel, middle);
  }
}

}  // namespace

const WeightTiles kWeightTilesPortable = {{multiply_codes<code8, 0>, nullptr},
                                          {multiply_codes<code4, 8>, nullptr}};

}  // namespace ulp::kernels
