#include "ulp/exchange/examples.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::exchange {

int64_t example_batch(const BatchRange& range, const char* where) {
  constexpr int64_t kMore = 2;
  if (range.max - std::max<int64_t>(range.min, 1) < kMore)
    fail_file(where, "expected a model that takes batches of three sizes at least, got ", range.text(),
              ": export it with a fixed batch, or with a wider range");
  return range.example(kMore);
}

at::Tensor Examples::make(const std::string& input, const std::vector<int64_t>& sizes, at::ScalarType type) {
  constexpr size_t kMostDims = 64;
  if (sizes.size() > kMostDims)
    fail_file(where_, "expected inputs of at most ", kMostDims, " dimensions, got ", sizes.size(), " of '",
              input, "'");
  auto bytes = static_cast<double>(c10::elementSize(type));
  for (const int64_t one : sizes) bytes *= static_cast<double>(std::max<int64_t>(one, 1));
  bytes_ += bytes;
  if (bytes_ > static_cast<double>(most_bytes_))
    fail_file(where_, "expected inputs of ", most_bytes_, " bytes at most, got more with '", input, "' of ",
              at::IntArrayRef(sizes));
  return torch::zeros(sizes, type);
}

}  // namespace ulp::exchange
