// A torch::nn::Module that runs a Graph: optimizers, autograd, autocast and state_dict names keep working.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/capture/tensors.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

class Executor;
class Program;

/// Registers the graph's parameters, buffers and submodules under their own dotted names (as nested modules,
/// in the model's order) and runs the nodes through the dispatcher. Tensors are shared with the captured
/// model.
class ULP_API GraphModule : public torch::nn::Module {
 public:
  /// `notes`: what notes() says.
  explicit GraphModule(std::shared_ptr<Graph> graph, std::vector<std::string> notes = {});
  ~GraphModule() override;

  const Graph& graph() const { return *graph_; }
  /// For passes; call recompile() after editing.
  Graph& graph() { return *graph_; }
  /// Checks the graph and rebuilds the executable form and the registrations.
  void recompile();

  /// Where the graph is not the model in everything, one sentence each: what capture changed on purpose.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Throws ulp::Error, as run() does, for inputs that the graph does not take.
  void check_inputs(const std::vector<at::Tensor>& inputs) const;
  /// The model's result as it returned it: a tensor, a list or a tuple; a struct or a map is a tuple of pairs
  /// (name, value). Inputs in the captured order. Throws ulp::Error on a wrong count, dtype kind or rank, on
  /// batch sizes that disagree, or on sizes other than the captured ones.
  c10::IValue run(const std::vector<at::Tensor>& inputs);
  /// The result when it is one tensor; throws ulp::Error when it is not.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);
  at::Tensor forward(const at::Tensor& input) { return forward(std::vector<at::Tensor>{input}); }
  /// Takes inputs and gives the result as types made of tensors (ulp/graph/capture/tensors.h): structs, maps,
  /// tuples, lists. Values with names go to the inputs of these names, others by their order. Throws
  /// ulp::Error as run() does, for other names of inputs, and naming the part of the result that Result has
  /// otherwise.
  template <MadeOfTensors Result = at::Tensor, MadeOfTensors Inputs>
  Result call(const Inputs& inputs) {
    return TensorsOf<Result>::unpack(run(arrange(TensorsOf<Inputs>::pack(inputs))), "the result");
  }
  /// All result tensors, flattened in order.
  std::vector<at::Tensor> forward_all(const std::vector<at::Tensor>& inputs);

  /// From now on `executor` runs the graph, also after recompile(); null runs it node after node again.
  /// Throws what the executor throws for a graph that it cannot run.
  void run_with(std::shared_ptr<Executor> executor);

  /// As torch::nn::Module::to; constants of the graph and devices written in its calls move along.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  void register_tensors();
  /// The tensors of a packed value in the order of the graph's inputs.
  std::vector<at::Tensor> arrange(const c10::IValue& inputs) const;
  void move_constants(std::optional<torch::Device> device, std::optional<torch::Dtype> dtype);
  /// Where parameters of 16 bits become wider, their type in arguments and of values does, too.
  void widen_types(torch::Dtype to);
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Executor> executor_;
  std::vector<std::string> notes_;
};

/// The node that a GraphModule is running on this thread, for callbacks of at::RecordFunction that want to
/// know where in a model they are; null outside. Valid as long as the graph is not edited.
ULP_API const Node* running_node();

}  // namespace ulp::graph
