// Packing weights into the panels of the tile kernels.
#include <algorithm>
#include <cstring>

#include "ulp/kernels/conv/conv_variants.h"

namespace ulp::kernels {
namespace {

template <typename T>
void put(T value, uint8_t* to) {
  std::memcpy(to, &value, sizeof(value));
}

void store_weight(const ConvWeights& weights, int64_t from, DataType type, uint8_t* to) {
  if (type == DataType::i8) return put(weights.i8[from], to);
  if (type == DataType::i16) return put(static_cast<int16_t>(weights.i8[from]), to);
  if (type == DataType::bf16) return put(bf16_weight(weights, from), to);
  put(weights.bf16 != nullptr ? bf16_to_float(weights.bf16[from]) : weights.f32[from], to);
}

/// f32 kernels of a bf16 layer get weights that are rounded all the same.
void round_weights(uint8_t* packed, int64_t count) {
  float* w = reinterpret_cast<float*>(packed);
  for (int64_t i = 0; i < count; ++i) w[i] = bf16_to_float(float_to_bf16(w[i]));
}

}  // namespace

TapLayout tap_layout(const ConvShape& shape, int unit) {
  TapLayout layout{};
  const bool merged = shape.groups == 1 && (shape.dilation_w == 1 || shape.kernel_w == 1);
  layout.per_row = merged ? 1 : shape.kernel_w;
  layout.count = shape.kernel_h * layout.per_row;
  layout.length = shape.in_channels / shape.groups * (merged ? shape.kernel_w : 1);
  layout.units = ceil_div(layout.length, unit);
  return layout;
}

bool is_flat(const ConvShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 &&
         s.pad_w == 0;
}

bool is_depthwise(const ConvShape& s) {
  return s.groups > 1 && s.groups == s.in_channels && s.groups == s.out_channels;
}

AlignedBuffer pack_panels(const ConvConfig& config, const ConvWeights& weights, const TapLayout& layout,
                          int unit, int lanes, DataType type, int64_t panel_units, int unit_bytes) {
  const ConvShape& s = config.shape;
  const int64_t width = s.out_channels / s.groups, depth = s.in_channels / s.groups;
  const int64_t panels = ceil_div(width, lanes), bytes = unit_bytes / unit;
  const int64_t panel_bytes = std::max(panel_units, layout.count * layout.units) * lanes * unit_bytes;
  AlignedBuffer out(s.groups * panels * panel_bytes);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    const int64_t group = o / width, lane = o % width;
    uint8_t* panel = out.data() + (group * panels + lane / lanes) * panel_bytes;
    for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
        const int64_t tap = kh * layout.per_row + (layout.per_row == 1 ? 0 : kw);
        const int64_t start =
            layout.per_row == 1 ? kw * depth : 0;  // where this column begins inside its tap
        for (int64_t i = 0; i < depth; ++i) {
          const int64_t k = start + i, from = ((o * depth + i) * s.kernel_h + kh) * s.kernel_w + kw;
          const int64_t at =
              ((tap * layout.units + k / unit) * lanes + lane % lanes) * unit_bytes + k % unit * bytes;
          store_weight(weights, from, type, panel + at);
        }
      }
    }
  }
  if (config.input == DataType::bf16 && type == DataType::f32) {
    round_weights(out.data(), s.groups * panels * panel_bytes / 4);
  }
  return out;
}

}  // namespace ulp::kernels
