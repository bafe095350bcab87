// What a user does with a network, stage by stage, and whether it works.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "networks.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

/// In the order in which they build on each other.
enum class Stage : uint8_t {
  captured,       ///< in eval mode the graph gives the model's bits, at two batch sizes
  trains,         ///< so it does in train mode, with gradients and buffers, from one random state
  bf16_training,  ///< one step under autocast gives a finite loss, finite gradients and other weights
  static_int8,    ///< prepare, calibration and convert give a model with numbers near the graph's
  dynamic,        ///< the same of quantize_dynamic
  weight_only,    ///< the same of quantize_weights, 8 bits
  engine_fp32,    ///< lowered, an engine gives the graph's numbers within rounding, at three batch sizes
  engine_bf16,    ///< the same in bf16, by the ratio of signal to noise
  engine_int8,    ///< the same of the statically quantized graph
  pieces_fp32,    ///< engines for what they have, LibTorch for the rest, at three batch sizes
  pieces_int8,    ///< the same of the statically quantized graph
  qat,  ///< two steps of quantized training; eval mode gives the converted graph's numbers, its engine, too
  cut,  ///< without 30 % of its channels it computes what it does with them zeroed; an engine of it does, too
  distilled,  ///< a student's loss and gradients are those that LibTorch computes, and a step moves it
  onnx,       ///< written and read back, the numbers agree at three batch sizes
  pt2         ///< written and read back, the bits agree
};
inline constexpr std::array<const char*, 16> kStageNames = {
    "captured",    "trains",      "bf16_training", "static_int8", "dynamic",     "weight_only",
    "engine_fp32", "engine_bf16", "engine_int8",   "pieces_fp32", "pieces_int8", "qat",
    "cut",         "distilled",   "onnx",          "pt2"};

/// How a stage ended.
struct StageResult {
  enum class Kind : uint8_t { works, has_no_such_layer, fails };
  Kind kind = Kind::works;
  std::string message;  ///< of a failure: the library's, or what differs
};

/// One network on its way through the stages. What a stage needs is made once.
class Subject {
 public:
  explicit Subject(const Network& network);
  /// Never throws; a stage whose preconditions fail gives their message.
  StageResult run(Stage stage);

  /// The captured model in eval mode. Throws where capture does.
  graph::GraphModule& graph();
  /// The graph in static int8, calibrated with random inputs. Throws where capture and quantization do.
  std::shared_ptr<graph::GraphModule> quantized();
  /// Inputs of this batch size; the same for the same seed.
  std::vector<torch::Tensor> draw(int64_t batch, uint64_t seed) const;

 private:
  void attempt(Stage stage);
  void compare_with_model(bool training);
  void train_in_bf16();
  void expect_near(graph::GraphModule& approximation);
  void run_engine_of(graph::GraphModule& module, Stage stage);
  void run_pieces_of(graph::GraphModule& module, double floor_db);
  void train_quantized();
  void cut_channels();
  void teach_student();
  void write_onnx();
  void write_pt2();
  /// Results of both at three batch sizes are `floor_db` apart, or have the same bits where it is infinite.
  void compare_graphs(graph::GraphModule& want, graph::GraphModule& got, double floor_db);

  const Network& network_;
  Instance model_;
  std::shared_ptr<graph::GraphModule> graph_, quantized_;
  std::string capture_error_, quantize_error_;
  bool lowers_ = false;  ///< Stage::engine_fp32 works
};

}  // namespace ulp::test
