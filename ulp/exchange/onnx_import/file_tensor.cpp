#include "ulp/exchange/onnx_import/file_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/exchange/onnx_import/element_type.h"

namespace ulp::exchange::onnx_import {

namespace {

constexpr const char* kReadTensorWhere = "exchange.read_tensor";
constexpr int64_t kText = 8;

/// A tensor whose fields have been read.
struct Parts {
  std::vector<int64_t> dims, whole;  // int32_data, int64_data, uint64_data
  std::vector<float> floats;
  std::vector<double> doubles;
  std::string_view raw;
  bool has_raw = false, external = false;
  ExternalData data;
};

/// An entry of external_data.
void read_entry(WireReader entry, ExternalData& data) {
  std::string key, value;
  while (entry.next()) {
    if (entry.field() == 1) key = entry.text();
    if (entry.field() == 2) value = entry.text();
  }
  if (key == "location") data.location = value;
  if (key != "offset" && key != "length") return;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0)
    fail_file(kReadTensorWhere, "expected a number as the ", key, " of ", entry.where(), ", got '", value,
              "'");
  (key == "offset" ? data.offset : data.length) = number;
}

/// Elements; sizes that no file can hold are refused.
int64_t elements(const std::vector<int64_t>& dims, const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 48;
  constexpr size_t kMostDims = 32;
  int64_t most = 1;  // as if no size were 0
  bool empty = false;
  if (dims.size() > kMostDims)
    fail_file(kReadTensorWhere, "expected at most ", kMostDims, " dimensions of ", where, ", got ",
              dims.size());
  for (const int64_t size : dims) {
    if (size < 0 || size > kMost || most > kMost / std::max<int64_t>(size, 1))
      fail_file(kReadTensorWhere, "expected sizes that a file can hold for ", where, ", got a size of ",
                size);
    most *= std::max<int64_t>(size, 1);
    empty = empty || size == 0;
  }
  return empty ? 0 : most;
}

/// A number of 4 bits: 1 for the sign, 2 of the exponent, 1 of the mantissa.
float from_e2m1(int code) {
  constexpr float kSizes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const float size = kSizes[code & 7];
  return code >= 8 ? -size : size;
}

/// The lower bits of a byte come first; whole numbers with a sign are extended.
at::Tensor unpacked(const uint8_t* bytes, const Parts& parts, int64_t count, const ElementType& type) {
  at::Tensor numbers = at::empty(parts.dims, type.held);
  const int64_t each = 8 / type.bits;
  const int values = 1 << type.bits, mask = values - 1;
  const auto code = [&](int64_t i) { return bytes[i / each] >> (i % each * type.bits) & mask; };
  if (type.held == at::kFloat) {
    auto* out = numbers.mutable_data_ptr<float>();
    for (int64_t i = 0; i < count; ++i) out[i] = from_e2m1(code(i));
    return numbers;
  }
  auto* out = static_cast<uint8_t*>(numbers.mutable_data_ptr());
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<uint8_t>(code(i) > type.highest ? code(i) - values : code(i));
  return numbers;
}

/// Numbers of a list in another type, bits for those of 16 and 8 bits that are no integers.
template <typename T>
at::Tensor narrowed(const std::vector<int64_t>& whole, const Parts& parts, at::ScalarType type) {
  at::Tensor tensor = at::empty(parts.dims, type);
  auto* out = static_cast<char*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < whole.size(); ++i) {
    const T value = static_cast<T>(whole[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
  return tensor;
}

template <typename T>
at::Tensor copied(const T* values, const Parts& parts, at::ScalarType type) {
  at::Tensor tensor = at::empty(parts.dims, type);
  if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), values, tensor.nbytes());
  return tensor;
}

void expect_count(size_t got, int64_t expected, const std::string& where) {
  if (got != static_cast<size_t>(expected))
    fail_file(kReadTensorWhere, "expected ", expected, " elements of ", where, " in the file, got ", got);
}

/// The numbers of a tensor that are no raw bytes.
at::Tensor from_lists(const Parts& parts, at::ScalarType type, int64_t count, const std::string& where) {
  if (type == at::kFloat) {
    expect_count(parts.floats.size(), count, where);
    return copied(parts.floats.data(), parts, type);
  }
  if (type == at::kDouble) {
    expect_count(parts.doubles.size(), count, where);
    return copied(parts.doubles.data(), parts, type);
  }
  expect_count(parts.whole.size(), count, where);
  if (type == at::kBool) {
    std::vector<int64_t> flags = parts.whole;
    for (int64_t& flag : flags) flag = flag != 0;
    return narrowed<uint8_t>(flags, parts, type);
  }
  switch (c10::elementSize(type)) {
    case 1:
      return narrowed<uint8_t>(parts.whole, parts, type);
    case 2:
      return narrowed<uint16_t>(parts.whole, parts, type);
    case 4:
      return narrowed<uint32_t>(parts.whole, parts, type);
    default:
      return narrowed<uint64_t>(parts.whole, parts, type);
  }
}

at::Tensor value_of(const Parts& parts, int64_t type_number, const std::filesystem::path& folder,
                    const std::string& where) {
  const int64_t count = elements(parts.dims, where);
  if (type_number == kText) return {};
  if (const ElementType* kind = find_element_type(type_number); kind != nullptr && kind->bits > 0) {
    const int64_t bytes = (count * kind->bits + 7) / 8;
    if (parts.external) {
      const at::Tensor packed = read_external(parts.data, folder, {bytes}, at::kByte, where);
      return unpacked(packed.const_data_ptr<uint8_t>(), parts, count, *kind);
    }
    if (parts.has_raw) {
      expect_count(parts.raw.size(), bytes, where + " in bytes");
      return unpacked(reinterpret_cast<const uint8_t*>(parts.raw.data()), parts, count, *kind);
    }
    expect_count(parts.whole.size(), bytes, where + " in bytes");
    std::vector<uint8_t> packed;
    for (const int64_t one : parts.whole) packed.push_back(static_cast<uint8_t>(one));
    return unpacked(packed.data(), parts, count, *kind);
  }
  const at::ScalarType type = input_type(type_number, where);
  if (parts.external) return read_external(parts.data, folder, parts.dims, type, where);
  if (!parts.has_raw) return from_lists(parts, type, count, where);
  expect_count(parts.raw.size(), count * static_cast<int64_t>(c10::elementSize(type)), where + " in bytes");
  if (type == at::kBool) {
    for (const char one : parts.raw) {
      if (static_cast<uint8_t>(one) > 1)
        fail_file(kReadTensorWhere, "expected 0 and 1 as the bools of ", where);
    }
  }
  return copied(parts.raw.data(), parts, type);
}

}  // namespace

at::ScalarType scalar_type(int64_t type, const std::string& where) {
  const ElementType* row = find_element_type(type);
  if (row == nullptr || row->held == at::ScalarType::Undefined || row->kind != NumberKind::plain)
    fail_file(kReadTensorWhere, "expected numbers of a type that LibTorch has, got ", type_name(type), " in ",
              where);
  return row->held;
}

FileTensor read_tensor(WireReader reader, const std::filesystem::path& folder) {
  FileTensor tensor;
  Parts parts;
  while (reader.next()) {
    switch (reader.field()) {
      case 1:
        reader.append(parts.dims);
        break;
      case 2:
        tensor.type = reader.integer();
        break;
      case 3:
        fail_file(kReadTensorWhere, "expected a tensor in one piece, got a segment in ", reader.where());
      case 4:
        reader.append(parts.floats);
        break;
      case 5:
      case 7:
      case 11:
        reader.append(parts.whole);
        break;
      case 8:
        tensor.name = reader.text();
        break;
      case 9:
        parts.raw = reader.bytes();
        parts.has_raw = true;
        break;
      case 10:
        reader.append(parts.doubles);
        break;
      case 13:
        read_entry(reader.message(", external_data"), parts.data);
        break;
      case 14:
        parts.external = reader.integer() == 1;
        break;
      default:
        break;
    }
  }
  const std::string where = reader.where() + (tensor.name.empty() ? "" : " '" + tensor.name + "'");
  tensor.value = value_of(parts, tensor.type, folder, where);
  return tensor;
}

}  // namespace ulp::exchange::onnx_import
