// The packed weights of a layer on register tiles, and how a task's pixels and panels are cut into tiles:
// what convolutions and dynamic linear layers have in common. Internal to the room.
#pragma once

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/work_split.h"

namespace ulp::kernels {

/// The whole output, and what comes to it: all begin at its first pixel and channel.
struct TileOutput {
  uint8_t* y;
  int64_t y_bytes;          ///< of an element
  const uint8_t* residual;  ///< or null
  int64_t residual_bytes;
  const float* row_scale = nullptr;  ///< dynamic layers: one for each pixel
  const int32_t* row_zero = nullptr;
  int64_t y_step = 0;  ///< elements from one pixel to the next; 0: all channels of the panels
};

class TilePanels {
 public:
  /// PrepackedWeights the weights as `kernels` read them.
  TilePanels(const ConvConfig& config, const ConvWeights& weights, const TileKernels& kernels);
  /// One group and one tap of `units` units; `panels` are packed already, in memory of the caller.
  TilePanels(int64_t channels, int64_t units, const uint8_t* panels, const TileKernels& kernels);

  const TapLayout& layout() const { return layout_; }
  int64_t panels() const { return panels_; }  ///< of a group
  int64_t bytes() const { return groups_ * panels_ * panel_bytes_; }
  int64_t padded_channels() const { return panels_ * kernels_.lanes; }  ///< of a group
  /// Of a worker's buffer for widened panels, a multiple of 64; 0 where there are none.
  int64_t wide_bytes() const;

  /// Computes one part of the panels of one group for all rows. The caller has set a_step, taps and finish;
  /// the rest of `args` follows from the weights and the rows. `wide`: wide_bytes() at a
  /// multiple of 64; null: weights are widened as they are read.
  void run(const PixelRows& rows, const TileOutput& output, int64_t group, int64_t part, int64_t parts,
           TileArgs args, uint8_t* wide = nullptr) const;

 private:
  int64_t pixels_at_a_time(const PixelRows& rows, const TileOutput& output, int64_t panels,
                           int64_t a_step) const;
  void run_panels(const PixelRows& rows, const TileOutput& output, int64_t group, PanelRange range,
                  bool weights_stay, TileArgs args, uint8_t* wide) const;
  /// Packed weights to be fetched: those behind the panels at work.
  struct Ahead {
    const uint8_t *next, *end;  ///< next: null where all of them are there
  };
  Ahead run_row(const PixelRows& rows, int64_t row, int log2, const TileKernels& kernels,
                const TileOutput& output, TileArgs& args, Ahead weights) const;
  int panel_choice(int64_t left, int64_t pixels) const;

  const TileKernels& kernels_;
  TapLayout layout_;
  int64_t groups_, channels_;  // channels: of a group
  int64_t panels_, panel_bytes_;
  AlignedBuffer own_;
  const uint8_t* packed_;
  bool far_ = false;  ///< TileArgs::far
};

}  // namespace ulp::kernels
