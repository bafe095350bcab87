// Plain loops over coded weights.
#include "ulp/kernels/elementwise/curves.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

/// The code of an input in a group: 8 bits.
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
  const int nibble = bytes[k % kCodesOfWord / 2] >> (k % 2 * 4) & 15;
  return static_cast<float>((nibble ^ 8) - 8);
}

using CodeFn = float (*)(const WeightTileArgs&, int64_t group, int64_t k, int64_t channel);

/// A panel of one row.
template <CodeFn kCode>
void panel_row(const WeightTileArgs& t, int64_t row, int64_t panel) {
  const int64_t first_channel = panel * kWeightLanes;
  float sums[kWeightLanes];
  for (int64_t c = 0; c < kWeightLanes; ++c)
    sums[c] = static_cast<const float*>(t.finish->bias)[t.channel + first_channel + c];
  const float* x = t.x + row * t.x_stride;
  for (int64_t group = 0, first = 0; first < t.in; ++group, first += t.group) {
    const int64_t length = t.in - first < t.group ? t.in - first : t.group;
    const int64_t at = (panel * t.groups + group) * kWeightLanes;
    for (int64_t k = 0; k < length; ++k) {
      for (int64_t c = 0; c < kWeightLanes; ++c) {
        const float zero = t.zero == nullptr ? 0.0F : t.zero[at + c];
        const float weight = (kCode(t, group, k, first_channel + c) - zero) * t.scale[at + c];
        sums[c] += x[first + k] * weight;
      }
    }
  }
  const int64_t y = row * t.y_stride + first_channel;
  const int64_t left = t.channels - first_channel < kWeightLanes ? t.channels - first_channel : kWeightLanes;
  for (int64_t c = 0; c < left; ++c)
    finish_store(*t.finish, sums[c], t.residual == nullptr ? nullptr : t.residual + y, t.y + y, c);
  if (t.finish->curve != Activation::none) apply_curve(t.finish->curve, t.y + y, t.y + y, left);
}

template <CodeFn kCode>
void multiply_codes(const WeightTileArgs& t) {
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t panel = 0; panel * kWeightLanes < t.channels; ++panel) panel_row<kCode>(t, row, panel);
  }
}

}  // namespace

const WeightTiles kWeightTilesPortable = {{multiply_codes<code8>, nullptr}, {multiply_codes<code4>, nullptr}};

}  // namespace ulp::kernels
