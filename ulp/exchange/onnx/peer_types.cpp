// The element types in which ONNX Runtime computes an op, where they are fewer than LibTorch's. Tried with 1.31.1,
// operator by operator: tests/golden/onnx_types.json.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

constexpr TypeSet kNumbers = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                              at::kByte, at::kShort,    at::kInt,   at::kLong};

constexpr TypeSet kFloats = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

constexpr TypeSet kWithoutInt16 = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                   at::kChar, at::kByte,     at::kInt,   at::kLong};
constexpr TypeSet kPadded = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                             at::kByte, at::kInt,      at::kLong,  at::kBool};
constexpr TypeSet kSigned = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                             at::kChar, at::kShort,    at::kInt,   at::kLong};
constexpr TypeSet kProducts = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kInt, at::kLong};
constexpr TypeSet kTriangles = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                at::kInt,  at::kLong,     at::kBool};
constexpr TypeSet kImages = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar, at::kByte};

// Powers of int8 leave the numbers that a power of int32 gives exactly.
constexpr PeerTypes kPeerTypes[] = {{"aten::add", kNumbers},
                                    {"aten::mul", kNumbers},
                                    {"aten::sign", kNumbers},
                                    {"aten::sgn", kNumbers},
                                    {"aten::sort", kNumbers},
                                    {"aten::argsort", kNumbers},
                                    {"aten::topk", kNumbers},
                                    {"aten::maximum", kWithoutInt16},
                                    {"aten::minimum", kWithoutInt16},
                                    {"aten::argmax", kWithoutInt16},
                                    {"aten::argmin", kWithoutInt16},
                                    {"aten::where", kWithoutInt16},
                                    {"aten::masked_fill", kWithoutInt16},
                                    {"aten::amax", kWithoutInt16},
                                    {"aten::amin", kWithoutInt16},
                                    {"aten::max", kWithoutInt16},
                                    {"aten::min", kWithoutInt16},
                                    {"aten::threshold", kWithoutInt16},
                                    {"aten::div", kWithoutInt16},
                                    {"aten::remainder", kWithoutInt16},
                                    {"aten::relu", kWithoutInt16},
                                    {"aten::relu6", kWithoutInt16},
                                    {"aten::hardtanh", kWithoutInt16},
                                    {"aten::clamp", kWithoutInt16},
                                    {"aten::clamp_min", kWithoutInt16},
                                    {"aten::clamp_max", kWithoutInt16},
                                    {"aten::constant_pad_nd", kPadded},
                                    {"aten::pad", kPadded},
                                    {"aten::reflection_pad1d", kPadded},
                                    {"aten::reflection_pad2d", kPadded},
                                    {"aten::replication_pad1d", kPadded},
                                    {"aten::replication_pad2d", kPadded},
                                    {"aten::neg", kSigned},
                                    {"aten::matmul", kProducts},
                                    {"aten::mm", kProducts},
                                    {"aten::bmm", kProducts},
                                    {"aten::addmm", kProducts},
                                    {"aten::baddbmm", kProducts},
                                    {"aten::linear", kProducts},
                                    {"aten::tril", kTriangles},
                                    {"aten::triu", kTriangles},
                                    {"aten::pow", kProducts, /*carried=*/false},
                                    {"aten::max_pool1d", kImages},
                                    {"aten::max_pool2d", kImages},
                                    {"aten::max_pool3d", kImages},
                                    {"aten::pixel_shuffle", kImages},
                                    {"ulp::depth_to_space", kImages},
                                    {"aten::avg_pool1d", kFloats},
                                    {"aten::avg_pool2d", kFloats},
                                    {"aten::avg_pool3d", kFloats}};

}  // namespace

std::span<const PeerTypes> peer_types() {
  return kPeerTypes;
}

}  // namespace ulp::exchange::onnx
