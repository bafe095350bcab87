#include "ulp/kernels/conv/tile_panels.h"

#include <algorithm>

#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {
namespace {

// More pixels than this share the time of widening panels once: two operations for 16 weights, and a trip to the second level.
constexpr int64_t kFewPixels = 28;
constexpr int kLog2Wide = 1;  // of the panels that are widened at a time

}  // namespace

TilePanels::TilePanels(const ConvConfig& config, const ConvWeights& weights, const TileKernels& kernels)
    : kernels_(kernels),
      layout_(tap_layout(config.shape, kernels.unit)),
      groups_(config.shape.groups),
      channels_(config.shape.out_channels / groups_),
      panels_(ceil_div(channels_, kernels.lanes)),
      panel_bytes_(layout_.count * layout_.units * kernels.lanes * kernels.weight_unit_bytes()),
      own_(pack_panels(config, weights, layout_, kernels.unit, kernels.lanes, kernels.weight_type(), 0,
                       kernels.weight_unit_bytes())),
      packed_(own_.data()),
      far_(bytes() > second_level_cache()) {}

TilePanels::TilePanels(int64_t channels, int64_t units, const uint8_t* panels, const TileKernels& kernels)
    : kernels_(kernels),
      layout_{1, 1, units * kernels.unit, units},
      groups_(1),
      channels_(channels),
      panels_(ceil_div(channels, kernels.lanes)),
      panel_bytes_(units * kernels.lanes * kernels.weight_unit_bytes()),
      packed_(panels) {}

int64_t TilePanels::wide_bytes() const {
  return kernels_.wide == nullptr ? 0 : round_up((panel_bytes_ << kLog2Wide) * 2, 64);
}

/// log2 of the panels of the next tiles: few pixels leave registers for many panels, and where panels are narrow, many of
/// them are the rule.
int TilePanels::panel_choice(int64_t left, int64_t pixels) const {
  const bool narrow = kernels_.max_pixels[2] >= kernels_.max_pixels[1];
  if (left >= 4 && (narrow || pixels <= kernels_.max_pixels[2])) return 2;
  return left >= 2 && kernels_.max_pixels[1] > 0 ? 1 : 0;
}

/// Pixels whose results stay in the cache while all panels of a part are at work; all of them where the weights are too many
/// to be read again from the second level.
int64_t TilePanels::pixels_at_a_time(const PixelRows& rows, const TileOutput& output, int64_t panels,
                                     int64_t a_step) const {
  constexpr int64_t kResults = 128 << 10, kWeights = 256 << 10;
  if (rows.rows > 1 || panels < 4 || panels * panel_bytes_ > kWeights) return rows.pixels;
  const int64_t residual = output.residual == nullptr ? 0 : output.residual_bytes;
  const int64_t pixel = a_step + groups_ * channels_ * (output.y_bytes + residual);
  return std::max<int64_t>(1, kResults / (pixel * kMaxTilePixels)) * kMaxTilePixels;
}

void TilePanels::run(const PixelRows& rows, const TileOutput& output, int64_t group, int64_t part,
                     int64_t parts, TileArgs args, uint8_t* wide) const {
  args.tap_count = layout_.count;
  args.tap_units = layout_.units;
  args.b_panel = panel_bytes_;
  args.far = far_;
  args.y_step = output.y_step > 0 ? output.y_step : groups_ * channels_;
  const PanelRange range = panels_of_part(panels_, part, parts);
  if (kernels_.wide == nullptr || rows.rows * rows.pixels <= kFewPixels) wide = nullptr;
  const int64_t most = pixels_at_a_time(rows, output, range.end - range.begin, args.a_step);
  for (int64_t first = 0; first < rows.pixels; first += most) {
    PixelRows some = rows;
    some.a += first * args.a_step;
    some.first_pixel += first;
    some.pixels = std::min(most, rows.pixels - first);
    run_panels(some, output, group, range, most < rows.pixels, args, wide);
  }
}

void TilePanels::run_panels(const PixelRows& rows, const TileOutput& output, int64_t group, PanelRange range,
                            bool weights_stay, TileArgs args, uint8_t* wide) const {
  const TileKernels& kernels = wide == nullptr ? kernels_ : *kernels_.wide;
  if (wide != nullptr) args.b_panel = 2 * panel_bytes_;
  for (int64_t panel = range.begin; panel < range.end;) {
    const int choice = panel_choice(range.end - panel, rows.pixels);
    const int log2 = wide == nullptr ? choice : std::min(choice, kLog2Wide);
    const uint8_t* packed = packed_ + (group * panels_ + panel) * panel_bytes_;
    const int64_t bytes = panel_bytes_ << log2;
    if (wide != nullptr) kernels_.widen(packed, wide, bytes / 2);
    args.b = wide == nullptr ? packed : wide;
    args.channel = group * channels_ + panel * kernels_.lanes;
    args.channels = channels_ - panel * kernels_.lanes;
    // Each tile fetches its share of the next panels, and once all of them are there, input of the next tile. Behind the last
    // panel may be what another worker writes.
    const bool last = group * panels_ + panel + (1 << log2) >= groups_ * panels_;
    Ahead weights{weights_stay || last ? nullptr : packed + bytes, packed + 2 * bytes};
    for (int64_t row = 0; row < rows.rows; ++row)
      weights = run_row(rows, row, log2, kernels, output, args, weights);
    panel += 1 << log2;
  }
}

/// Cuts a row into tiles of nearly equal width. Returns which weights are to be fetched next.
TilePanels::Ahead TilePanels::run_row(const PixelRows& rows, int64_t row, int log2,
                                      const TileKernels& kernels, const TileOutput& output, TileArgs& args,
                                      Ahead weights) const {
  const int64_t tiles = ceil_div(rows.pixels, kernels.max_pixels[log2]);
  const int64_t base = rows.pixels / tiles, wider = rows.pixels % tiles;
  const uint8_t* a = rows.a + row * rows.row_step;
  int64_t pixel = rows.first_pixel + row * rows.pixels;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t count = base + (i < wider);
    const int64_t at = pixel * args.y_step + args.channel;
    args.a = a;
    args.y = output.y + at * output.y_bytes;
    args.residual = output.residual == nullptr ? nullptr : output.residual + at * output.residual_bytes;
    if (output.row_scale != nullptr) {
      args.row_scale = output.row_scale + pixel;
      args.row_zero = output.row_zero + pixel;
    }
    args.ahead = weights.next != nullptr ? weights.next : a + count * args.a_step;
    kernels.tile[log2][count](args);
    if (weights.next != nullptr) weights.next += bytes_ahead(args.tap_count, args.tap_units);
    if (weights.next >= weights.end) weights.next = nullptr;
    a += count * args.a_step;
    pixel += count;
  }
  return weights;
}

}  // namespace ulp::kernels
