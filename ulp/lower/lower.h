// Graph -> runtime plan: the only bridge between the library that trains and the library that runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp {
class FieldVisitor;
namespace graph {
class GraphModule;
}

/// How a graph becomes a plan. Defaults give a plan whose results are the graph's own, in f32.
struct ULP_API LowerOptions {
  /// Arithmetic of a float graph. A graph with ulp::quantize and ulp::dequantize nodes says itself where it
  /// is 8-bit; what is float in it runs in this precision.
  enum class Precision : uint8_t { f32, bf16 };
  Precision precision = Precision::f32;
  /// A free dimension along which runs of one context continue each other: the length of texts of a network that writes
  /// them token by token. The plan then runs any number of new tokens and keeps the keys and values of those before
  /// (runtime::Context::position). The network must look back only: its attention is causal, everything else works on
  /// each position by itself, and what depends on the position is a table by it. Empty: each run stands alone.
  std::string continued = {};
  /// Copied into the plan ("source", "recipe", ...); lower() adds "precision".
  std::map<std::string, std::string> metadata = {};

  /// What a user chooses: the precision, and along what runs continue each other.
  void visit_fields(FieldVisitor& visitor);
};

template <>
struct EnumNames<LowerOptions::Precision> {
  using enum LowerOptions::Precision;
  static constexpr std::array<Word<LowerOptions::Precision>, 2> list = {{{f32, "fp32"}, {bf16, "bf16"}}};
};

/// Lowers the model as it behaves in eval mode; the model itself is not changed. Batch norm is folded, bias,
/// residual add and relu / relu6 become part of the convolution or linear layer before them, images are NHWC
/// inside, inputs (f32, ids in i32 or i64, truth values and uint8 in u8 of scale 1) and outputs (f32) are in
/// plain (NCHW) order with the batch where the model has it; rows that are batch x time stay such rows
/// (TensorInfo::times). Steps compute in f32: float64 is refused, and so are integers beyond 2^24 that the
/// graph holds; those that come from inputs stop a run by name, those that arise in sums and products lose
/// their last digits. Constants carry the parameters' names. Throws ulp::Error that lists what has no
/// lowering: each op and reason once, with the first node's name and module path; lower_partitioned()
/// (pieces.h) runs such nodes in LibTorch. `report`, if given, receives what became one step (changes) and
/// what follows a step and could not become part of it (near misses). Its parts are the reports of the passes
/// before. When lower() throws, it holds what was found until then.
ULP_API runtime::Plan lower(graph::GraphModule& model, const LowerOptions& options = {},
                            graph::PassReport* report = nullptr);

/// The same; the examples' sizes take the place of the captured ones (the batch stays free).
ULP_API runtime::Plan lower(const std::shared_ptr<graph::GraphModule>& model,
                            const std::vector<at::Tensor>& examples, const LowerOptions& options = {},
                            graph::PassReport* report = nullptr);

}  // namespace ulp
