// A tensor in the format and at the place that SavedOptions ask for.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "ulp/formats/random_bits.h"
#include "ulp/memory/saved/packed_bits.h"
#include "ulp/memory/saved/saved_options.h"
#include "ulp/memory/saved/spill_file.h"

namespace ulp::memory {

/// The bytes of a tensor at some place.
class Stored {
 public:
  virtual ~Stored() = default;
  virtual at::Tensor get() = 0;
  virtual void announce() {}
};

/// Makes Stored and Packed as options ask. One for all runs of a module.
class Packer {
 public:
  /// Throws ulp::Error as SavedOptions::validate() and SpillFile::open() do.
  explicit Packer(SavedOptions options, std::shared_ptr<std::atomic<uint64_t>> draws = {});

  const SavedOptions& options() const { return options_; }
  std::unique_ptr<Stored> store(at::Tensor dense);
  /// The key of the next tensor that is rounded stochastically.
  formats::RandomKey next_key() { return {options_.seed, (*draws_)++}; }

 private:
  SavedOptions options_;
  std::shared_ptr<SpillFile> file_;
  std::shared_ptr<std::atomic<uint64_t>> draws_;  ///< CheckpointPlan::draws
};

/// Gives back a tensor of the same sizes, strides, type and device.
class Packed {
 public:
  /// In `format`; null where the tensor stays as it is: too small, not dense, integers that stay in memory.
  /// Formats but bf16 are for tensors on the CPU.
  static std::shared_ptr<Packed> of(const at::Tensor& tensor, SavedFormat format, Packer& packer);
  /// As bits that the caller made.
  static std::shared_ptr<Packed> of(const at::Tensor& tensor, BitCodes codes, Packer& packer);
  at::Tensor unpack();
  /// The tensor over the memory of one that was unpacked before.
  at::Tensor over(c10::Storage storage) const;
  void announce();

 private:
  explicit Packed(const at::Tensor& like);
  using Decode = std::function<void(const std::vector<at::Tensor>& parts, at::Tensor& result)>;
  std::vector<int64_t> sizes_, strides_;
  at::TensorOptions options_;
  std::vector<std::unique_ptr<Stored>> parts_;
  Decode decode_;  ///< empty: the one part is the tensor
};

}  // namespace ulp::memory
