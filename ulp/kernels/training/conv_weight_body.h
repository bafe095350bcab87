// Gradients of the weights of convolutions. Part of conv_products_body.h; everything here has internal
// linkage.
namespace ulp::kernels {
namespace {

/// The pixels of a block: windows a and gradients g.
struct WeightGrid {
  int64_t images, rows, columns;
  const float* a;
  int64_t a_image, a_row, a_column;
  const float* g;
  int64_t g_image, g_row, g_column;
};

/// to(m, j) += the sum of a[m] g[j] over the pixels, j in kVectors vectors, the last one of n columns if
/// kPartial.
template <int kRows, int kVectors, bool kPartial>
void add_weight_tile(const WeightGrid& p, float* to, int64_t to_step, int64_t n) {
  ConvVector sums[kRows][kVectors];
  constexpr int kLast = kVectors - 1;
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[m][v] = ConvLanes::set1(0.0F);
  }
  for (int64_t i = 0; i < p.images; ++i) {
    for (int64_t r = 0; r < p.rows; ++r) {
      const float* a = p.a + i * p.a_image + r * p.a_row;
      const float* g = p.g + i * p.g_image + r * p.g_row;
      for (int64_t c = p.columns; c > 0; --c, a += p.a_column, g += p.g_column) {
        ConvVector right[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kLast; ++v) right[v] = ConvLanes::load(g + v * kConvLanes);
        if constexpr (kPartial) {
          right[kLast] = ConvLanes::load_first(g + kLast * kConvLanes, n);
        } else {
          right[kLast] = ConvLanes::load(g + kLast * kConvLanes);
        }
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) {
          const ConvVector left = ConvLanes::set1(a[m]);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[m][v] = ConvLanes::fma(left, right[v], sums[m][v]);
        }
      }
    }
  }
  const ConvVector one = ConvLanes::set1(1.0F);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {  // 1 * stored + sum: a sum with one rounding
      float* at = to + m * to_step + v * kConvLanes;
      ConvLanes::store(at, ConvLanes::fma(one, ConvLanes::load(at), sums[m][v]));
    }
  }
}

template <int kRows, int kVectors, bool kPartial>
void add_weight_rows(int64_t rows, const WeightGrid& p, float* to, int64_t to_step, int64_t n) {
  if (rows == kRows) return add_weight_tile<kRows, kVectors, kPartial>(p, to, to_step, n);
  if constexpr (kRows > 1) add_weight_rows<kRows - 1, kVectors, kPartial>(rows, p, to, to_step, n);
}

/// `rows` neighbours of the windows and all columns of a panel.
template <int kVectors, bool kPartial>
void add_weight_columns(int64_t rows, WeightGrid p, float* to, int64_t to_step, int64_t n) {
  constexpr int64_t kMost = kTileRows<kVectors>;
  int64_t tiles = conv_ceil(rows, kMost);
  for (int64_t done = 0; done < rows; --tiles) {
    const int64_t count = conv_ceil(rows - done, tiles);
    add_weight_rows<kMost, kVectors, kPartial>(count, p, to + done * to_step, to_step, n);
    p.a += count;
    done += count;
  }
}

/// Pixels that lie in even steps on both sides become one row.
inline void flatten_grid(WeightGrid& p) {
  if (p.a_row == p.columns * p.a_column && p.g_row == p.columns * p.g_column) {
    p.columns *= p.rows;
    p.rows = 1;
    if (p.a_image == p.columns * p.a_column && p.g_image == p.columns * p.g_column) {
      p.columns *= p.images;
      p.images = 1;
    }
  }
}

/// The units of a group: (panel, run of the window, tile of the run).
struct WeightUnits {
  int64_t panels, runs, tiles, inner;
  int64_t count() const { return panels * runs * tiles; }
};
inline WeightUnits weight_units(const StepConv& conv) {
  const int64_t run = conv_run_taps(conv), inner = run * conv.group_inputs();
  return {conv_ceil(conv.group_outputs(), kConvPanel), conv.taps() / run, conv_ceil(inner, kConvWeightRows),
          inner};
}

/// Units [begin, end) of one group for the pixels of one block.
void add_weight_units(const StepConv& conv, const ConvWindows& windows, WeightGrid p, float* packed,
                      int64_t begin, int64_t end, const ReadAhead& next_x, const ReadAhead& next_g) {
  const WeightUnits units = weight_units(conv);
  const int64_t outputs = conv.group_outputs(), depth = units.runs * units.inner;
  const float* g = p.g;
  for (int64_t u = begin; u < end; ++u) {
    const int64_t tile = u % units.tiles, run = u / units.tiles % units.runs;
    const int64_t first = u / units.tiles / units.runs * kConvPanel;
    const int64_t width = panel_width(outputs, first);
    const int64_t last = outputs - first < width ? outputs : first + width;
    const int64_t from = tile * units.inner / units.tiles, to = (tile + 1) * units.inner / units.tiles;
    float* rows = packed + first * depth + (run * units.inner + from) * width;
    next_x.ask(u - begin, end - begin);
    next_g.ask(u - begin, end - begin);
    p.a = windows.a + windows.offsets[run] + from;
    for (int64_t column = first; column < last; column += 2 * kConvLanes) {
      const int64_t left = last - column;
      float* at = rows + (column - first);
      p.g = g + column;
      if (left >= 2 * kConvLanes) {
        add_weight_columns<2, false>(to - from, p, at, width, 0);
      } else if (left > kConvLanes) {
        add_weight_columns<2, true>(to - from, p, at, width, left - kConvLanes);
      } else if (left == kConvLanes) {
        add_weight_columns<1, false>(to - from, p, at, width, 0);
      } else {
        add_weight_columns<1, true>(to - from, p, at, width, left);
      }
    }
  }
}

/// Zeros for what units [begin, end) of a group hold.
void clear_weight_units(const StepConv& conv, float* packed, int64_t begin, int64_t end) {
  const WeightUnits units = weight_units(conv);
  const int64_t outputs = conv.group_outputs(), depth = units.runs * units.inner;
  for (int64_t u = begin; u < end; ++u) {
    const int64_t tile = u % units.tiles, run = u / units.tiles % units.runs;
    const int64_t first = u / units.tiles / units.runs * kConvPanel;
    const int64_t width = panel_width(outputs, first);
    const int64_t from = tile * units.inner / units.tiles, to = (tile + 1) * units.inner / units.tiles;
    float* rows = packed + first * depth + (run * units.inner + from) * width;
    for (int64_t i = 0; i < (to - from) * width; ++i) rows[i] = 0.0F;
  }
}

void conv_weight_gradient(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g,
                          float* packed, int64_t begin, int64_t end) {
  alignas(64) float scratch[kConvScratch];
  const ConvBlocks blocks = conv_weight_blocks(conv);
  const int64_t outputs = conv.group_outputs(), of_group = weight_units(conv).count();
  const int64_t group_floats = conv.taps() * conv.group_inputs() * panel_columns(outputs);
  ConvWindows windows;
  for (int64_t group = begin / of_group; group * of_group < end; ++group) {
    const int64_t before = group * of_group;
    const int64_t from = begin > before ? begin - before : 0;
    const int64_t to = end - before < of_group ? end - before : of_group;
    float* weights = packed + group * group_floats;
    clear_weight_units(conv, weights, from, to);
    for (int64_t u = 0; u < blocks.units(batch); ++u) {
      const ConvUnit unit = conv_unit(blocks, batch, conv.out_height, conv.out_width, u);
      const int64_t pixel = (unit.image * conv.out_height + unit.top) * conv.out_width + unit.left;
      forward_windows(conv, x, unit, group, scratch, windows);
      WeightGrid grid{unit.images,
                      unit.height,
                      unit.width,
                      windows.a,
                      windows.a_image,
                      windows.a_row,
                      windows.a_column,
                      g.data + pixel * g.stride + group * outputs,
                      conv.out_height * conv.out_width * g.stride,
                      conv.out_width * g.stride,
                      g.stride};
      flatten_grid(grid);
      ReadAhead next_x, next_g;
      if (u + 1 < blocks.units(batch)) {
        const ConvUnit next = conv_unit(blocks, batch, conv.out_height, conv.out_width, u + 1);
        next_x = windows_ahead(conv, x, next);
        next_g = rows_ahead(g, conv.out_height, conv.out_width, next, next.top, next.height);
      }
      add_weight_units(conv, windows, grid, weights, from, to, next_x, next_g);
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
