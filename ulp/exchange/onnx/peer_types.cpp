// The element types in which ONNX Runtime computes an op, where they are fewer than LibTorch's. Tried with
// 1.31.1, operator by operator: tests/golden/onnx_types.json.
#include <string_view>
#include <vector>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

constexpr TypeSet kNumbers = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
                              at::kByte, at::kShort,    at::kInt,   at::kLong};
constexpr TypeSet kButShort = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                               at::kChar, at::kByte,     at::kInt,   at::kLong};
constexpr TypeSet kButByte = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                              at::kChar, at::kShort,    at::kInt,   at::kLong};
/// Of moved elements.
constexpr TypeSet kMoved = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kBool,
                            at::kChar, at::kByte,     at::kInt,   at::kLong};
/// Of products of matrices and of triangles.
constexpr TypeSet kWide = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kInt, at::kLong};
constexpr TypeSet kTriangles = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                at::kInt,  at::kLong,     at::kBool};
constexpr TypeSet kAnyFloats = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
/// Of functions that have no kernel of doubles.
constexpr TypeSet kShortFloats = {at::kHalf, at::kBFloat16, at::kFloat};
/// Of images that are looked at in windows or cut into blocks.
constexpr TypeSet kImages = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar, at::kByte};
constexpr TypeSet kResized = {at::kHalf, at::kBFloat16, at::kFloat, at::kChar, at::kByte, at::kInt};

struct Row {
  TypeSet types;
  std::vector<std::string_view> ops;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {kNumbers,
       {"aten::add", "aten::mul", "aten::sign", "aten::sgn", "aten::sort", "aten::argsort", "aten::topk"}},
      {kButShort,
       {"aten::maximum",     "aten::minimum",   "aten::argmax", "aten::argmin",       "aten::where",
        "aten::masked_fill", "aten::amax",      "aten::amin",   "aten::max",          "aten::min",
        "aten::relu",        "aten::relu6",     "aten::clamp",  "aten::clamp_min",    "aten::clamp_max",
        "aten::hardtanh",    "aten::threshold", "aten::div",    "aten::floor_divide", "aten::remainder"}},
      {kButByte, {"aten::neg"}},
      {kMoved,
       {"aten::pad", "aten::constant_pad_nd", "aten::reflection_pad1d", "aten::reflection_pad2d",
        "aten::reflection_pad3d", "aten::replication_pad1d", "aten::replication_pad2d",
        "aten::replication_pad3d"}},
      {kWide,
       {"aten::matmul", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::linear", "aten::sum",
        "aten::cumsum"}},
      {kAnyFloats,
       {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv_transpose1d", "aten::conv_transpose2d",
        "aten::conv_transpose3d"}},
      {kTriangles, {"aten::tril", "aten::triu"}},
      {kImages,
       {"aten::max_pool1d", "aten::max_pool2d", "aten::max_pool3d", "aten::pixel_shuffle",
        "ulp::depth_to_space"}},
      {kShortFloats,
       {"aten::avg_pool1d",
        "aten::avg_pool2d",
        "aten::avg_pool3d",
        "aten::acos",
        "aten::acosh",
        "aten::asin",
        "aten::asinh",
        "aten::atan",
        "aten::atanh",
        "aten::cosh",
        "aten::sinh",
        "aten::tan",
        "aten::upsample_bicubic2d",
        "aten::_upsample_bilinear2d_aa",
        "aten::_upsample_bicubic2d_aa",
        "aten::erf",
        "aten::erfc",
        "aten::gelu",
        "aten::celu",
        "aten::elu",
        "aten::selu",
        "aten::hardsigmoid",
        "aten::hardswish",
        "aten::leaky_relu",
        "aten::log_sigmoid",
        "aten::mish",
        "aten::softplus"}},
      {kResized,
       {"aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d",
        "aten::_upsample_nearest_exact1d", "aten::_upsample_nearest_exact2d",
        "aten::_upsample_nearest_exact3d"}},
      // ONNX Runtime cuts whole numbers off, LibTorch rounds them.
      {kShortFloats, {"aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d"}}};
  return all;
}

}  // namespace

std::span<const PeerTypes> peer_types() {
  static const std::vector<PeerTypes> table = [] {
    std::vector<PeerTypes> all;
    for (const Row& row : rows()) {
      for (const std::string_view op : row.ops) all.push_back({op, row.types});
    }
    return all;
  }();
  return table;
}

}  // namespace ulp::exchange::onnx
