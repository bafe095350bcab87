// The element types in which MIL's operations compute, where they are fewer than a graph's tensors can have:
// integers of less than 32 bits are held in int32.
#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

constexpr TypeSet kWide = {at::kFloat, at::kHalf, at::kInt, at::kLong, at::kBool};

/// Operations that pick or pad elements have no truth values.
constexpr TypeSet kNumbers = {at::kFloat, at::kHalf, at::kInt, at::kLong, at::kByte, at::kChar, at::kShort};

constexpr PeerTypes kPeerTypes[] = {{"aten::flip", kNumbers},
                                    {"aten::index_select", kNumbers},
                                    {"aten::gather", kNumbers},
                                    {"aten::index", kNumbers},
                                    {"aten::repeat_interleave", kNumbers},
                                    {"aten::constant_pad_nd", kNumbers},
                                    {"aten::pad", kNumbers},
                                    {"aten::abs", kWide},
                                    {"aten::neg", kWide},
                                    {"aten::sign", kWide},
                                    {"aten::sgn", kWide},
                                    {"aten::relu", kWide},
                                    {"aten::relu6", kWide},
                                    {"aten::clamp", kWide},
                                    {"aten::hardtanh", kWide},
                                    {"aten::clamp_min", kWide},
                                    {"aten::clamp_max", kWide},
                                    {"aten::add", kWide},
                                    {"aten::sub", kWide},
                                    {"aten::rsub", kWide},
                                    {"aten::mul", kWide},
                                    {"aten::maximum", kWide},
                                    {"aten::minimum", kWide},
                                    {"aten::pow", kWide},
                                    {"aten::max", kWide},
                                    {"aten::min", kWide},
                                    {"aten::amax", kWide},
                                    {"aten::amin", kWide},
                                    {"aten::argmax", kWide},
                                    {"aten::argmin", kWide},
                                    {"aten::remainder", kWide},
                                    {"aten::sort", kWide},
                                    {"aten::argsort", kWide},
                                    {"aten::topk", kWide},
                                    {"aten::eq", kWide},
                                    {"aten::ne", kWide},
                                    {"aten::lt", kWide},
                                    {"aten::le", kWide},
                                    {"aten::gt", kWide},
                                    {"aten::ge", kWide},
                                    {"aten::logical_and", kWide},
                                    {"aten::logical_or", kWide},
                                    {"aten::where", kWide},
                                    {"aten::masked_fill", kWide},
                                    {"aten::floor_divide", kWide}};

}  // namespace

std::span<const PeerTypes> peer_types() {
  return kPeerTypes;
}

}  // namespace ulp::exchange::coreml
