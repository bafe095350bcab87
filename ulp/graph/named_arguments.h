// Arguments of a call by the names that its schema has for them.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>

namespace ulp::graph {

/// None for those that the operator has not.
class NamedArguments {
 public:
  NamedArguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}
  const c10::FunctionSchema& schema() const { return schema_; }
  c10::IValue operator[](const char* name) const {
    const std::optional<int> place = schema_.argumentIndexWithName(name);
    return place ? stack_.at(static_cast<size_t>(*place)) : c10::IValue();
  }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

}  // namespace ulp::graph
