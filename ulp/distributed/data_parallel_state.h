// What DataParallel holds; internal to the room.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ulp/distributed/bucket.h"
#include "ulp/distributed/data_parallel.h"
#include "ulp/distributed/gradient_hooks.h"
#include "ulp/distributed/parameter_units.h"

namespace ulp::distributed {

struct DataParallel::State {
  std::shared_ptr<ProcessGroup> group;
  DataParallelOptions options;
  torch::nn::Module& model;
  std::vector<at::Tensor> parameters;  ///< that require gradients, each once
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::unique_ptr<ParameterUnits> units;  ///< ZeroStage::parameters
  bool shares_gradients() const { return options.zero >= ZeroStage::gradients; }
  std::vector<bool> used;  ///< each parameter: some rank used it since this was cleared

  State(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options);

  /// Backward has accumulated into the gradient of parameter `index`.
  void ready(size_t index);
  /// At the end of backward: reduces what is left and waits for all.
  void finish();

  bool sync = true;

 private:
  struct Place {
    size_t bucket, slot;
  };
  void launch_full_buckets();
  void take_unused();
  std::vector<bool> used_anywhere();

  std::mutex mutex_;             // backward runs on a thread of its own for each device
  std::vector<Place> places_;    // of each parameter
  std::vector<bool> taken_;      // each parameter: its gradient is in its bucket
  std::vector<size_t> missing_;  // each bucket: parameters that are not
  size_t next_ = 0;              // the bucket to be launched next: all ranks launch them in the same order
  bool running_ = false;         // finish() will be called
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace ulp::distributed
