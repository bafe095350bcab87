// Reports what works with a captured model (training, quantization, engines, pruning, files for other
// runtimes), and what stops it where: before one has walked it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp {

/// A step of the road.
struct RoadGoal {
  std::string name;  ///< "train:bf16", "engine", "int8", "onnx"
  std::string what;  ///< in a few words
};

/// Every goal, in the order of the road:
///
/// | goals | what is tried |
/// |---|---|
/// | run | the model in eval mode; its results must be finite |
/// | train:PRECISION | forward, backward and one step of the optimizer in each of amp::precisions() that the CPU has |
/// | engine, engine:bf16 | lower() and a run; in fp32 the results must be the model's |
/// | pieces | lower_partitioned() and a run: engines for what they have, LibTorch for the rest |
/// | int8, dynamic, weight_only, weight_only:4 | the model quantized statically, dynamically and in its weights (8 and 4 bits) as an engine |
/// | qat | quantization-aware training: a step, the quantized model, its engine |
/// | prune | prune_channels() of 30 %: the smaller network computes what the zeroed one does |
/// | distill | a step of a student, a copy of the model, that learns from the model |
/// | onnx, onnx_qdq, tflite, tflite_int8, coreml, pt2 | the bytes of the file; *_qdq and *_int8 of the model quantized statically |
ULP_API std::vector<RoadGoal> road_goals();

/// A node that stands in the way.
struct NodeLocation {
  std::string op;      ///< "aten::renorm"; empty where the refusal does not say it
  std::string node;    ///< its name in the graph
  std::string module;  ///< the module's path; empty where it is not known
  bool operator==(const NodeLocation&) const = default;
};

/// The result of one goal.
struct RoadStep {
  std::string goal;  ///< RoadGoal::name
  std::string what;  ///< RoadGoal::what
  bool works = false;
  std::string says;                    ///< what came out, or the text of the refusal
  std::vector<NodeLocation> stops;     ///< the nodes that the refusal names; none where it works
  std::vector<std::string> left = {};  ///< where it works in part: what stays as it is, and why
};

/// The page.
struct ULP_API RoadReport {
  std::vector<std::string> inputs;   ///< "x f32[N, 3, 32, 32]"
  std::vector<std::string> results;  ///< the same
  int64_t nodes = 0;                 ///< calls of the graph
  int64_t parameters = 0;            ///< elements
  std::vector<RoadStep> steps;       ///< in the order of the road

  /// Null where the goal was not tried.
  const RoadStep* find(std::string_view goal) const;
  /// True where all that was tried works.
  bool works() const;
  /// {"model": {...}, "steps": [{"goal": "onnx", "what": ..., "works": true, "says": ..., "stops": [{"op":
  /// ..., "node": ..., "module": ...}], "left": [...]}]}. Bytes that are no UTF-8 become U+FFFD.
  std::string to_json() const;
};

/// The page as text: a line for each goal, and below it what stops it or stays as it is.
ULP_API std::ostream& operator<<(std::ostream& out, const RoadReport& report);

/// Options: facts that the report cannot see for itself.
struct RoadOptions {
  /// Names of road_goals() that are tried; empty: all of them. '*' is any run of characters, and "train" is
  /// train:fp32.
  std::vector<std::string> goals = {};
  /// Inputs that the model runs on; empty: random numbers of its sizes, with ids of its tables.
  std::vector<at::Tensor> inputs = {};
  int64_t batch = 2;  ///< of inputs that are made
  /// Called before each goal with its name, how many are done and how many there are, and once behind the
  /// last one without a name.
  std::function<void(const std::string& goal, int64_t done, int64_t total)> progress = {};
};

/// The goals of these names, each once and in the order of the road. Throws ulp::Error for an unknown one,
/// with the nearest.
ULP_API std::vector<RoadGoal> road_goals(const std::vector<std::string>& names);

/// Tries each goal on a copy of the model, on the CPU: nothing is looked up in a table. The model stays as it
/// is, and so does the state of the default generator. A step that fails is a step that says so; this throws
/// ulp::Error only for an unknown goal, for inputs that the model does not take, and Interrupted on Ctrl-C.
/// (A function and no member of GraphModule, for it calls everything that is built upon graphs.)
ULP_API RoadReport road_report(const graph::GraphModule& model, const RoadOptions& options = {});

}  // namespace ulp
