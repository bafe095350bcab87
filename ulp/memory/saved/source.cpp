#include "ulp/memory/saved/source.h"

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::memory {
namespace {

/// Tensors made in inference mode count no versions.
int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

}  // namespace

void PackedBatch::ask() {
  if (asked.exchange(true)) return;
  const auto announce = [](const PackedBatch& batch) {
    for (const auto& member : batch.members) {
      if (const auto packed = member.lock()) packed->announce();
    }
  };
  announce(*this);
  if (const auto next = earlier.lock()) announce(*next);
}

HeldSource::HeldSource(const at::Tensor& tensor)
    : tensor_(tensor.detach()), version_(version_of(tensor)), last_(c10::intrusive_ptr<c10::StorageImpl>()) {}

void HeldSource::pack(std::shared_ptr<Packed> packed, std::shared_ptr<PackedBatch> batch) {
  packed_ = std::move(packed);
  batch_ = std::move(batch);
  tensor_.reset();
}

at::Tensor HeldSource::take(const void*) {
  if (packed_) {
    const std::lock_guard lock(mutex_);
    if (auto storage = last_.lock()) return packed_->over(c10::Storage(std::move(storage)));
    batch_->ask();
    at::Tensor tensor = packed_->unpack();
    last_ = c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl());
    return tensor;
  }
  if (version_of(tensor_) != version_) {
    fail("memory.backward", "expected a tensor of sizes ", tensor_.sizes(),
         " to be as the forward pass left it, got one that was written to since");
  }
  return tensor_;
}

DerivedSource::DerivedSource(std::shared_ptr<Replayable> owner, const at::Tensor& seen)
    : owner_(std::move(owner)), sizes_(seen.sizes().vec()), dtype_(seen.scalar_type()) {}

void DerivedSource::add_user(const void* user) {
  const std::lock_guard lock(owner_->mutex);
  users_.push_back(user);
}

void DerivedSource::remove_user(const void* user) {
  const std::lock_guard lock(owner_->mutex);
  std::erase(users_, user);
  std::erase(waiting_, user);
  if (waiting_.empty()) filled_.reset();
}

at::Tensor DerivedSource::take(const void* user) {
  const std::lock_guard lock(owner_->mutex);
  if (!filled()) owner_->replay();
  if (!filled())
    fail("memory.backward",
         "expected the same work when it is done again, got less of it: a tensor of sizes ",
         at::IntArrayRef(sizes_), " was not saved");
  at::Tensor result = filled_;
  std::erase(waiting_, user);
  if (waiting_.empty()) filled_.reset();
  return result;
}

void DerivedSource::fill(const at::Tensor& tensor) {
  if (tensor.sizes() != at::IntArrayRef(sizes_) || tensor.scalar_type() != dtype_) {
    fail("memory.backward", "expected the same work when it is done again, got ", tensor.scalar_type(),
         " of sizes ", tensor.sizes(), " for ", dtype_, " of sizes ", at::IntArrayRef(sizes_));
  }
  filled_ = tensor.detach();
  waiting_ = users_;
}

}  // namespace ulp::memory
