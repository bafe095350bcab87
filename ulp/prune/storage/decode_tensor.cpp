// Reading what encode_tensor() wrote, or anybody.
#include <ATen/Functions.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/libtorch/safetensors_tensor.h"
#include "ulp/prune/storage/encoded_tensor_parts.h"
#include "ulp/prune/storage/stream.h"

namespace ulp::prune {
namespace {

struct Header {
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t elements;
  size_t size;  ///< bytes of an element
  Forms forms;
  uint64_t stored;
};

/// Sizes of zero count as one for the limit: strides made from such a shape must not overflow either.
std::vector<int64_t> take_shape(ByteReader& reader, size_t element, uint64_t most_bytes) {
  const uint64_t dimensions = reader.integer();
  if (dimensions > kMostDimensions)
    throw CodesProblem{"it has " + std::to_string(dimensions) + " dimensions"};
  std::vector<int64_t> shape(dimensions);
  uint64_t extent = element;
  bool empty = false;
  for (int64_t& size : shape) {
    const uint64_t read = reader.integer();
    empty = empty || read == 0;
    if (read > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(extent, std::max<uint64_t>(read, 1), &extent) ||
        extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw CodesProblem{"its shape's size overflows"};
    }
    size = static_cast<int64_t>(read);
  }
  if (!empty && extent > most_bytes) {
    throw CodesProblem{"expected a tensor of at most " + std::to_string(most_bytes) + " bytes, got " +
                       std::to_string(extent)};
  }
  return shape;
}

Header take_header(ByteReader& reader, uint64_t most_bytes) {
  Header header;
  const uint8_t type = reader.byte();
  header.type = static_cast<at::ScalarType>(type);
  if (type >= static_cast<uint8_t>(at::ScalarType::NumOptions) ||
      libtorch::safetensors_word(header.type) == nullptr)
    throw CodesProblem{"unknown dtype " + std::to_string(type)};
  header.size = c10::elementSize(header.type);
  header.shape = take_shape(reader, header.size, most_bytes);
  header.elements = 1;
  for (const int64_t size : header.shape) header.elements *= static_cast<uint64_t>(size);
  header.forms = Forms::of(reader.byte());
  const bool dense = header.forms.positions.kind == Positions::dense;
  if (!dense && header.elements == 0) throw CodesProblem{"it has positions of no elements"};
  if (header.forms.narrow != Narrow::none && header.type != at::kFloat)
    throw CodesProblem{"only F32 is stored in 16 bits"};
  header.stored = dense ? header.elements : reader.integer();
  if (header.stored > header.elements) {
    throw CodesProblem{"expected at most " + std::to_string(header.elements) + " stored elements, got " +
                       std::to_string(header.stored)};
  }
  return header;
}

/// Bytes of an element in the file.
size_t stored_size(const Header& header) {
  return header.forms.narrow == Narrow::none ? header.size : sizeof(uint16_t);
}

std::vector<uint64_t> take_codebook(ByteReader& reader, const Header& header) {
  std::vector<uint64_t> entries(reader.byte() + size_t{1});
  const size_t size = stored_size(header);
  const auto bytes = reader.take(entries.size() * size);
  for (size_t i = 0; i < entries.size(); ++i)
    entries[i] = widened(bits_at(bytes.data(), size, i), header.forms.narrow);
  return entries;
}

/// The stored elements, each of header.size bytes.
Bytes take_values(ByteReader& reader, const Header& header, const std::vector<uint64_t>& codebook) {
  Bytes values(header.stored * header.size);
  if (header.forms.codebook) {
    const std::vector<uint8_t> codes = take_stream(reader, header.stored, code_bits(codebook.size()));
    for (size_t i = 0; i < codes.size(); ++i) {
      if (codes[i] >= codebook.size()) {
        throw CodesProblem{"expected codes below " + std::to_string(codebook.size()) + ", got " +
                           std::to_string(codes[i])};
      }
      set_bits(values.data(), header.size, i, codebook[codes[i]]);
    }
    return values;
  }
  const size_t size = stored_size(header);
  for (size_t plane = 0; plane < size; ++plane) {
    const std::vector<uint8_t> bytes = take_stream(reader, header.stored, 8);
    for (size_t i = 0; i < bytes.size(); ++i) values[i * header.size + plane] = std::byte{bytes[i]};
  }
  if (header.forms.narrow == Narrow::none) return values;
  for (size_t i = 0; i < header.stored; ++i) {
    const uint64_t bits = bits_at(values.data(), header.size, i);
    set_bits(values.data(), header.size, i, widened(bits, header.forms.narrow));
  }
  return values;
}

at::Tensor scatter(const Header& header, const std::vector<uint8_t>& mask, const Bytes& values) {
  at::Tensor tensor = at::empty(header.shape, header.type);
  auto* out = static_cast<std::byte*>(tensor.mutable_data_ptr());
  std::fill_n(out, header.elements * header.size, std::byte{0});
  const auto* next = values.data();
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    std::memcpy(out + i * header.size, next, header.size);
    next += header.size;
  }
  return tensor;
}

void skip_values(ByteReader& reader, const Header& header, size_t entries) {
  if (header.forms.codebook) return skip_stream(reader, header.stored, code_bits(entries));
  for (size_t plane = 0; plane < stored_size(header); ++plane) skip_stream(reader, header.stored, 8);
}

/// The bytes that were taken since the last call, or the start.
class Meter {
 public:
  explicit Meter(const ByteReader& reader) : reader_(reader) {}
  int64_t operator()() {
    return static_cast<int64_t>(reader_.taken() - std::exchange(before_, reader_.taken()));
  }

 private:
  const ByteReader& reader_;
  size_t before_ = 0;
};

void check_end(const ByteReader& reader) {
  if (reader.left() != 0) throw CodesProblem{std::to_string(reader.left()) + " bytes are left at the end"};
}

TensorAccount account_of(const Header& header, size_t entries, const TensorBytes& parts) {
  TensorAccount account{.name = {},
                        .dtype = libtorch::safetensors_word(header.type),
                        .shape = header.shape,
                        .elements = static_cast<int64_t>(header.elements),
                        .stored = static_cast<int64_t>(header.stored),
                        .dense_bytes = static_cast<int64_t>(header.elements * header.size),
                        .positions = {},
                        .values = {},
                        .bytes = parts};
  describe(account, header.forms, entries);
  return account;
}

/// Rethrows what is wrong with the bytes as the error of a file.
template <typename Action>
auto as_file_error(const char* where, const Action& action) {
  try {
    return action();
  } catch (const CodesProblem& problem) {
    fail_file(where, problem.text);
  }
}

}  // namespace

DecodedTensor decode_codes(std::span<const std::byte> bytes, uint64_t most_bytes) {
  ByteReader reader(bytes);
  Meter taken(reader);
  const Header header = take_header(reader, most_bytes);
  const Grid grid = grid_of(header.shape, header.elements);
  TensorBytes parts{.header = taken()};
  std::vector<uint64_t> codebook;
  if (header.forms.codebook) codebook = take_codebook(reader, header);
  parts.codebook = taken();
  const std::vector<uint8_t> mask = take_positions(reader, header.stored, header.forms.positions, grid);
  parts.positions = taken();
  const Bytes values = take_values(reader, header, codebook);
  parts.values = taken();
  check_end(reader);
  const auto above_one = [](std::byte value) { return value > std::byte{1}; };
  if (header.type == at::kBool && std::ranges::any_of(values, above_one))
    throw CodesProblem{"it is boolean but holds other values than 0 and 1"};
  return {scatter(header, mask, values), account_of(header, codebook.size(), parts)};
}

TensorAccount account_codes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Meter taken(reader);
  const Header header = take_header(reader, std::numeric_limits<int64_t>::max());
  TensorBytes parts{.header = taken()};
  const size_t entries = header.forms.codebook ? take_codebook(reader, header).size() : 0;
  parts.codebook = taken();
  skip_positions(reader, header.stored, header.forms.positions, grid_of(header.shape, header.elements));
  parts.positions = taken();
  skip_values(reader, header, entries);
  parts.values = taken();
  check_end(reader);
  return account_of(header, entries, parts);
}

DecodedTensor decode_tensor(std::span<const std::byte> bytes, uint64_t most_bytes) {
  return as_file_error("prune.decode_tensor", [&] { return decode_codes(bytes, most_bytes); });
}

TensorAccount read_account(std::span<const std::byte> bytes) {
  return as_file_error("prune.read_account", [&] { return account_codes(bytes); });
}

}  // namespace ulp::prune
