#include "ulp/kernels/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/common/split.h"

namespace ulp::kernels {
namespace {

float load(float x) {
  return x;
}
float load(uint16_t x) {
  return bf16_to_float(x);
}
float load(uint8_t x) {
  return static_cast<float>(x);
}
void store(float value, float& y) {
  y = value;
}
void store(float value, uint16_t& y) {
  y = float_to_bf16(value);
}
// A mean of codes lies between them: no clamp. Half to even by an addition, which vectorizes.
void store(float value, uint8_t& y) {
  constexpr float kMagic = 0x1.8p23F;
  y = static_cast<uint8_t>(static_cast<int32_t>((value + kMagic) - kMagic));
}

template <typename T>
void bilinear(const ResizeAxis& rows, const ResizeAxis& columns, int64_t batch, int64_t channels, const T* x,
              T* y, const Parallel& parallel) {
  const int64_t line = columns.in * channels;
  worth_sharing(batch * rows.out() * columns.out() * channels, parallel)
      .run(batch * rows.out(), [&](int64_t task, int) {
        const auto i = static_cast<size_t>(task % rows.out());
        const T* image = x + task / rows.out() * rows.in * line;
        const T *top = image + rows.low[i] * line, *bottom = image + rows.high[i] * line;
        T* to = y + task * columns.out() * channels;
        const float v = rows.weight[i], u = 1.0F - v;
        for (size_t j = 0; j < columns.low.size(); ++j, to += channels) {
          const int64_t left = columns.low[j] * channels, right = columns.high[j] * channels;
          const float b = columns.weight[j], a = 1.0F - b;
          for (int64_t c = 0; c < channels; ++c) {
            const float above = a * load(top[left + c]) + b * load(top[right + c]);
            const float below = a * load(bottom[left + c]) + b * load(bottom[right + c]);
            store(u * above + v * below, to[c]);
          }
        }
      });
}

template <typename T>
void bicubic(const CubicAxis& rows, const CubicAxis& columns, int64_t batch, int64_t channels, const T* x,
             T* y, const Parallel& parallel) {
  const int64_t line = columns.in * channels;
  worth_sharing(batch * rows.out() * columns.out() * channels, parallel)
      .run(batch * rows.out(), [&](int64_t task, int) {
        const int64_t i = 4 * (task % rows.out());
        const T* image = x + task / rows.out() * rows.in * line;
        T* to = y + task * columns.out() * channels;
        const auto sum_of = [&](const int64_t* from, const float* share, int64_t c) {
          float sum = 0;
          for (int64_t r = i; r < i + 4; ++r) {
            const T* row = image + rows.from[static_cast<size_t>(r)] * line + c;
            const float across =
                share[0] * load(row[from[0] * channels]) + share[1] * load(row[from[1] * channels]) +
                share[2] * load(row[from[2] * channels]) + share[3] * load(row[from[3] * channels]);
            sum += rows.weight[static_cast<size_t>(r)] * across;
          }
          return sum;
        };
        for (size_t j = 0; j < columns.from.size(); j += 4, to += channels) {
          for (int64_t c = 0; c < channels; ++c)
            store(sum_of(&columns.from[j], &columns.weight[j], c), to[c]);
        }
      });
}

/// How far apart the sources of neighbours are.
float step_of(int64_t in, int64_t out, bool align_corners, float given) {
  if (align_corners) return out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0F;
  return given > 0 ? given : static_cast<float>(in) / static_cast<float>(out);
}

/// A source that is at least 0, as an index.
int64_t index_of(float source, int64_t in) {
  return std::min(static_cast<int64_t>(std::min(source, static_cast<float>(in))), in - 1);
}

}  // namespace

ResizeAxis nearest_axis(int64_t in, int64_t out, float step, bool exact) {
  ResizeAxis axis{.in = in, .low = {}, .high = {}, .weight = {}};
  const float scale = step_of(in, out, false, step), begin = exact ? 0.5F : 0.0F;
  for (int64_t i = 0; i < out; ++i) axis.low.push_back(index_of((static_cast<float>(i) + begin) * scale, in));
  axis.high = axis.low;
  axis.weight.assign(axis.low.size(), 0.0F);
  return axis;
}

ResizeAxis bilinear_axis(int64_t in, int64_t out, bool align_corners, float step) {
  ResizeAxis axis{.in = in, .low = {}, .high = {}, .weight = {}};
  const float scale = step_of(in, out, align_corners, step);
  for (int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<float>(i);
    const float source = align_corners ? at * scale : std::max(scale * (at + 0.5F) - 0.5F, 0.0F);
    const int64_t low = index_of(source, in);
    axis.low.push_back(low);
    axis.high.push_back(std::min(low + 1, in - 1));
    axis.weight.push_back(std::min(source - static_cast<float>(low), 1.0F));
  }
  return axis;
}

std::array<float, 4> cubic_weights(float t) {
  constexpr float kA = -0.75F;
  const auto near = [](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  const auto far = [](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

CubicAxis cubic_axis(int64_t in, int64_t out, bool align_corners, float step) {
  CubicAxis axis{.in = in, .from = {}, .weight = {}};
  const float scale = step_of(in, out, align_corners, step);
  for (int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<float>(i);
    const float source =
        std::min(align_corners ? at * scale : scale * (at + 0.5F) - 0.5F, static_cast<float>(in));
    const auto low = static_cast<int64_t>(std::floor(source));
    const std::array<float, 4> weights = cubic_weights(std::min(source - static_cast<float>(low), 1.0F));
    for (int64_t tap = 0; tap < 4; ++tap) {
      axis.from.push_back(std::clamp(low - 1 + tap, int64_t{0}, in - 1));
      axis.weight.push_back(weights[static_cast<size_t>(tap)]);
    }
  }
  return axis;
}

void resize_nearest(int64_t element_size, const ResizeAxis& rows, const ResizeAxis& columns, int64_t batch,
                    int64_t channels, const void* x, void* y, const Parallel& parallel) {
  const int64_t pixel = channels * element_size, line = columns.in * pixel;
  worth_sharing(batch * rows.out() * columns.out() * channels, parallel)
      .run(batch * rows.out(), [&](int64_t task, int) {
        const auto i = static_cast<size_t>(task % rows.out());
        const uint8_t* from =
            static_cast<const uint8_t*>(x) + (task / rows.out() * rows.in + rows.low[i]) * line;
        uint8_t* to = static_cast<uint8_t*>(y) + task * columns.out() * pixel;
        for (const int64_t column : columns.low) {
          std::memcpy(to, from + column * pixel, static_cast<size_t>(pixel));
          to += pixel;
        }
      });
}

void resize_bilinear(DataType type, const ResizeAxis& rows, const ResizeAxis& columns, int64_t batch,
                     int64_t channels, const void* x, void* y, const Parallel& parallel) {
  const auto run = [&]<typename T>(T) {
    bilinear(rows, columns, batch, channels, static_cast<const T*>(x), static_cast<T*>(y), parallel);
  };
  if (type == DataType::f32) return run(float{});
  if (type == DataType::bf16) return run(uint16_t{});
  if (type == DataType::u8) return run(uint8_t{});
  fail("kernels.resize_bilinear", "expected f32, bf16 or u8 elements, got ", to_string(type));
}

void resize_bicubic(DataType type, const CubicAxis& rows, const CubicAxis& columns, int64_t batch,
                    int64_t channels, const void* x, void* y, const Parallel& parallel) {
  const auto run = [&]<typename T>(T) {
    bicubic(rows, columns, batch, channels, static_cast<const T*>(x), static_cast<T*>(y), parallel);
  };
  if (type == DataType::f32) return run(float{});
  if (type == DataType::bf16) return run(uint16_t{});
  fail("kernels.resize_bicubic", "expected f32 or bf16 elements, got ", to_string(type));
}

}  // namespace ulp::kernels
