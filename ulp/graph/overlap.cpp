#include <algorithm>

#include "ulp/graph/capture/resolve.h"

namespace ulp::graph {

namespace {

struct Extent {
  int64_t first = 0, last = 0;  // bytes, [first, last)
};

Extent extent(const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  int64_t width = static_cast<int64_t>(tensor.element_size());
  return {tensor.storage_offset() * width, (last + 1) * width};
}

/// Byte offset of every element.
std::vector<int64_t> offsets(const at::Tensor& tensor) {
  std::vector<int64_t> result{tensor.storage_offset()};
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    std::vector<int64_t> next;
    next.reserve(result.size() * tensor.size(dim));
    for (int64_t base : result) {
      for (int64_t i = 0; i < tensor.size(dim); ++i) next.push_back(base + i * tensor.stride(dim));
    }
    result = std::move(next);
  }
  for (int64_t& offset : result) offset *= static_cast<int64_t>(tensor.element_size());
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  Extent x = extent(a), y = extent(b);
  if (x.last <= y.first || y.last <= x.first) return false;
  constexpr int64_t kEnumerable = 1 << 20;  // beyond it a false alarm is cheaper than the exact answer
  if (a.element_size() != b.element_size() || a.numel() > kEnumerable || b.numel() > kEnumerable) return true;
  std::vector<int64_t> p = offsets(a), q = offsets(b);
  for (size_t i = 0, j = 0; i < p.size() && j < q.size();) {
    if (p[i] == q[j]) return true;
    p[i] < q[j] ? ++i : ++j;
  }
  return false;
}

}  // namespace ulp::graph
