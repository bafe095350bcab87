// A plan laid over the steps of a program: who belongs to which segment, what is kept, what must not run
// twice.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ulp/graph/capture/program.h"
#include "ulp/memory/checkpoint/mask_rule.h"
#include "ulp/memory/checkpoint/plan.h"
#include "ulp/memory/saved/packed.h"

namespace ulp::memory {

/// A segment by its steps.
struct Region {
  size_t begin = 0, end = 0;                ///< `end` is behind it
  int32_t parent = -1;                      ///< the region around it
  bool replays = true;                      ///< false: all of the graph, whose tensors are packed
  std::vector<int32_t> inputs = {};         ///< slots that it reads and others made
  std::vector<at::Tensor> attributes = {};  ///< that it reads and the graph does not write
};

/// Arguments that a call writes what it saw of its inputs to, and does not read for its result: running
/// statistics of
/// norms, magnitudes for the scales of fp8 layers.
std::vector<size_t> statistics_of(const graph::Node& node);

/// What a run and its replays need to know of graph and plan.
struct Layout {
  /// Throws ulp::Error for a plan of another graph, and naming a call that changes values in a segment.
  Layout(std::shared_ptr<const graph::Graph> graph, std::shared_ptr<const graph::Program> program,
         const CheckpointPlan& plan, std::shared_ptr<Packer> packer);

  std::shared_ptr<const graph::Graph> graph;
  std::shared_ptr<const graph::Program> program;
  std::vector<Region> regions;                 ///< in order of their beginnings, outer ones first
  std::vector<int64_t> made_by;                ///< of each slot the step; -1 for inputs of the graph
  std::vector<char> kept;                      ///< of each slot: stays in memory where it is needed
  std::vector<char> kept_inner;                ///< of each step
  std::vector<char> random;                    ///< of each step
  std::vector<char> updates_statistics;        ///< of each step: a call that writes some
  std::vector<std::optional<MaskRule>> masks;  ///< of each step
  std::vector<size_t> last_reader;   ///< of each slot the step; the number of steps for results of the graph
  std::vector<SavedFormat> formats;  ///< of each slot
  std::shared_ptr<Packer> packer;    ///< null where everything stays as it is
  std::atomic<bool> stale{false};    ///< the graph was compiled again

 private:
  void add_regions(const CheckpointPlan& plan);
  void find_effects();
  void find_formats(const CheckpointPlan& plan);
  void find_last_readers();
  void find_inputs(Region& region) const;
  bool in_region(size_t step) const;
  void keep_all_of(size_t step);
};

}  // namespace ulp::memory
