// Dimensions of the values of random networks.
#pragma once

#include <algorithm>
#include <numeric>

#include "random_net.h"

namespace ulp::test::recipe {

/// A dimension but the batch, and its size.
struct Dim {
  int64_t index, size;
};

inline int64_t rank_of(RandomNet& net, size_t x) {
  return net.value(x).dim();
}

/// Nothing for a value that is one number an item.
inline std::optional<Dim> any_dim(RandomNet& net, size_t x, int64_t least_size = 1) {
  for (int i = 0; i < 6 && rank_of(net, x) > 1; ++i) {
    const int64_t dim = net.dice.between(1, rank_of(net, x) - 1);
    if (net.value(x).size(dim) >= least_size) return Dim{dim, net.value(x).size(dim)};
  }
  return {};
}

/// The dimension counted from the end, half of the time.
inline int64_t from_either_end(RandomNet& net, size_t x, int64_t dim) {
  return net.dice.coin() ? dim : dim - rank_of(net, x);
}

/// All dimensions but the batch in random order, the first `count` of them.
inline std::vector<int64_t> some_dims(RandomNet& net, size_t x, int64_t count) {
  std::vector<int64_t> dims(static_cast<size_t>(rank_of(net, x) - 1));
  std::iota(dims.begin(), dims.end(), 1);
  for (size_t i = dims.size(); i > 1; --i) {
    std::swap(dims[i - 1], dims[static_cast<size_t>(net.dice.below(static_cast<int64_t>(i)))]);
  }
  dims.resize(static_cast<size_t>(std::min<int64_t>(count, std::ssize(dims))));
  return dims;
}

}  // namespace ulp::test::recipe
