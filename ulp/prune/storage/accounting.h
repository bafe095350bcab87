// Where the bytes of a compressed file are: every one belongs to a part of a tensor or to the container.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::prune {

/// The bytes of one stored tensor. Tables of Huffman codes belong to what they code.
struct TensorBytes {
  int64_t values = 0;     ///< the stored elements, or their codes
  int64_t codebook = 0;   ///< the numbers that codes stand for
  int64_t positions = 0;  ///< where the stored elements are
  int64_t header = 0;     ///< dtype, shape, forms and counts
  int64_t total() const { return values + codebook + positions + header; }
  bool operator==(const TensorBytes&) const = default;
};

/// One tensor of a compressed file.
struct ULP_API TensorAccount {
  std::string name;
  std::string dtype;           ///< as safetensors calls it: "F32"
  std::vector<int64_t> shape;  ///< of the dense tensor
  int64_t elements = 0;
  int64_t stored = 0;       ///< elements that are in the file; of a dense form all
  int64_t dense_bytes = 0;  ///< before compression
  std::string positions;    ///< "dense", "bitmask", "gaps of 5 bits", "csr"
  std::string values;       ///< "F32", "BF16", "64 numbers F32 in 6 bits"
  TensorBytes bytes;
  bool operator==(const TensorAccount&) const = default;
};

/// A whole file.
struct ULP_API Accounting {
  std::vector<TensorAccount> tensors;  ///< in the order of the file
  int64_t container_bytes = 0;         ///< names, offsets, metadata, padding

  int64_t dense_bytes() const;
  /// The size of the file.
  int64_t file_bytes() const;
  /// dense_bytes / file_bytes: 40 is "40x smaller"; 0 for no file.
  double ratio() const;

  /// A table for people: titles, one row a tensor, one of the container, and the sums.
  std::vector<std::vector<std::string>> rows() const;
  bool operator==(const Accounting&) const = default;
};

}  // namespace ulp::prune
