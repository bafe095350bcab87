// Integers of the graph as ids: inputs of the model as they came, and what other steps made of whole numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/lower/builder.h"

namespace ulp::lowering {

/// Every integer up to here is a number of f32, in which steps compute.
inline constexpr int64_t kExactInFloat = 1 << 24;

/// The dimension of `shape`, the sizes of the node's `self`, that its argument `dim` names. Throws Unsupported for
/// the batch.
int64_t dimension_of(const graph::Node& node, const std::vector<int64_t>& shape);

/// True where the plan holds the value as i32 or i64.
bool holds_integers(Builder& builder, const graph::Node& reader, const graph::Value* value);

/// A tensor of i32 or i64 with the value's integers, which point into `size` rows. Computed ones are counted in
/// f32 inside; throws Unsupported for `reader` where f32 does not hold all integers below `size`, and for a value
/// that holds no integers.
int32_t ids_tensor(Builder& builder, const graph::Node& reader, const graph::Value* value, int64_t size);
/// The same of a view of such a value, laid out in plain order.
int32_t ids_tensor(Builder& builder, const graph::Node& reader, const graph::Value* value,
                   const StridedView& view, int64_t size);

/// The form in which the value is held, in plain order.
Form held_form(Builder& builder, const graph::Node& reader, const graph::Value* value);

/// The numbers of a value in f32; a run with an integer that f32 does not hold is refused.
int32_t exact_numbers(Builder& builder, const graph::Node& reader, const graph::Value* value);
/// Whether the node's first result are integers of 32 or 64 bits.
bool makes_integers(const graph::Node& node);
/// Puts a step behind what was made for the value, integers in f32, that refuses those which f32 may have
/// rounded.
void look_at_integers(Builder& builder, const graph::Node& node, const graph::Value* value);

}  // namespace ulp::lowering
