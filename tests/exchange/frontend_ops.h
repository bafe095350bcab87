// One list of what a model of LibTorch's C++ frontend may call, with its options drawn: what the engine and
// the writers of files make of each, and what they refuse (every_form_test.cpp).
#pragma once

#include <torch/torch.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "captured_function.h"

namespace ulp::test {

/// A call with options, on an input of which dimension 0 is the batch.
struct FrontendCall {
  std::string words;  ///< "kthvalue(2, 1)"
  std::function<std::vector<at::Tensor>(const at::Tensor&)> body;
  at::Tensor x;
};

/// An op, drawn with options.
struct FrontendOp {
  const char* name;
  FrontendCall (*draw)(Draw& dice);
  /// What cannot have it, of "engine onnx tflite coreml pt2": in no draw.
  const char* none = "";
  /// The same where some draws have options that cannot be had: at most half of them, and at least one.
  const char* some = "";
  /// What is tried with finite numbers alone: where docs/exchange.md says that others differ.
  const char* finite = "";
};

std::span<const FrontendOp> frontend_orders();
std::span<const FrontendOp> frontend_functions();
std::span<const FrontendOp> frontend_moves();
std::span<const FrontendOp> frontend_products();

}  // namespace ulp::test
