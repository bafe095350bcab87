#include "ulp/distributed/bucket.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>

#include "ulp/base/error.h"

namespace ulp::distributed {

Bucket::Bucket(BucketPlan plan, const std::vector<at::Tensor>& parameters, ProcessGroup& group,
               BucketOptions options)
    : plan_(std::move(plan)), parameters_(parameters), group_(group), options_(options) {}

/// The slot's part of `flat` with the sizes and strides of its parameter.
at::Tensor Bucket::slice(const at::Tensor& flat, const BucketSlot& slot) const {
  const at::Tensor& parameter = parameters_[slot.parameter];
  // Shares the memory without being a view to autograd, which optimizers' zero_grad() would refuse to detach.
  return flat.as_strided(parameter.sizes(), parameter.strides(), flat.storage_offset() + slot.begin)
      .variable_data();
}

at::Tensor Bucket::own(const at::Tensor& flat) const {
  return flat.narrow(0, share_size() * group_.rank(), share_size());
}

void Bucket::take(const BucketSlot& slot) {
  const at::NoGradGuard no_grad;
  at::Tensor parameter = parameters_[slot.parameter];
  if (!gradients_.defined()) gradients_ = at::zeros({plan_.size}, parameter.options().requires_grad(false));
  const at::Tensor place = slice(gradients_, slot);
  const at::Tensor gradient = parameter.grad();
  if (!gradient.defined()) {
    place.zero_();
    return;
  }
  if (gradient.layout() != c10::kStrided) {
    fail("distributed.DataParallel", "expected dense gradients, got a ", gradient.layout(),
         " one of a parameter of sizes ", parameter.sizes(), " (build the embedding with sparse=false)");
  }
  if (gradient.data_ptr() != place.data_ptr()) place.copy_(gradient);
  parameter.mutable_grad() = options_.share_gradients ? at::Tensor() : place;
}

void Bucket::start_reduce() {
  const at::NoGradGuard no_grad;
  gradients_.div_(group_.size());  // before the type is narrowed: fp16 has little room
  const bool narrow = options_.reduce_type && *options_.reduce_type != gradients_.scalar_type();
  travelling_ = narrow ? gradients_.to(*options_.reduce_type) : gradients_;
  if (!options_.share_gradients) {
    work_ = group_.all_reduce(travelling_);
    return;
  }
  if (narrow) gradients_.reset();
  received_ = at::empty({share_size()}, travelling_.options());
  work_ = group_.reduce_scatter(received_, travelling_);
}

void Bucket::finish_reduce() {
  const at::NoGradGuard no_grad;
  work_.wait();
  if (!options_.share_gradients) {
    if (!travelling_.is_same(gradients_)) gradients_.copy_(travelling_);
    travelling_.reset();
    return;
  }
  gradients_.reset();
  travelling_.reset();
  const c10::ScalarType type = parameters_[plan_.slots.front().parameter].scalar_type();
  if (gradient_share_.defined()) {
    gradient_share_.add_(received_.to(type));
  } else {
    gradient_share_ = received_.to(type);
  }
  received_.reset();
}

void Bucket::forget_gradients() {
  gradient_share_.reset();
}

at::Tensor Bucket::gradient_share() const {
  if (options_.share_gradients) return gradient_share_;
  return gradients_.defined() ? own(gradients_) : gradients_;
}

void Bucket::flatten_parameters() {
  const at::NoGradGuard no_grad;
  flat_parameters_ =
      at::zeros({plan_.size}, parameters_[plan_.slots.front().parameter].options().requires_grad(false));
  for (const BucketSlot& slot : plan_.slots) {
    at::Tensor parameter = parameters_[slot.parameter];
    const at::Tensor place = slice(flat_parameters_, slot);
    place.copy_(parameter);
    parameter.set_data(place);
  }
}

at::Tensor Bucket::parameter_share() const {
  return parameter_share_.defined() ? parameter_share_ : own(flat_parameters_);
}

Work Bucket::start_gather() {
  return group_.all_gather(flat_parameters_, parameter_share());
}

void Bucket::shard_parameters() {
  const at::NoGradGuard no_grad;
  parameter_share_ = own(flat_parameters_).clone();
  release();
}

void Bucket::prefetch() {
  if (present_) return;
  const auto bytes = static_cast<size_t>(plan_.size) * flat_parameters_.element_size();
  c10::StorageImpl& memory = *flat_parameters_.storage().unsafeGetStorageImpl();
  memory.set_data_ptr_noswap(c10::GetAllocator(flat_parameters_.device().type())->allocate(bytes));
  memory.set_nbytes(bytes);
  present_ = true;
  gathering_ = start_gather();
}

void Bucket::gather() {
  prefetch();
  gathering_.wait();
}

void Bucket::release() {
  gathering_.wait();
  // Views and what autograd has saved share the storage, so they find the values again when it has memory
  // again.
  c10::StorageImpl& memory = *flat_parameters_.storage().unsafeGetStorageImpl();
  memory.set_data_ptr_noswap(at::DataPtr(nullptr, flat_parameters_.device()));
  memory.set_nbytes(0);
  present_ = false;
}

void Bucket::keep_share() {
  const at::NoGradGuard no_grad;
  parameter_share_.copy_(own(flat_parameters_));
}

}  // namespace ulp::distributed
