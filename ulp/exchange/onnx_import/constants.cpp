#include "ulp/exchange/onnx_import/constants.h"

#include <ATen/record_function.h>
#include <torch/types.h>

namespace ulp::exchange::onnx_import {

namespace {

/// Whether a node is computed before the run, and is the same at all sizes of the inputs.
bool is_constant(Call& call) {
  for (size_t i = 0; i < call.inputs(); ++i) {
    const Slot* input = call.has(i) ? call.run().known(call.name(i), call.node()) : nullptr;
    if (call.has(i) && (input == nullptr || input->sized)) return false;
  }
  return true;
}

}  // namespace

at::Tensor constant_of_node(Call& call, const std::string& ending, const at::Tensor& value) {
  if (is_constant(call)) return value;
  const at::Tensor kept = call.run().store().attribute(call.node().outputs.at(0) + ending,
                                                       graph::Attribute::Kind::buffer, [&] { return value; });
  const at::DisableRecordFunctionGuard beside_the_capture;
  if (!at::equal(kept, value))
    call.refuse("expected the same lengths and places at all sizes of the inputs and in all steps of a loop");
  return kept;
}

}  // namespace ulp::exchange::onnx_import
