// Reading a node's arguments, and what a node that cannot be lowered throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// Why a node has no lowering; the driver gathers them all into one error.
struct Unsupported {
  const graph::Node* node;
  std::string reason;
};

template <typename... Parts>
[[noreturn]] void unsupported(const graph::Node& node, const Parts&... parts) {
  throw Unsupported{&node, concatenate(parts...)};
}

/// True when a call has an argument of this schema name.
bool has_arg(const graph::Node& node, std::string_view name);
/// Numbers of a literal argument; throw Unsupported for another kind.
int64_t int_arg(const graph::Node& node, std::string_view name);
bool bool_arg(const graph::Node& node, std::string_view name);
/// Absent when the argument is None.
std::optional<double> number_arg(const graph::Node& node, std::string_view name);
std::vector<int64_t> ints_arg(const graph::Node& node, std::string_view name);
/// A pair (h, w) of a list of one or two numbers; `fallback` takes the place of an empty list.
struct Pair {
  int64_t h, w;
};
Pair pair_arg(const graph::Node& node, std::string_view name, std::optional<Pair> fallback = {});
runtime::Window make_window(Pair kernel, Pair stride, Pair pad, Pair dilation);
/// The value an argument reads; throws Unsupported when it is none.
graph::Value* value_arg(const graph::Node& node, std::string_view name);

/// Sizes of a value with kBatch for the batch, and for a dimension 0 that is rows of it (TensorInfo::times),
/// each of which is an item to the step that reads it; throws Unsupported when the batch is anywhere but in
/// dimension 0.
std::vector<int64_t> shape_of(const graph::Node& node, const graph::Value& value);
/// The same of a value that may have the batch as any dimension; throws Unsupported when it has none, or it is part of
/// another.
std::vector<int64_t> caller_shape_of(const graph::Node& node, const graph::Value& value);

/// Whether both values have known sizes, the same ones.
bool same_sizes(const graph::Value& a, const graph::Value& b);

/// An op that gives back its input when inferring: dropout, contiguous, clone, detach, a cast to the same
/// type, a reshape or a slice to the same sizes.
bool is_identity(const graph::Node& node);
/// A reshape of any spelling to [N, product of the rest].
bool is_flatten(const graph::Node& node);

}  // namespace ulp::lowering
