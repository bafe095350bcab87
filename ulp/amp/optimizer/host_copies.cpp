#include "ulp/amp/optimizer/host_copies.h"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

namespace ulp::amp {

at::Tensor HostCopies::on_host(const at::Tensor& like, c10::ScalarType type) const {
  const auto options = at::TensorOptions(type).device(c10::kCPU).pinned_memory(like.is_cuda());
  return at::empty_strided(like.sizes(), like.strides(), options);
}

const at::Tensor& HostCopies::parameter(const at::Tensor& of) {
  Copy& copy = copies_[of.unsafeGetTensorImpl()];
  const bool fits = copy.parameter.defined() && copy.parameter.sizes() == of.sizes() &&
                    copy.parameter.strides() == of.strides() &&
                    copy.parameter.scalar_type() == of.scalar_type();
  if (fits && copy.version == of._version() && copy.data == of.const_data_ptr()) return copy.parameter;
  if (!fits) copy.parameter = on_host(of, of.scalar_type());
  copy.parameter.copy_(of.detach());
  copy.version = of._version();
  copy.data = of.const_data_ptr();
  return copy.parameter;
}

void HostCopies::begin(c10::Device device) {
  arrived_.clear();
  sent_.clear();
  bucket_ = 0;
  bytes_ = 0;
  if (device.is_cpu()) {
    stream_.reset();
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!stream_ || stream_->device() != device) stream_ = guard.getStreamFromGlobalPool(device);
  c10::Event made(device.type());  // by backward
  made.record(guard.getStream(device));
  made.block(*stream_);
}

at::Tensor HostCopies::fetch(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (bytes_ >= bucket_bytes_) {
    end_bucket();
    ++bucket_;
  }
  Copy& copy = copies_[parameter.unsafeGetTensorImpl()];
  const bool fits = copy.gradient.defined() && copy.gradient.sizes() == gradient.sizes() &&
                    copy.gradient.strides() == parameter.strides() &&
                    copy.gradient.scalar_type() == gradient.scalar_type();
  if (!fits) copy.gradient = on_host(parameter, gradient.scalar_type());
  const c10::OptionalStreamGuard guard(stream_);
  copy.gradient.copy_(gradient.detach(), /*non_blocking=*/stream_.has_value());
  if (stream_) gradient.record_stream(*stream_);
  bytes_ += static_cast<int64_t>(gradient.nbytes());
  return copy.gradient;
}

void HostCopies::end_bucket() {
  bytes_ = 0;
  if (stream_) arrived_.emplace_back(stream_->device_type()).record(*stream_);
}

void HostCopies::finish_fetching() {
  end_bucket();
}

void HostCopies::wait(size_t bucket) {
  if (stream_) arrived_.at(bucket).synchronize();
}

void HostCopies::wait_for_all() {
  for (const c10::Event& event : arrived_) event.synchronize();
}

void HostCopies::send_back(const at::Tensor& parameter) {
  const c10::OptionalStreamGuard guard(stream_);
  parameter.detach().copy_(copies_.at(parameter.unsafeGetTensorImpl()).parameter,
                           /*non_blocking=*/stream_.has_value());
  sent_.push_back(parameter);
}

void HostCopies::end() {
  for (const at::Tensor& parameter : sent_) {
    Copy& copy = copies_.at(parameter.unsafeGetTensorImpl());
    copy.version = parameter._version();
    copy.data = parameter.const_data_ptr();
  }
  if (!stream_) return;
  const c10::impl::VirtualGuardImpl guard(stream_->device_type());
  c10::Event returned(stream_->device_type());
  returned.record(*stream_);
  returned.block(guard.getStream(stream_->device()));
}

}  // namespace ulp::amp
