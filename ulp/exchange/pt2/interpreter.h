// One run of a program by LibTorch's operators: under capture it makes our graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ulp/exchange/pt2/arguments.h"
#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// A function of numbers as a run has computed it.
struct NumberCall {
  std::string label, target;
  std::vector<c10::IValue> arguments;
  c10::IValue result;
};

class Interpreter {
 public:
  /// `tensors` are those of the program, in its order. `most_bytes` bounds the values of the run.
  Interpreter(const Program& program, const std::vector<std::pair<std::string, graph::Attribute>>& tensors,
              bool training, int64_t most_bytes);

  /// forward() adds the calls of functions of numbers whose values are needed (needed_numbers()), in order,
  /// and makes none of the program's updates when it ends. `before_write` is shown each tensor that a call
  /// says it writes to.
  void record(std::vector<NumberCall>& calls, std::function<void(const at::Tensor&)> before_write) {
    calls_ = &calls;
    before_write_ = std::move(before_write);
  }

  /// The results in order. Throws FileError that names the node.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);

 private:
  void run(const ProgramGraph& graph, Values& values, int depth);
  void evaluate(const ProgramNode& node, Values& values, int depth);
  bool makes_needed(const ProgramNode& node) const;
  void call(const ProgramNode& node, Values& values);
  void check_sizes(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments,
                   const ProgramNode& node, const Values& values) const;
  void follow(const ProgramNode& node, bool is_random);
  void show_written(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) const;
  void call_without_gradients(const ProgramNode& node, Values& values, int depth);
  c10::IValue argument(const ProgramNode& node, const c10::Argument& wanted, const Values& values) const;
  void keep(const ProgramNode& node, const std::vector<c10::IValue>& results, Values& values);
  void set(const std::string& name, const c10::IValue& value, Values& values);
  void update(const Values& values);

  const Program& program_;
  const std::vector<std::pair<std::string, graph::Attribute>>& tensors_;
  bool training_;
  int64_t most_bytes_;
  double bytes_ = 0;
  size_t nodes_ = 0;
  std::vector<NumberCall>* calls_ = nullptr;
  std::function<void(const at::Tensor&)> before_write_ = {};
  std::set<std::string> needed_ = {};  // of the graph that runs, where calls are recorded
  std::set<std::string> data_ =
      {};               // tensors that follow inputs, parameters, updated buffers, random numbers
  int64_t listed_ = 0;  // tensors in lists, of which a graph needs about as many as nodes
};

}  // namespace ulp::exchange::pt2
