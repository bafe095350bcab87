// The element types in which LiteRT computes an op, where they are fewer than the file can hold. Tried with
// 2.3.0, operator by operator.
#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

constexpr TypeSet kNumbers = {at::kFloat, at::kInt, at::kLong}, kNarrow = {at::kFloat, at::kInt};

// int8 is there as codes alone.
constexpr TypeSet kPlain = {at::kFloat, at::kInt, at::kLong, at::kBool};

constexpr PeerTypes kPeerTypes[] = {{"aten::abs", kNumbers},
                                    {"aten::neg", kNumbers},
                                    {"aten::sign", kNumbers},
                                    {"aten::sgn", kNumbers},
                                    {"aten::relu", kNumbers},
                                    {"aten::relu6", kNumbers},
                                    {"aten::clamp", kNumbers},
                                    {"aten::hardtanh", kNumbers},
                                    {"aten::clamp_min", kNumbers},
                                    {"aten::clamp_max", kNumbers},
                                    {"aten::add", kNumbers},
                                    {"aten::sub", kNumbers},
                                    {"aten::rsub", kNumbers},
                                    {"aten::mul", kNumbers},
                                    {"aten::maximum", kNumbers},
                                    {"aten::minimum", kNumbers},
                                    {"aten::pow", kNumbers},
                                    {"aten::max", kNumbers},
                                    {"aten::min", kNumbers},
                                    {"aten::amax", kNumbers},
                                    {"aten::amin", kNumbers},
                                    {"aten::sum", kNumbers},
                                    {"aten::argmax", kNarrow},
                                    {"aten::argmin", kNarrow},
                                    {"aten::prod", kNumbers},
                                    {"aten::cumsum", kNumbers},
                                    {"aten::remainder", kNumbers},
                                    {"aten::sort", kNumbers},
                                    {"aten::argsort", kNumbers},
                                    {"aten::topk", kNumbers},
                                    {"aten::matmul", {at::kFloat}},
                                    {"aten::mm", {at::kFloat}},
                                    {"aten::bmm", {at::kFloat}},
                                    {"aten::linear", {at::kFloat}},
                                    {"aten::conv1d", {at::kFloat}},
                                    {"aten::conv2d", {at::kFloat}},
                                    {"aten::conv3d", {at::kFloat}},
                                    {"aten::avg_pool1d", {at::kFloat}},
                                    {"aten::avg_pool2d", {at::kFloat}},
                                    {"aten::eq", kPlain},
                                    {"aten::ne", kPlain},
                                    {"aten::lt", kPlain},
                                    {"aten::le", kPlain},
                                    {"aten::gt", kPlain},
                                    {"aten::ge", kPlain},
                                    {"aten::logical_and", kPlain},
                                    {"aten::logical_or", kPlain},
                                    {"aten::where", kPlain},
                                    {"aten::masked_fill", kPlain}};

}  // namespace

std::span<const PeerTypes> peer_types() {
  return kPeerTypes;
}

}  // namespace ulp::exchange::tflite
