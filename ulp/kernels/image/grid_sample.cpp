#include "ulp/kernels/image/grid_sample.h"

#include <algorithm>
#include <cmath>

#include "ulp/kernels/common/split.h"
#include "ulp/kernels/image/resize.h"

namespace ulp::kernels {
namespace {

/// Up to four neighbours along one axis; those outside have no index.
struct Line {
  static constexpr int64_t kOutside = -1;
  std::array<int64_t, 4> from{};
  std::array<float, 4> weight{};
  int count = 0;

  void add(float place, int64_t size, float share) {
    const auto at = static_cast<size_t>(count++);
    const bool inside = place >= 0 && place < static_cast<float>(size);
    from[at] = inside ? static_cast<int64_t>(place) : kOutside;
    weight[at] = share;
  }
};

/// Mirrored at both ends, which are given doubled.
float reflected(float place, float twice_low, float twice_high) {
  if (twice_low == twice_high) return 0;
  const float low = twice_low / 2, span = (twice_high - twice_low) / 2, away = std::abs(place - low);
  const float rest = std::fmod(away, span), turns = std::floor(away / span);
  return std::fmod(turns, 2.0F) == 0 ? rest + low : span - rest + low;
}

/// A place brought into the image as the border says.
float bounded(const GridShape& shape, float place, int64_t size) {
  if (shape.border == GridBorder::zeros) return place;
  const auto n = static_cast<float>(size);
  if (shape.border == GridBorder::reflection) {
    place = shape.align_corners ? reflected(place, 0, 2 * (n - 1)) : reflected(place, -1, 2 * n - 1);
  }
  return place > 0 ? std::min(place, n - 1) : 0;  // 0 for what is no number
}

/// The neighbours of a coordinate in [-1, 1] along an axis of `size` pixels.
Line line_of(const GridShape& shape, float coordinate, int64_t size) {
  const auto n = static_cast<float>(size);
  float place = shape.align_corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
  Line line;
  if (shape.mode == GridMode::bicubic) {
    const float low = std::floor(place);
    const std::array<float, 4> weights = cubic_weights(place - low);
    for (int tap = 0; tap < 4; ++tap) {
      const float near = bounded(shape, low + static_cast<float>(tap - 1), size);
      line.add(near, size, weights[static_cast<size_t>(tap)]);
    }
    return line;
  }
  place = bounded(shape, place, size);
  if (shape.mode == GridMode::nearest) {
    line.add(std::nearbyint(place), size, 1);
    return line;
  }
  const float low = std::floor(place), t = place - low;
  line.add(low, size, 1 - t);
  line.add(low + 1, size, t);
  return line;
}

void pixel(const GridShape& shape, const float* image, const float* place, float* y) {
  const Line across = line_of(shape, place[0], shape.in_w), down = line_of(shape, place[1], shape.in_h);
  std::fill(y, y + shape.channels, 0.0F);
  for (int i = 0; i < down.count; ++i) {
    for (int j = 0; j < across.count; ++j) {
      const auto r = static_cast<size_t>(i), q = static_cast<size_t>(j);
      if (down.from[r] < 0 || across.from[q] < 0) continue;
      const float* from = image + (down.from[r] * shape.in_w + across.from[q]) * shape.channels;
      const float weight = down.weight[r] * across.weight[q];
      for (int64_t c = 0; c < shape.channels; ++c) y[c] += weight * from[c];
    }
  }
}

}  // namespace

void grid_sample(const GridShape& shape, int64_t batch, const float* x, const float* grid, float* y,
                 const Parallel& parallel) {
  constexpr int64_t kTask = 64;  // pixels
  const int64_t total = batch * shape.pixels, image = shape.in_h * shape.in_w * shape.channels;
  worth_sharing(total * shape.channels, parallel).run((total + kTask - 1) / kTask, [&](int64_t task, int) {
    const int64_t end = std::min(total, (task + 1) * kTask);
    for (int64_t i = task * kTask; i < end; ++i) {
      pixel(shape, x + i / shape.pixels * image, grid + 2 * i, y + i * shape.channels);
    }
  });
}

}  // namespace ulp::kernels
