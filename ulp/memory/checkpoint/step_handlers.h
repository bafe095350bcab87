// What becomes of the tensors that autograd saves during one step, in the forward pass and in a replay.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ulp/graph/capture/program.h"
#include "ulp/memory/saved/modes.h"
#include "ulp/memory/saved/saved_part.h"

namespace ulp::memory {

class Record;

/// In the forward pass: finds out which values of the graph a step saves, and what else.
class ForwardStep final : public SaveHandler {
 public:
  ForwardStep(Record& record, size_t step, const graph::Program::Frame& frame);
  std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) override;
  /// Behind the step: what was saved may be a result.
  void finish(const graph::Program::Frame& frame);
  const std::vector<at::Tensor>& arguments() const { return arguments_; }

 private:
  struct Pending {
    std::shared_ptr<SavedPart> saved;
    at::Tensor tensor;
    size_t number;
  };
  void note_mask(const std::shared_ptr<SavedPart>& part, int32_t slot, bool is_result);
  Record& record_;
  size_t step_, count_ = 0;
  std::vector<int32_t> slots_;
  std::vector<at::Tensor> arguments_;  ///< of the slots
  std::vector<at::Tensor> attributes_;
  std::vector<Pending> pending_;
};

/// In a replay: gives what is saved to those who wait for it and forgets the rest.
class ReplayStep final : public SaveHandler {
 public:
  /// Throws EnoughSaved behind `stop_after` saved tensors; never where it is negative.
  ReplayStep(Record& record, size_t step, int64_t stop_after)
      : record_(record), step_(step), stop_after_(stop_after) {}
  std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) override;

 private:
  Record& record_;
  size_t step_, count_ = 0;
  int64_t stop_after_;
};

/// Gives the generators of these states back what they have now.
class RandomGuards {
 public:
  explicit RandomGuards(const std::map<size_t, RandomState>& states);
  ~RandomGuards();
  RandomGuards(const RandomGuards&) = delete;
  RandomGuards& operator=(const RandomGuards&) = delete;

 private:
  std::vector<RandomState> before_;
};

/// Puts copies in the place of the statistics that a call would write once more.
void protect_statistics(const graph::Node& node, graph::Program::Frame& frame);

}  // namespace ulp::memory
