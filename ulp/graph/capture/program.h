// The executable form of a Graph: dispatcher handles, numbered slots, values freed at their last use.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::graph {

class Program {
 public:
  explicit Program(const Graph& graph);

  /// The graph's result. Checks the inputs first.
  c10::IValue run(const std::vector<at::Tensor>& inputs, bool training) const;
  /// Throws ulp::Error naming the input that the graph does not take. Gives the batch size, 0 for none, and the sizes of
  /// the free dimensions.
  std::vector<int64_t> check_inputs(const std::vector<at::Tensor>& inputs) const;

 private:
  /// Where an argument comes from.
  struct Source {
    enum class Kind : uint8_t { literal, slot, last_use, attribute, batch, training, by_mode, items };
    enum class Items : uint8_t { tensors, optional_tensors, integers, list, tuple };
    Kind kind = Kind::literal;
    Items form = Items::list;
    bool inverted = false;
    int32_t index = 0;  ///< of the slot or attribute
    SizeExpr batch;
    c10::IValue literal;
    c10::TypePtr element;       ///< of a list of another kind
    std::vector<Source> items;  ///< by_mode: in eval mode, in train mode
  };
  struct Step {
    const Node* node = nullptr;
    std::optional<c10::OperatorHandle> op;
    std::optional<c10::OperatorHandle> in_place_op;  ///< of nodes that were in-place ops
    bool on_a_copy =
        false;  ///< in_place_op runs on a copy: the out-of-place form, aten::copy, has no derivative
    std::shared_ptr<libtorch::TensorModule> module;
    std::vector<Source> args;
    std::vector<int32_t> slots;   ///< of the outputs
    std::vector<int32_t> unread;  ///< outputs nobody reads
    size_t results = 0;           ///< of the schema
  };
  struct Frame;  ///< the state of one run

  Source compile(const Argument& arg, const c10::Type* type, const Node* reader);
  std::vector<int64_t> sizes_of(const std::vector<at::Tensor>& inputs) const;
  int64_t free_size(const FreeDimension& free, const std::vector<at::Tensor>& inputs) const;
  c10::IValue load(const Source& source, Frame& frame) const;
  c10::IValue load_items(const Source& source, Frame& frame) const;
  void run_steps(Frame& frame) const;
  void call(const Step& step, Frame& frame) const;
  void call_in_place(const Step& step, std::vector<c10::IValue>& stack) const;
  void store(const Step& step, Frame& frame) const;

  std::vector<Value> inputs_;  ///< copies, for the checks
  std::vector<int64_t> batch_dims_;
  std::vector<FreeDimension> free_;
  std::vector<at::Tensor> attributes_;
  std::vector<Step> steps_;
  Source result_;
  std::map<const Value*, int32_t> slots_, attribute_slots_;
  std::map<const Value*, const Node*> last_reader_;
  int32_t slot_count_ = 0;
  bool has_autocast_ = false;  ///< some node runs under an autocast guard of the model's own
};

}  // namespace ulp::graph
