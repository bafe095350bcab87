// The inputs that an imported model is run on: zeros, within a limit of bytes for all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/dynamic_dimension.h"

namespace ulp::exchange {

/// The batch of the examples: 2, enough for batch norms, or as near to it as the range allows. Capture runs
/// the model with one sample and two more, too: throws FileError `[where] ...` for a range of fewer than
/// three sizes.
int64_t example_batch(const BatchRange& range, const char* where);

/// Makes the examples of one model. Sizes are those of a stranger's file.
class Examples {
 public:
  /// `where` is the place of its errors.
  Examples(const char* where, int64_t most_bytes) : where_(where), most_bytes_(most_bytes) {}

  /// Zeros: as ids and masks they are in range, as numbers small. Throws FileError that names the input for more than 64
  /// dimensions, and where all examples together would have more than `most_bytes`. A size of 0 counts as 1: the strides of
  /// an empty tensor are products of the others.
  at::Tensor make(const std::string& input, const std::vector<int64_t>& sizes, at::ScalarType type);

 private:
  const char* where_;
  int64_t most_bytes_;
  double bytes_ = 0;
};

}  // namespace ulp::exchange
