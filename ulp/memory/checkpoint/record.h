// One segment of one forward pass: what it saved for the backward pass, and doing its work again when that is
// asked for.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ulp/memory/checkpoint/run.h"
#include "ulp/memory/saved/geometry.h"
#include "ulp/memory/saved/save_scope.h"
#include "ulp/memory/saved/source.h"

namespace ulp::memory {

/// Lives as long as the autograd graph has a tensor that it stands for.
class Record final : public Replayable, public std::enable_shared_from_this<Record> {
 public:
  Record(std::shared_ptr<Run> run, size_t region, std::shared_ptr<Record> parent);

  /// Takes hold of what the segment reads. Before its first step.
  void enter(const graph::Program::Frame& frame);
  /// Runs a step of the forward pass.
  void run_step(size_t step, graph::Program::Frame& frame);
  /// Gives up what no replay needs. Behind its last step.
  void leave();
  void replay() override;

  size_t end() const { return region().end; }

  // For the handlers of one step.
  Run& run() { return *run_; }
  const Layout& layout() const { return *run_->layout; }
  std::shared_ptr<Source> value(int32_t slot, const at::Tensor& seen);
  std::shared_ptr<Source> inner(size_t step, size_t number, const at::Tensor& seen);
  /// The source of what a step saves beside values, if the backward pass still waits for it; else null.
  std::shared_ptr<DerivedSource> wanted_inner(size_t step, size_t number) const;

 private:
  using Frame = graph::Program::Frame;
  /// The steps that a replay must do.
  struct Needs {
    std::vector<char> results;   ///< of each step of the region: its results
    std::vector<int64_t> inner;  ///< of each step of the region: how many of what it saves, 0 for none
    std::map<int32_t, size_t> last_reader;  ///< of each slot that is read
    std::vector<int32_t> outside;           ///< slots that are read and not computed
    bool random = false;
  };
  const Region& region() const { return run_->layout->regions[region_]; }
  bool is_outside(int32_t slot) const;
  void note_random(size_t step, const RandomState& state);
  void keep(int32_t slot, const at::Tensor& tensor);
  Needs needs() const;
  void add_results(Needs& needs, size_t step) const;
  void add_arguments(Needs& needs, size_t step) const;
  void check_unchanged() const;
  void replay_step(size_t step, Frame& frame, const Needs& needs);
  void fill_values(size_t step, const Frame& frame);

  std::shared_ptr<Run> run_;
  size_t region_;
  std::shared_ptr<Record> parent_;                         ///< until leave()
  std::map<int32_t, std::unique_ptr<SourceUse>> outside_;  ///< by slot: what it reads, and what it keeps
  std::map<int32_t, std::weak_ptr<DerivedSource>> values_;
  std::map<std::pair<size_t, size_t>, std::weak_ptr<DerivedSource>> inner_;
  std::map<size_t, RandomState> random_;  ///< before each step that draws
  std::vector<int64_t> versions_;         ///< of the region's attributes
};

}  // namespace ulp::memory
