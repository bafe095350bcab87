// One tensor as few bytes, and back bit for bit.
//
// An element is zero, and not stored, where all its bits are zero: -0 is stored, so that it comes back. Of up
// to 256 different stored elements each is written once, in a codebook, and the elements are codes; weights
// that share values (shared_weights.h) are found so, too. Elements f32 that bfloat16 or float16 holds exactly
// take 16 bits.
//
// Layout: one byte LibTorch's number of the dtype; the count of dimensions and each size; one byte of forms
// (bits 0-1 the positions, bit 2 a codebook, bits 3-4 0: elements as they are, 1: bf16, 2: f16; bits 5-7 the
// bits of gaps less one); the count of stored elements unless dense; with a codebook one byte, its entries
// less one, and the entries; the streams of positions; the streams of values: with a codebook one of codes,
// without one for each byte of an element, the lowest first. Numbers are LEB128, entries little-endian;
// streams are those of stream.h and position_codes.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/prune/storage/accounting.h"
#include "ulp/prune/storage/entropy_coder.h"
#include "ulp/prune/storage/positions.h"

namespace ulp::prune {

/// The encodings that encode_tensor() may choose from.
struct ULP_API CodeOptions {
  EntropyCoder coder = EntropyCoder::smallest;
  std::optional<Positions> positions = std::nullopt;  ///< the smallest unless given
  std::optional<int64_t> gap_bits = std::nullopt;     ///< of gaps, 2..8; the smallest unless given
  /// Throws ulp::Error naming the field.
  void validate() const;
  bool operator==(const CodeOptions&) const = default;
};

/// A tensor's bytes, and what they are; the account has no name.
struct EncodedTensor {
  std::vector<std::byte> bytes;
  TensorAccount account;
};

/// The smallest of the forms that the options allow; the simplest of equals. Takes any dense tensor of a
/// dtype that safetensors files have; throws ulp::Error for others, for bad options, and where csr is asked
/// for and a row has more than 65,536 elements.
ULP_API EncodedTensor encode_tensor(const at::Tensor& tensor, const CodeOptions& options = {});

/// A decoded tensor and its account, without a name.
struct DecodedTensor {
  at::Tensor tensor;  ///< contiguous, on the CPU
  TensorAccount account;
};

/// Decodes what encode_tensor() took, bit for bit. Throws FileError for bytes that are no coded tensor, and
/// for a tensor of more than `most_bytes`: few bytes may stand for many zeros. Takes some ten times the
/// tensor's memory at most.
ULP_API DecodedTensor decode_tensor(std::span<const std::byte> bytes, uint64_t most_bytes);

/// The account that decode_tensor() gives, without decoding: whatever the tensor's size, it takes no memory.
/// Throws FileError for bytes whose parts are none of a coded tensor; what is inside of them is not looked
/// at.
ULP_API TensorAccount read_account(std::span<const std::byte> bytes);

}  // namespace ulp::prune
