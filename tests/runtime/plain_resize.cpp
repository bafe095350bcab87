// resize and grid_sample in plain loops.
#include <algorithm>
#include <array>
#include <cmath>

#include "plain_loops.h"

namespace ulp::runtime::plain {
namespace {

/// The sources of an output along one axis and their weights.
struct Sources {
  std::array<int64_t, 4> at{};
  std::array<float, 4> weight{};
  size_t count = 0;
  void add(int64_t source, float share) {
    at.at(count) = source;
    weight.at(count++) = share;
  }
};

/// Cubic convolution by its definition: a curve of the distance.
float cubic(float distance) {
  const double d = std::abs(double{distance}), a = -0.75;
  if (d <= 1) return static_cast<float>((a + 2) * d * d * d - (a + 3) * d * d + 1);
  return d < 2 ? static_cast<float>(a * (d * d * d - 5 * d * d + 8 * d - 4)) : 0.0F;
}

Sources interpolated(float place, int64_t in, bool four) {
  Sources sources;
  const float low = std::floor(place);
  const auto first = static_cast<int64_t>(low);
  if (!four) {
    const float t = std::min(place - low, 1.0F);
    sources.add(std::min(first, in - 1), 1.0F - t);
    sources.add(std::min(first + 1, in - 1), t);
    return sources;
  }
  for (int64_t i = first - 1; i <= first + 2; ++i)
    sources.add(std::clamp<int64_t>(i, 0, in - 1), cubic(place - static_cast<float>(i)));
  return sources;
}

Sources sources_of(const Step& step, bool rows, int64_t i, int64_t in, int64_t out) {
  const auto at = static_cast<float>(i);
  const auto step_of = [&](const ResizeSteps& steps) {
    const float given = rows ? steps.step_h : steps.step_w;
    return given > 0 ? given : static_cast<float>(in) / static_cast<float>(out);
  };
  if (step.op == Op::resize_nearest) {
    const auto& own = step.get<NearestAttributes>();
    Sources sources;
    const float source = std::floor((at + (own.exact ? 0.5F : 0.0F)) * step_of(own.steps));
    sources.add(std::min(static_cast<int64_t>(source), in - 1), 1);
    return sources;
  }
  const auto& own = step.get<BilinearAttributes>();
  const bool four = step.op == Op::resize_bicubic;
  float from = (at + 0.5F) * step_of(own.steps) - 0.5F;
  if (!four) from = std::max(from, 0.0F);
  if (own.align_corners)
    from = out == 1 ? 0.0F : at * (static_cast<float>(in - 1) / static_cast<float>(out - 1));
  return interpolated(from, in, four);
}

/// -1: outside.
int64_t index_of(float place, int64_t in) {
  return place >= 0 && place < static_cast<float>(in) ? static_cast<int64_t>(place) : -1;
}

/// A place brought inside by walking from edge to edge.
float inside(const GridSampleAttributes& own, float place, int64_t in) {
  if (own.border == kernels::GridBorder::zeros) return place;
  const auto n = static_cast<float>(in);
  if (own.border == kernels::GridBorder::reflection) {
    const float low = own.align_corners ? 0.0F : -0.5F, high = own.align_corners ? n - 1 : n - 0.5F;
    while (low < high && (place < low || place > high)) place = 2 * (place < low ? low : high) - place;
    if (low == high) place = 0;
  }
  return std::clamp(place, 0.0F, n - 1);
}

Sources sampled(const GridSampleAttributes& own, float coordinate, int64_t in) {
  const auto n = static_cast<float>(in);
  const float place = own.align_corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
  Sources sources;
  if (own.mode == kernels::GridMode::bicubic) {
    for (float i = std::floor(place) - 1; i <= std::floor(place) + 2; ++i)
      sources.add(index_of(inside(own, i, in), in), cubic(place - i));
    return sources;
  }
  const float moved = inside(own, place, in);
  if (own.mode == kernels::GridMode::nearest) {
    sources.add(index_of(std::nearbyint(moved), in), 1);
    return sources;
  }
  const float low = std::floor(moved);
  sources.add(index_of(low, in), 1 - (moved - low));
  sources.add(index_of(low + 1, in), moved - low);
  return sources;
}

float sum_of(const View& x, int64_t n, int64_t c, const Sources& rows, const Sources& columns, float zero) {
  float sum = 0;
  for (size_t r = 0; r < rows.count; ++r) {
    float line = 0;
    for (size_t q = 0; q < columns.count; ++q) {
      if (rows.at[r] < 0 || columns.at[q] < 0) continue;
      line += columns.weight[q] * (x.steps(x.at(n, c, rows.at[r], columns.at[q])) + zero);
    }
    sum += rows.weight[r] * line;
  }
  return sum;
}

}  // namespace

void resize(const Step& step, const View& x, const View& y, int64_t batch) {
  each_pixel(y, batch, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    // Of codes the codes are interpolated, zero point and all.
    const auto zero = static_cast<float>(x.info.type == DataType::u8 ? x.info.zero_point : 0);
    const float value = sum_of(x, n, c, sources_of(step, true, i, x.info.shape[2], y.info.shape[2]),
                               sources_of(step, false, j, x.info.shape[3], y.info.shape[3]), zero);
    y.set_steps(y.at(n, c, i, j), x.info.type == DataType::u8 ? std::nearbyint(value) - zero : value);
  });
}

void grid_sample(const Step& step, const View& x, const View& grid, const View& y, int64_t batch) {
  const auto& own = step.get<GridSampleAttributes>();
  each_pixel(y, batch, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    const int64_t at = 2 * ((n * y.info.shape[2] + i) * y.info.shape[3] + j);
    y.set_steps(y.at(n, c, i, j), sum_of(x, n, c, sampled(own, grid.get(at + 1), x.info.shape[2]),
                                         sampled(own, grid.get(at), x.info.shape[3]), 0));
  });
}

}  // namespace ulp::runtime::plain
