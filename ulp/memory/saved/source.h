// Where the backward pass gets a value from: one that was held, or one that is computed again when it is
// asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ulp/memory/saved/packed.h"

namespace ulp::memory {

/// A value that those who registered may take. Its memory is freed when each of them has taken it or is gone,
/// where it can be had again.
class Source {
 public:
  virtual ~Source() = default;
  virtual void add_user(const void*) {}
  virtual void remove_user(const void*) {}
  virtual at::Tensor take(const void* user) = 0;
};

/// One who registered.
class SourceUse {
 public:
  explicit SourceUse(std::shared_ptr<Source> source) : source_(std::move(source)) { source_->add_user(this); }
  ~SourceUse() { source_->remove_user(this); }
  SourceUse(const SourceUse&) = delete;
  SourceUse& operator=(const SourceUse&) = delete;
  at::Tensor take() { return source_->take(this); }
  const std::shared_ptr<Source>& source() const { return source_; }

 private:
  std::shared_ptr<Source> source_;
};

/// Packed tensors that the backward pass wants at about the same time.
struct PackedBatch {
  std::weak_ptr<PackedBatch> earlier;  ///< of the forward pass: wanted next
  std::vector<std::weak_ptr<Packed>> members;
  std::atomic<bool> asked{false};
  /// One of them is wanted: announces them and those of the earlier batch.
  void ask();
};

/// Holds a tensor, as it is or packed. Who writes to it in the meantime is told so.
class HeldSource final : public Source {
 public:
  explicit HeldSource(const at::Tensor& tensor);
  /// Throws ulp::Error when the tensor was written to.
  at::Tensor take(const void* user) override;
  const at::Tensor& tensor() const { return tensor_; }
  /// Gives up the tensor for its packed form.
  void pack(std::shared_ptr<Packed> packed, std::shared_ptr<PackedBatch> batch);

 private:
  at::Tensor tensor_;
  int64_t version_;
  std::mutex mutex_;
  std::shared_ptr<Packed> packed_;
  std::shared_ptr<PackedBatch> batch_;
  c10::weak_intrusive_ptr<c10::StorageImpl> last_;  ///< what was unpacked, as long as someone has it
};

/// A part of a forward pass that can be run again.
class Replayable {
 public:
  virtual ~Replayable() = default;
  /// Fills every source of this part that is alive and empty. Under `mutex`.
  virtual void replay() = 0;
  std::recursive_mutex mutex;
};

/// A value that `owner` computes again.
class DerivedSource final : public Source {
 public:
  DerivedSource(std::shared_ptr<Replayable> owner, const at::Tensor& seen);
  void add_user(const void* user) override;
  void remove_user(const void* user) override;
  /// Throws ulp::Error where the replay did not come to it.
  at::Tensor take(const void* user) override;
  bool filled() const { return filled_.defined(); }
  /// By a replay. Throws ulp::Error unless it is of the sizes and the type of the first time.
  void fill(const at::Tensor& tensor);

 private:
  std::shared_ptr<Replayable> owner_;
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_;
  at::Tensor filled_;
  std::vector<const void*> users_, waiting_;  ///< all, and those who have not taken what is there
};

}  // namespace ulp::memory
