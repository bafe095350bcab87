// Cutting a convolution into tasks and preparing the input of each; internal to the room.
#pragma once

#include "ulp/kernels/conv/staging.h"
#include "ulp/kernels/conv/work_split.h"

namespace ulp::kernels {

class ConvTasks {
 public:
  /// `tile`: the pixels that a kernel takes at a time; `grain`: tasks of a flat layer have a multiple of this.
  ConvTasks(const ConvShape& shape, const Staging& staging, int64_t tile, int64_t grain);

  const Staging& staging() const { return staging_; }
  int64_t stage_bytes() const;  ///< of the prepared input of a task

  /// `panels` of a group and the bytes of all packed weights; `speed`: multiply-adds a kernel does while a
  /// tile kernel does one.
  WorkSplit split(int64_t batch, int64_t panels, int64_t weight_bytes, double speed, int workers) const;
  /// Prepares the input of a task in `buffer`, or points into x where nothing has to change.
  PixelRows stage(const void* x, const WorkSplit::Task& task, uint8_t* buffer) const;

 private:
  ConvShape shape_;
  bool flat_;  // the whole batch is one row
  Staging staging_;
  int64_t grain_;
  int64_t cache_rows_;  // output rows of a task at the most; of a flat layer pixels
};

}  // namespace ulp::kernels
