// The model's inputs and results: tensors of the plan that the caller sees, with the batch where the model has it.
#pragma once

#include "ulp/lower/builder.h"

namespace ulp::lowering {

/// Adds an input of the graph to the plan. Where the batch is not its dimension 0, a step puts it there, and the value
/// is a view of that. Throws Unsupported for a type or sizes that no plan takes.
void add_input(Builder& builder, const graph::Value* input);

/// Adds a result to the plan: codes leave as codes, integers as integers, everything else as f32, in plain order. What
/// the caller gave, or is given already, is copied. Throws Unsupported for `reader` as Builder::as() does.
void add_output(Builder& builder, const graph::Node& reader, const graph::Value* result);

}  // namespace ulp::lowering
