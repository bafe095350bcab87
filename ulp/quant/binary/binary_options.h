// Options of binary networks: the gradient of the signs, the factors of the layers, which layers are
// binary.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/quant/operators/binary_ops.h"

namespace ulp::quant {

/// The factor that the sums of a binary layer are multiplied by. The learned ones are the four of XNOR-Net++ (Bulat
/// and Tzimiropoulos 2019); all but the first fix the size of the image. h and w are those of the result.
enum class BinaryScale : uint8_t {
  none,      ///< 1: a batch norm behind the layer makes up for it
  mean,      ///< of each output the mean of |W|: XNOR-Net (Rastegari et al. 2016)
  output,    ///< learned, a[o]
  full,      ///< learned, a[o, h, w]
  spatial,   ///< learned, a[o] b[h, w]
  separable  ///< learned, a[o] b[h] c[w]
};

/// The padding of an image of signs, which has no zero.
enum class BinaryPadding : uint8_t {
  one,  ///< pixels of +1, which cost nothing when inferring
  zero  ///< pixels that add nothing
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::BinaryScale> {
  static constexpr std::array<Word<quant::BinaryScale>, 6> list = {
      {{quant::BinaryScale::none, "none", "1"},
       {quant::BinaryScale::mean, "mean", "of each output the mean of |W|: XNOR-Net"},
       {quant::BinaryScale::output, "output", "learned, one an output channel: XNOR-Net++"},
       {quant::BinaryScale::full, "full", "learned, one an element of the result"},
       {quant::BinaryScale::spatial, "spatial", "learned, one an output channel times one a pixel"},
       {quant::BinaryScale::separable, "separable",
        "learned, one an output channel times one a row times one a column"}}};
};
template <>
struct ulp::EnumNames<ulp::quant::BinaryPadding> {
  static constexpr std::array<Word<quant::BinaryPadding>, 2> list = {
      {{quant::BinaryPadding::one, "one", "+1, which costs nothing when inferring"},
       {quant::BinaryPadding::zero, "zero", "0"}}};
};

namespace ulp::quant {

/// True for the factors that are trained.
ULP_API bool is_learned(BinaryScale scale);

/// How one layer of a binary network computes: y = (sign(x) * sign(W)) scale [K] + bias.
struct ULP_API BinaryLayerOptions {
  SignGradient gradient =
      SignGradient::clipped;  ///< of the activations' signs; that of the weights' is clipped
  BinaryScale scale = BinaryScale::mean;
  /// XNOR-Net's K: the mean of |x| over channels and window multiplies each pixel.
  bool activation_scale = false;
  BinaryPadding padding = BinaryPadding::one;
  /// Ternary weights with a scale of their own (ternarize() in binary_ops.h); `scale` is not used then.
  bool ternary = false;

  void visit_fields(FieldVisitor& visit);
  bool operator==(const BinaryLayerOptions&) const = default;
};

/// Which layers of a model become binary, how they compute, and when.
struct ULP_API BinaryOptions {
  BinaryLayerOptions layers = {};
  bool first = false;      ///< the first layer of the network, too
  bool last = false;       ///< the last one, too
  bool shortcuts = false;  ///< convolutions of one pixel, too: the shortcuts of residual networks
  /// Share of the steps after which weights are binary; until then only the activations are.
  double weights_after = 0.0;

  void visit_fields(FieldVisitor& visit);
  bool operator==(const BinaryOptions&) const = default;
};

}  // namespace ulp::quant
