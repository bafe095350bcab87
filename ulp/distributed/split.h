// How a dimension of a tensor is shared out among the ranks of a tensor parallel model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/base/export.h"

namespace ulp::distributed {

/// A dimension of size outer * units * inner of which each rank has some of the units: those of a linear layer are its
/// outputs (outer = inner = 1), those of queries, keys and values in one matrix are heads (outer 3, inner the width of a
/// head). Rank r of n has the units from units * r / n to units * (r + 1) / n: with 5 heads one of 2 ranks has 2.
struct ULP_API Split {
  int64_t dim = 0;
  int64_t outer = 1, units = 1, inner = 1;

  int64_t size() const { return outer * units * inner; }
  /// The first unit of a rank, and of the rank behind it.
  int64_t begin(int rank, int ranks) const { return units * rank / ranks; }
  int64_t units_of(int rank, int ranks) const { return begin(rank + 1, ranks) - begin(rank, ranks); }
  /// A copy of what the rank has of `whole`. Throws ulp::Error unless the dimension has size().
  at::Tensor part_of(const at::Tensor& whole, int rank, int ranks) const;
  /// Writes a rank's part to its place in `whole`.
  void put_part(const at::Tensor& whole, const at::Tensor& part, int rank, int ranks) const;
  bool operator==(const Split&) const = default;
};

/// A parameter or buffer of which each rank has a part.
struct NamedSplit {
  std::string name;
  Split split;
};

}  // namespace ulp::distributed
