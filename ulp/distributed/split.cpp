#include "ulp/distributed/split.h"

#include <ATen/ATen.h>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

/// A view of the rank's units, with a dimension each for outer, units and inner.
at::Tensor units_in(const Split& split, const at::Tensor& whole, int rank, int ranks) {
  if (split.dim < 0 || split.dim >= whole.dim() || whole.size(split.dim) != split.size())
    fail("distributed.Split", "expected dimension ", split.dim, " to have ", split.size(), ", got sizes ",
         whole.sizes());
  return whole.unflatten(split.dim, {split.outer, split.units, split.inner})
      .narrow(split.dim + 1, split.begin(rank, ranks), split.units_of(rank, ranks));
}

}  // namespace

at::Tensor Split::part_of(const at::Tensor& whole, int rank, int ranks) const {
  return units_in(*this, whole, rank, ranks).flatten(dim, dim + 2).clone(at::MemoryFormat::Contiguous);
}

void Split::put_part(const at::Tensor& whole, const at::Tensor& part, int rank, int ranks) const {
  at::Tensor place = units_in(*this, whole, rank, ranks);
  place.copy_(part.unflatten(dim, {outer, units_of(rank, ranks), inner}));
}

}  // namespace ulp::distributed
