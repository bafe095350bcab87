// The file of weights beside a program, "blob storage" of version 2: a header, then for each tensor its description and its bytes,
// each at a multiple of 64. Format: MILBlob/Blob/StorageFormat.hpp of apple/coremltools.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::exchange::coreml {

/// Tensors of the file, in order.
class Blobs {
 public:
  /// Whether tensors of this type can be in it: f32, f16, s8 and u8.
  static bool holds(at::ScalarType type);
  /// Adds a tensor; returns where its description is in the file.
  int64_t add(const at::Tensor& tensor);
  /// Bytes of the whole file.
  uint64_t size() const { return end_; }
  void write(const WireWriter::Sink& sink) const;

 private:
  static constexpr uint64_t kAlignment = 64;

  struct Entry {
    at::Tensor tensor;
    uint64_t place;  ///< of the description
  };
  std::vector<Entry> entries_;
  uint64_t end_ = kAlignment;
};

}  // namespace ulp::exchange::coreml
