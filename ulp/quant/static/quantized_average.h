// Averages of codes in a converted graph. Internal to the library.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::quant {

/// How an average of codes rounds what lies in the middle of two, as ulp::average_codes has it: to the even
/// code, counted from the zero point, as ONNX Runtime does, or away from code 0, as LiteRT does.
enum class AverageRounding : uint8_t { half_even, half_away };

/// dequantize -> average -> quantize, of codes of all 8 bits with one scale, becomes ulp::average_codes: a
/// sum of integers and one rounding, which engines do by the same rule. Averages are avg_pool1d and
/// avg_pool2d, and adaptive ones whose output size divides the input's. The quantize node keeps its name.
/// convert() of a calibrated model does it; that of a trained one leaves the graph that was trained, and
/// lowering does it. With half_away, averages of s8 codes that keep their scale round so, and those over a
/// whole image are windows of its size where it is known: LiteRT's operator for windows has one rule in all
/// of its kernels, that for means has none. Adaptive averages over windows of unequal sizes are then averages
/// of codes, too, one for each run of equal windows, joined; those of more than 128 runs stay averages of
/// numbers.
ULP_API void average_on_codes(graph::Graph& graph, AverageRounding rounding = AverageRounding::half_even);

}  // namespace ulp::quant
