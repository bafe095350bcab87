#include "ulp/memory/saved/geometry.h"

#include <ATen/ops/as_strided.h>

namespace ulp::memory {
namespace {

int64_t last_element(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return last;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.layout() == at::kStrided &&
         !tensor.is_quantized() && tensor.numel() > 0 && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

at::Tensor Geometry::of(const at::Tensor& whole) const {
  if (distance == 0 && whole.sizes() == at::IntArrayRef(sizes) && whole.strides() == at::IntArrayRef(strides))
    return whole;
  return at::as_strided(whole, sizes, strides, whole.storage_offset() + distance);
}

std::optional<Geometry> find_in(const at::Tensor& part, const at::Tensor& whole) {
  if (!is_plain(part) || !is_plain(whole) || part.scalar_type() != whole.scalar_type()) return std::nullopt;
  if (!part.is_alias_of(whole)) return std::nullopt;
  if (part.storage_offset() < whole.storage_offset() || last_element(part) > last_element(whole))
    return std::nullopt;
  return Geometry{part.sizes().vec(), part.strides().vec(), part.storage_offset() - whole.storage_offset()};
}

}  // namespace ulp::memory
