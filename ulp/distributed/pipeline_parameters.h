// The parameters and buffers of a pipelined model: which stage has which, and those that several have; internal to the
// room.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ulp/distributed/process_group.h"
#include "ulp/distributed/stage_program.h"

namespace ulp::distributed {

class PipelineParameters {
 public:
  PipelineParameters() = default;
  /// All ranks at once, with the programs of all stages. Tensors of several stages become those of the first one.
  PipelineParameters(const std::vector<StageProgram>& programs, ProcessGroup& group);

  /// Parameters of this rank's stage that no stage before it has.
  const std::vector<at::Tensor>& own() const { return own_; }

  /// Takes the gradients of shared parameters away before a step.
  std::vector<at::Tensor> set_gradients_aside();
  /// Behind the step: gives every stage the sum of the stages' gradients, added to what was set aside.
  void add_gradients(const std::vector<at::Tensor>& aside, ProcessGroup& group);

  /// For each stage the names of its tensors that no stage before it has.
  const std::vector<std::vector<std::string>>& names() const { return names_; }
  /// Parameters of several stages, by their names.
  const std::vector<std::string>& shared_names() const { return shared_names_; }

 private:
  /// A parameter of several stages.
  struct Shared {
    at::Tensor tensor;         ///< undefined where this stage has none
    at::Tensor gradient_like;  ///< without memory: sizes, type
    at::Device device = at::kCPU;
  };
  std::vector<at::Tensor> own_;
  std::vector<Shared> shared_;
  std::vector<std::vector<std::string>> names_;
  std::vector<std::string> shared_names_;
};

}  // namespace ulp::distributed
