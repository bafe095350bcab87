// A stream: symbols of up to 8 bits as bytes, in the smallest of three forms. Internal.
//
// One byte says the form: 0 packed bits, 1 Huffman codes, 2 deflate (RFC 1951, one symbol a byte). The forms
// 1 and 2 have the count of their bytes before them; of packed bits it follows from the count of symbols,
// which the reader knows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/prune/storage/bytes.h"
#include "ulp/prune/storage/entropy_coder.h"

namespace ulp::prune {

/// Appends the symbols, each below 2^width, 0 <= width <= 8.
ULP_API void put_stream(Bytes& out, std::span<const uint8_t> symbols, int width, EntropyCoder coder);

/// Reads `count` symbols of `width` bits. Throws CodesProblem for what put_stream() does not write. Takes
/// memory for the symbols, and no more than some 100 KB beside.
ULP_API std::vector<uint8_t> take_stream(ByteReader& reader, uint64_t count, int width);

/// Passes over them without decoding.
void skip_stream(ByteReader& reader, uint64_t count, int width);

}  // namespace ulp::prune
