// What writers of files ask about a node: its arguments as they are in eval mode, and the sizes of its
// values. What a file cannot hold is refused.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Why a node cannot be exported; the driver gathers them all into one error.
struct Refused {
  const graph::Node* node;
  std::string reason;
};

template <typename... Parts>
[[noreturn]] void refuse(const graph::Node& node, const Parts&... parts) {
  throw Refused{&node, concatenate(parts...)};
}

/// Sizes of a value; refuses where they are not known.
const std::vector<graph::SizeExpr>& sizes_of(const graph::Node& node, const graph::Value& value);
int64_t rank_of(const graph::Node& node, const graph::Value& value);
/// A size that must not be free.
int64_t fixed_size(const graph::Node& node, const graph::Value& value, int64_t dim);
/// Its element type; f32 where it was not seen.
at::ScalarType type_of(const graph::Value& value);

/// The tensor of an argument; null for None.
graph::Value* optional_value(const graph::Node& node, std::string_view argument);
graph::Value* value_arg(const graph::Node& node, std::string_view argument);
/// Literal arguments; refuse what is no such constant.
int64_t int_arg(const graph::Node& node, std::string_view argument);
bool bool_arg(const graph::Node& node, std::string_view argument);
double number_arg(const graph::Node& node, std::string_view argument);
/// The same as a whole number where the argument is one, of all its 64 bits.
c10::Scalar scalar_arg(const graph::Node& node, std::string_view argument);
c10::Scalar scalar_arg(const graph::Node& node, std::string_view argument, double otherwise);
std::optional<double> optional_number(const graph::Node& node, std::string_view argument);
std::string text_arg(const graph::Node& node, std::string_view argument);
std::vector<int64_t> ints_arg(const graph::Node& node, std::string_view argument);
/// A list of n, of which one entry may stand for all; none for `fallback`.
std::vector<int64_t> ints_arg(const graph::Node& node, std::string_view argument, size_t n,
                              std::vector<int64_t> fallback = {});
/// A size: a number, or one that follows the batch or a free dimension.
graph::SizeExpr size_arg(const graph::Node& node, const graph::Argument& argument);
std::vector<graph::SizeExpr> sizes_arg(const graph::Node& node, std::string_view argument);
/// A dimension of a tensor of this rank, counted from the front.
int64_t dim_arg(const graph::Node& node, std::string_view argument, int64_t rank);
bool has_arg(const graph::Node& node, std::string_view argument);

/// round(x, decimals) as a power of ten: x * power is rounded and divided by it, or x / power is rounded and
/// multiplied.
struct Decimals {
  double power = 1;      ///< 1: x itself is rounded
  bool multiply = true;  ///< first
};
/// Of a call of round; refuses powers that the result's type has not.
Decimals decimals_of(const graph::Node& node);

/// The bounds of relu, relu6, hardtanh, clamp, clamp_min and clamp_max; none where all numbers are within
/// them: a lowest of -inf, a highest of inf. Refuses tensors as bounds.
struct Bounds {
  std::optional<c10::Scalar> low, high;
};
Bounds bounds_of(const graph::Node& node);

/// Refuses a softplus that is another one than log(1 + exp(x)): with a beta, or with a threshold from which
/// on LibTorch's is linear where the rest is not below f32's rounding.
void check_softplus(const graph::Node& node);

/// The type in which two operands are compared, as at::result_type() promotes: tensors without dimensions and
/// numbers count by their category. Truth values are compared as int64.
at::ScalarType common_type(const graph::Node& node);
/// Dimensions of `x` that a reduction names; all where it names none.
std::vector<int64_t> reduced_dims(const graph::Node& node, const graph::Value& x);
/// Where each dimension of the result of transpose, swapdims, t, mT, permute, movedim or moveaxis is in its
/// first argument.
std::vector<int64_t> permuted_dims(const graph::Node& node);

}  // namespace ulp::exchange
