// The element types in which ONNX Runtime computes an op, where they are fewer than LibTorch's. Tried with 1.31.1, operator by operator.
#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

constexpr TypeSet kNumbers = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                              at::kByte, at::kShort,    at::kInt,   at::kLong};

constexpr TypeSet kFloats = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

constexpr PeerTypes kPeerTypes[] = {
    {"aten::add", kNumbers},         {"aten::mul", kNumbers},      {"aten::maximum", kNumbers},
    {"aten::minimum", kNumbers},     {"aten::sign", kNumbers},     {"aten::sgn", kNumbers},
    {"aten::sort", kNumbers},        {"aten::argsort", kNumbers},  {"aten::topk", kNumbers},
    {"aten::argmax", kNumbers},      {"aten::argmin", kNumbers},   {"aten::where", kNumbers},
    {"aten::masked_fill", kNumbers}, {"aten::amax", kNumbers},     {"aten::amin", kNumbers},
    {"aten::max", kNumbers},         {"aten::min", kNumbers},      {"aten::avg_pool1d", kFloats},
    {"aten::avg_pool2d", kFloats},   {"aten::avg_pool3d", kFloats}};

}  // namespace

std::span<const PeerTypes> peer_types() {
  return kPeerTypes;
}

}  // namespace ulp::exchange::onnx
