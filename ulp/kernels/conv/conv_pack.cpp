// Packing weights into the panels of the tile kernels.
#include <algorithm>
#include <cstring>

#include "ulp/kernels/conv/conv_variants.h"

namespace ulp::kernels {
namespace {

/// What is packed: where the weights of a channel and of a unit lie.
struct Packing {
  const ConvShape& shape;
  const TapLayout& layout;
  int unit, lanes, unit_bytes;
  int64_t panel_bytes;
};

/// One panel, `lanes` channels from `first` on, in the order of its bytes. `read` gives weight number i of the layer.
template <typename T, typename Read>
void pack_panel(const Packing& p, int64_t first, int64_t lanes, const Read& read, uint8_t* panel) {
  const ConvShape& s = p.shape;
  const int64_t depth = s.in_channels / s.groups, taps = s.kernel_h * s.kernel_w, channel = depth * taps;
  const int64_t step = p.unit_bytes / static_cast<int64_t>(sizeof(T));  // from lane to lane
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t row = tap / s.kernel_w, column = tap % s.kernel_w;
    const bool merged = p.layout.per_row == 1;
    const int64_t start = merged ? column * depth : 0;  // where this column begins inside its tap
    const int64_t own = row * p.layout.per_row + (merged ? 0 : column);
    T* unit = reinterpret_cast<T*>(panel) + (own * p.layout.units + start / p.unit) * p.lanes * step;
    int64_t inside = start % p.unit;
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t from = first * channel + i * taps + tap;
      for (int64_t lane = 0; lane < lanes; ++lane) unit[lane * step + inside] = read(from + lane * channel);
      if (++inside < p.unit) continue;
      inside = 0;
      unit += p.lanes * step;
    }
  }
}

/// The same of a layer with one tap, whose units lie in the weights as they are packed.
template <size_t kBytes>
void pack_units(const Packing& p, int64_t first, int64_t lanes, const uint8_t* weights, uint8_t* panel) {
  const int64_t units = p.shape.in_channels / p.shape.groups / p.unit;  // a panel may have more
  const uint8_t* from = weights + first * units * static_cast<int64_t>(kBytes);
  for (int64_t unit = 0; unit < units; ++unit, from += kBytes, panel += p.lanes * kBytes) {
    for (int64_t lane = 0; lane < lanes; ++lane)
      std::memcpy(panel + lane * kBytes, from + lane * units * kBytes, kBytes);
  }
}

/// Whether pack_units() may take them, `bytes` being those of a weight.
bool has_whole_units(const Packing& p, size_t bytes) {
  const ConvShape& s = p.shape;
  return s.kernel_h * s.kernel_w == 1 && s.in_channels / s.groups % p.unit == 0 &&
         p.unit_bytes == p.unit * static_cast<int>(bytes);
}

/// `stored`: the weights where they are of type T already, or null.
template <typename T, typename Read>
void pack_all(const Packing& p, const T* stored, const Read& read, uint8_t* to) {
  const int64_t width = p.shape.out_channels / p.shape.groups;
  for (int64_t group = 0; group < p.shape.groups; ++group) {
    for (int64_t in_group = 0; in_group < width; in_group += p.lanes, to += p.panel_bytes) {
      const int64_t first = group * width + in_group, lanes = std::min<int64_t>(p.lanes, width - in_group);
      const auto* bytes = reinterpret_cast<const uint8_t*>(stored);
      const bool whole = stored != nullptr && has_whole_units(p, sizeof(T));
      if (whole && p.unit_bytes == 2) {
        pack_units<2>(p, first, lanes, bytes, to);
      } else if (whole && p.unit_bytes == 4) {
        pack_units<4>(p, first, lanes, bytes, to);
      } else {
        pack_panel<T>(p, first, lanes, read, to);
      }
    }
  }
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
  const int64_t panels = ceil_div(s.out_channels / s.groups, lanes);
  const int64_t panel_bytes = std::max(panel_units, layout.count * layout.units) * lanes * unit_bytes;
  AlignedBuffer out(s.groups * panels * panel_bytes);
  const Packing packing{s, layout, unit, lanes, unit_bytes, panel_bytes};
  if (type == DataType::i8) {
    pack_all<int8_t>(
        packing, weights.i8, [&](int64_t at) { return weights.i8[at]; }, out.data());
  } else if (type == DataType::i16) {
    pack_all<int16_t>(
        packing, nullptr, [&](int64_t at) { return int16_t{weights.i8[at]}; }, out.data());
  } else if (type == DataType::bf16) {
    pack_all<uint16_t>(
        packing, weights.bf16, [&](int64_t at) { return bf16_weight(weights, at); }, out.data());
  } else if (weights.bf16 != nullptr) {
    pack_all<float>(
        packing, nullptr, [&](int64_t at) { return bf16_to_float(weights.bf16[at]); }, out.data());
  } else {
    pack_all<float>(
        packing, weights.f32, [&](int64_t at) { return weights.f32[at]; }, out.data());
  }
  if (config.input == DataType::bf16 && type == DataType::f32) {
    round_weights(out.data(), s.groups * panels * panel_bytes / 4);
  }
  return out;
}

}  // namespace ulp::kernels
