// The executable form of a Graph: dispatcher handles, numbered slots, values freed at their last use.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ulp/graph/conditions.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

class Program {
 public:
  explicit Program(const Graph& graph);

  /// The state of one run.
  struct Frame {
    std::vector<c10::IValue> slots;
    std::vector<c10::IValue> stack;  ///< arguments of the step that runs, then its results
    std::vector<int64_t> sizes;      ///< the batch and the free dimensions
    bool training = false;
  };
  /// Runs steps of a frame, all of them or some.
  using Steps = std::function<void(Frame&)>;

  /// The graph's result. Checks the inputs first.
  c10::IValue run(const std::vector<at::Tensor>& inputs, bool training) const;
  /// The same, where `steps` runs the steps.
  c10::IValue run(const std::vector<at::Tensor>& inputs, bool training, const Steps& steps) const;
  /// Runs `steps` as a run of the graph: errors name the node, and weights are cast once.
  void run_guarded(Frame& frame, const Steps& steps) const;

  // Step by step, for those who run parts of a graph. A step is a call or a module, numbered in order of
  // execution.
  size_t step_count() const { return steps_.size(); }
  size_t slot_count() const { return static_cast<size_t>(slot_count_); }
  const Node& node(size_t step) const { return *steps_[step].node; }
  /// Slots that the step reads, each once, and those of its results.
  std::span<const int32_t> reads(size_t step) const { return steps_[step].reads; }
  std::span<const int32_t> writes(size_t step) const { return steps_[step].slots; }
  /// Parameters, buffers and constants that the step reads.
  std::vector<at::Tensor> attributes_of(size_t step) const;
  /// The slot of a result of a call or of an input.
  int32_t slot_of(const Value* value) const { return slots_.at(value); }
  /// Whether the mode of the frame leaves the step out.
  bool is_left_out(size_t step, const Frame& frame) const {
    return frame.training ? steps_[step].node->eval_only : steps_[step].node->train_only;
  }
  /// The three parts of a step: arguments to frame.stack, the call, results to their slots.
  void load_arguments(size_t step, Frame& frame) const;
  void call(size_t step, Frame& frame) const;
  void store(size_t step, Frame& frame) const { store(steps_[step], frame); }

  /// Throws ulp::Error naming the input that the graph does not take. Gives the batch size, 0 for none, and
  /// the sizes of the free dimensions.
  std::vector<int64_t> check_inputs(const std::vector<at::Tensor>& inputs) const;

 private:
  /// Where an argument comes from.
  struct Source {
    enum class Kind : uint8_t { literal, slot, last_use, attribute, batch, training, by_mode, dtype, items };
    enum class Items : uint8_t { tensors, optional_tensors, integers, list, tuple };
    Kind kind = Kind::literal;
    Items form = Items::list;
    bool inverted = false;
    int32_t index = 0;  ///< of the slot or attribute
    SizeExpr batch;
    c10::IValue literal;
    c10::TypePtr element;       ///< of a list of another kind
    std::vector<Source> items;  ///< by_mode: in eval mode, in train mode; dtype: the value
  };
  struct Step {
    const Node* node = nullptr;
    std::optional<c10::OperatorHandle> op;
    std::optional<c10::OperatorHandle> in_place_op;  ///< of nodes that were in-place ops
    bool on_a_copy =
        false;  ///< in_place_op runs on a copy: the out-of-place form, aten::copy, has no derivative
    bool trusts = false;  ///< LibTorch does not check all arguments
    std::shared_ptr<libtorch::TensorModule> module;
    std::vector<Source> args;
    std::vector<int32_t> slots;  ///< of the outputs
    std::vector<int32_t> reads;  ///< slots of the arguments, each once
    std::vector<int32_t> attributes;
    std::vector<int32_t> unread;  ///< outputs nobody reads
    size_t results = 0;           ///< of the schema
  };
  Source compile(const Argument& arg, const c10::Type* type, const Node* reader);
  void add_read(Step& step, const Value* value) const;
  std::vector<int64_t> sizes_of(const std::vector<at::Tensor>& inputs) const;
  int64_t free_size(const DynamicDimension& free, const std::vector<at::Tensor>& inputs) const;
  c10::IValue load(const Source& source, Frame& frame) const;
  c10::IValue load_items(const Source& source, Frame& frame) const;
  void run_steps(Frame& frame) const;
  void call(const Step& step, Frame& frame) const;
  void check_trusted(const Step& step, const std::vector<c10::IValue>& stack) const;
  void call_in_place(const Step& step, std::vector<c10::IValue>& stack) const;
  void store(const Step& step, Frame& frame) const;

  std::vector<Value> inputs_;  ///< copies, for the checks
  std::vector<int64_t> batch_dims_;
  BatchRange batch_range_;
  std::vector<DynamicDimension> free_;
  std::vector<at::Tensor> attributes_;
  std::vector<Step> steps_;
  Source result_;
  std::map<const Value*, int32_t> slots_, attribute_slots_;
  std::map<const Value*, const Node*> last_reader_;
  int32_t slot_count_ = 0;
  std::vector<Condition> conditions_;
  bool has_autocast_ = false;  ///< some node runs under an autocast guard of the model's own
};

}  // namespace ulp::graph
