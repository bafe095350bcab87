// Plain loops over coded weights.
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

/// A group of inputs of a row, and a channel.
struct Place {
  int64_t row, group, channel;

  int64_t panel() const { return channel / kWeightLanes; }
  int64_t lane() const { return channel % kWeightLanes; }
  int64_t in_row(const WeightTileArgs& t) const { return row * t.groups + group; }
  int64_t scale(const WeightTileArgs& t) const {
    return (panel() * t.groups + group) * kWeightLanes + lane();
  }
  int64_t length(const WeightTileArgs& t) const {
    const int64_t left = t.in - group * t.group;
    return left < t.group ? left : t.group;
  }
};

/// `sum` and the products of a group of inputs and s8 codes, times the scale.
float add_group8(const WeightTileArgs& t, const Place& at, float sum) {
  float parts[2] = {};
  if (t.zero != nullptr) parts[0] = t.negative_sums[at.in_row(t)] * t.zero[at.scale(t)];
  const float* x = t.x + at.row * t.x_stride + at.group * t.x_group;
  const auto* codes = reinterpret_cast<const int8_t*>(t.codes) + at.panel() * t.panel_bytes +
                      at.group * t.group * kWeightLanes + at.lane();
  for (int64_t k = 0; k < at.length(t); ++k)
    parts[k % 2] += x[k] * static_cast<float>(codes[k * kWeightLanes]);
  return sum + (parts[0] + parts[1]) * t.scale[at.scale(t)];
}

/// The same for 4 bits. Fused steps, as all instruction sets have them.
float add_group4(const WeightTileArgs& t, const Place& at, float sum) {
  const int64_t words = (t.group + kCodesOfWord - 1) / kCodesOfWord;
  const uint8_t* codes =
      t.codes + at.panel() * t.panel_bytes + (at.group * words * kWeightLanes + at.lane()) * 4;
  const auto* digits = reinterpret_cast<const int8_t*>(t.digits + at.row * t.x_stride + at.group * t.x_group);
  const DigitGroup& start = t.starts[at.in_row(t)];
  int32_t dots[kDigits];
  for (int64_t d = 0; d < kDigits; ++d) dots[d] = start.start[d];
  for (int64_t k = 0; k < at.length(t); k += kCodesOfWord) {
    for (int64_t d = 0; d < kDigits; ++d) {
      for (int64_t i = 0; i < 4; ++i) {
        const int8_t *even = digits + d * 4, *odd = even + kDigits * 4;
        dots[d] += even[i] * (codes[i] & 15) + odd[i] * (codes[i] >> 4);
      }
    }
    codes += kWeightLanes * 4;
    digits += kDigitWords * 4;
  }
  const auto number = [&](int64_t d) { return static_cast<float>(dots[d]); };
  float dot = __builtin_fmaf(number(2), 0x1p16F, __builtin_fmaf(number(1), 0x1p8F, number(0))) * start.unit;
  const int64_t scale = at.scale(t);
  if (t.zero != nullptr) dot = __builtin_fmaf(t.negative_sums[at.in_row(t)], t.zero[scale], dot);
  sum = __builtin_fmaf(dot, t.scale[scale], sum);
  if (t.minimum != nullptr) sum = __builtin_fmaf(t.negative_sums[at.in_row(t)], t.minimum[scale], sum);
  return sum;
}

using AddGroupFn = float (*)(const WeightTileArgs&, const Place&, float sum);

/// A panel of one row.
template <AddGroupFn kAddGroup>
void panel_row(const WeightTileArgs& t, int64_t row, int64_t panel) {
  const int64_t first = panel * kWeightLanes;
  const int64_t left = t.channels - first < kWeightLanes ? t.channels - first : kWeightLanes;
  const int64_t y = row * t.y_stride + first;
  for (int64_t c = 0; c < left; ++c) {
    float sum = static_cast<const float*>(t.finish->bias)[t.channel + first + c];
    for (int64_t group = 0; group < t.groups; ++group) sum = kAddGroup(t, {row, group, first + c}, sum);
    finish_store(*t.finish, sum, t.residual == nullptr ? nullptr : t.residual + y, t.y + y, c);
  }
  if (t.finish->curve != Activation::none) apply_curve(t.finish->curve, t.y + y, t.y + y, left);
}

template <AddGroupFn kAddGroup>
void multiply_codes(const WeightTileArgs& t) {
  for (int64_t row = 0; row < t.rows; ++row) {
    for (int64_t panel = 0; panel * kWeightLanes < t.channels; ++panel) panel_row<kAddGroup>(t, row, panel);
  }
}

}  // namespace

const WeightTiles kWeightTilesPortable = {multiply_codes<add_group8>, nullptr, nullptr};

void digit_tile_portable(const WeightTileArgs& t) {
  multiply_codes<add_group4>(t);
}

}  // namespace ulp::kernels
