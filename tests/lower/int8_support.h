// Comparing an engine's steps with the graph they came from.
#pragma once

#include <torch/torch.h>

#include <string>

#include "support.h"

namespace ulp::test {

const runtime::TensorInfo& info(const runtime::Plan& plan, int32_t tensor);

/// How far two tensors are apart, in units of `step`.
struct Distance {
  int64_t elements = 0, different = 0;
  double largest = 0;
  void add(const at::Tensor& a, const at::Tensor& b, double step);
  double share() const { return static_cast<double>(different) / static_cast<double>(elements); }
};

/// One step of a float result: its input's scale times its largest weight scale.
double step_of_sum(const runtime::Plan& plan, const runtime::Step& step);

/// Runs each step of the plan by itself on what the graph has at its inputs, so that one step's rounding does
/// not hide another's error, and expects the graph's values: results of 8-bit layers, and codes, within one
/// step and in all but 0.1 % of the elements (means: all of them; interpolated values, whose ties float32 rounding
/// decides in the graph: within one step), float results within rounding. Attention of floats and its mask have no
/// single value of the graph to compare with. Returns the largest share of elements that differ, and where.
std::string expect_steps_as_graph(const graph::GraphModule& module, const runtime::Plan& plan,
                                  const at::Tensor& input);

}  // namespace ulp::test
