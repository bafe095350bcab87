// What all callers of one loaded engine share and nobody changes: the program with its packed constants, and the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/engine/program.h"

namespace ulp::runtime {

class Model {
 public:
  Model(const VerifiedPlan& plan, const EngineOptions& options);

  kernels::Isa isa() const { return isa_; }
  const Program& program() const { return program_; }
  size_t constant_bytes() const { return constant_bytes_; }
  /// The most bytes that one context may take.
  size_t arena_limit() const { return arena_limit_; }
  /// Items whose intermediates fit a worker's cache.
  int64_t largest_slice() const { return largest_slice_; }
  /// Throws ulp::Error for a batch that no memory holds; products of smaller ones do not overflow.
  void check_batch(int64_t batch) const;

 private:
  kernels::Isa isa_;
  size_t arena_limit_;
  Program program_;
  int64_t largest_slice_;
  size_t constant_bytes_ = 0;
};

/// Batches are cut into slices of at least this many items: weights are read once per slice.
inline constexpr int64_t kSmallestSlice = 4;

}  // namespace ulp::runtime
