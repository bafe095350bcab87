#include "ulp/amp/optimizer/state_memory.h"

#include <ATen/Functions.h>

#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/base/anonymous_file.h"

namespace ulp::amp {

at::Tensor StateMemory::in_file(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) const {
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  AnonymousFile file(kFusedOptimizerWhere, folder_);
  file.reserve(kFusedOptimizerWhere,
               bytes);  // room that is promised now is no signal in the middle of a step
  const auto unmap = [bytes](void* memory) { AnonymousFile::unmap(memory, bytes); };
  return at::from_blob(file.map(kFusedOptimizerWhere, bytes), sizes, strides, unmap, at::TensorOptions(type));
}

bool StateMemory::is_for(int64_t elements, c10::ScalarType type) const {
  return !folder_.empty() && elements * static_cast<int64_t>(c10::elementSize(type)) >= kLeastFile;
}

at::Tensor StateMemory::zeros(const at::Tensor& like, c10::ScalarType type) const {
  if (!device_.is_cpu())
    return at::zeros_like(like, like.options().dtype(type).device(device_).requires_grad(false));
  return is_for(like.numel(), type) ? in_file(like.sizes(), like.strides(), type)
                                    : zeros_on_large_pages(like, type);
}

at::Tensor StateMemory::zeros(int64_t size, c10::ScalarType type) const {
  return is_for(size, type) ? in_file({size}, {1}, type)
                            : at::zeros({size}, at::TensorOptions(type).device(device_));
}

void StateMemory::move(at::Tensor& tensor) const {
  if (!tensor.defined()) return;
  if (tensor.device() != device_) tensor = tensor.to(device_);  // strides are kept
  if (is_for(tensor.numel(), tensor.scalar_type()))
    tensor = in_file(tensor.sizes(), tensor.strides(), tensor.scalar_type()).copy_(tensor);
}

}  // namespace ulp::amp
