// The fast implementations of Conv and the packing they share; internal to the room.
#pragma once

#include "ulp/kernels/conv/amx_kernel.h"
#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/conv/staging.h"
#include "ulp/kernels/conv/tile_kernel.h"
#include "ulp/kernels/conv/winograd_kernel.h"

namespace ulp::kernels {

/// How the reduction is cut into taps of contiguous input: a whole kernel row where the image allows it.
struct TapLayout {
  int64_t count;    ///< taps
  int64_t per_row;  ///< taps of a kernel row: 1, or kernel_w
  int64_t length;   ///< elements of a tap
  int64_t units;    ///< ceil(length / unit)
};
TapLayout tap_layout(const ConvShape& shape, int unit);

/// A 1x1 layer whose output pixels are its input pixels: the whole batch is one row.
bool is_flat(const ConvShape& shape);

/// One input channel for each output channel.
bool is_depthwise(const ConvShape& shape);

/// Weights of type f32, bf16, i8 or i16: [group][panel][tap][unit][lane][unit_bytes], zero where there is none.
/// `tap_units` of the layout are kept; `panel_units` (at least count * units; 0: just that) pads the end of a
/// panel.
AlignedBuffer pack_panels(const ConvConfig& config, const ConvWeights& weights, const TapLayout& layout,
                          int unit, int lanes, DataType type, int64_t panel_units = 0, int unit_bytes = 4);

/// A layer that can compute some rows of one image.
class RowConv : public Conv {
 public:
  virtual const ConvShape& shape() const = 0;
  /// How its input must lie.
  virtual const Staging& staging() const = 0;
  /// Bytes of scratch that run_rows() wants beside the staged input, at a multiple of 64; a multiple of 64.
  virtual int64_t scratch_bytes() const { return 0; }
  /// Computes `rows` rows of output from such input, which begins at the window of the first one; `residual` (or null) and
  /// `y` begin at the first row, too. A row of a flat layer is one pixel.
  virtual void run_rows(const uint8_t* staged, int64_t rows, const uint8_t* residual, uint8_t* y,
                        uint8_t* scratch) const = 0;
};

/// Each returns null for a configuration it does not take.
std::unique_ptr<Conv> make_tiled_conv(const ConvConfig& config, const ConvWeights& weights,
                                      const TileKernels& kernels);
std::unique_ptr<Conv> make_depthwise_conv(const ConvConfig& config, const ConvWeights& weights,
                                          const DepthwiseKernels& kernels,
                                          const DepthwiseBytes* bytes = nullptr);
std::unique_ptr<Conv> make_winograd_conv(const ConvConfig& config, const ConvWeights& weights,
                                         const WinogradKernels& kernels);
std::unique_ptr<Conv> make_amx_conv(const ConvConfig& config, const ConvWeights& weights,
                                    const AmxKernels& kernels);

}  // namespace ulp::kernels
