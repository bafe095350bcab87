#include "ulp/exchange/onnx_import/file_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::exchange::onnx_import {

namespace {

constexpr const char* kReadTensorWhere = "exchange.read_tensor";
// Types of TensorProto that have no number of bytes of their own.
constexpr int64_t kText = 8, kUint4 = 21, kInt4 = 22, kUint2 = 25, kInt2 = 26;

/// Codes that share bytes.
struct SmallCodes {
  int64_t bits = 0;  ///< of each: 4, 2, or 0 for another type
  bool with_sign = false;
  int64_t bytes_of(int64_t count) const { return (count * bits + 7) / 8; }
};
SmallCodes small_codes(int64_t type) {
  if (type == kUint4 || type == kInt4) return {.bits = 4, .with_sign = type == kInt4};
  if (type == kUint2 || type == kInt2) return {.bits = 2, .with_sign = type == kInt2};
  return {};
}

/// Element types with the numbers that TensorProto has for them.
struct ElementType {
  int64_t data_type;
  at::ScalarType type;
};
constexpr ElementType kElementTypes[] = {
    {1, at::kFloat},   {2, at::kByte},    {3, at::kChar},     {4, at::kUInt16}, {5, at::kShort},
    {6, at::kInt},     {7, at::kLong},    {9, at::kBool},     {10, at::kHalf},  {11, at::kDouble},
    {12, at::kUInt32}, {13, at::kUInt64}, {16, at::kBFloat16}};

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

/// The lower bits of a byte come first; codes with a sign are extended.
at::Tensor unpacked(const uint8_t* bytes, const Parts& parts, int64_t count, const SmallCodes& kind) {
  at::Tensor codes = at::empty(parts.dims, kind.with_sign ? at::kChar : at::kByte);
  auto* out = static_cast<uint8_t*>(codes.mutable_data_ptr());
  const int64_t each = 8 / kind.bits;
  const int values = 1 << kind.bits, mask = values - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int code = bytes[i / each] >> (i % each * kind.bits) & mask;
    out[i] = static_cast<uint8_t>(kind.with_sign && code >= values / 2 ? code - values : code);
  }
  return codes;
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
  if (const SmallCodes kind = small_codes(type_number); kind.bits > 0) {
    const int64_t bytes = kind.bytes_of(count);
    if (parts.external) {
      const at::Tensor packed = read_external(parts.data, folder, {bytes}, at::kByte, where);
      return unpacked(packed.const_data_ptr<uint8_t>(), parts, count, kind);
    }
    if (parts.has_raw) {
      expect_count(parts.raw.size(), bytes, where + " in bytes");
      return unpacked(reinterpret_cast<const uint8_t*>(parts.raw.data()), parts, count, kind);
    }
    expect_count(parts.whole.size(), bytes, where + " in bytes");
    std::vector<uint8_t> packed;
    for (const int64_t one : parts.whole) packed.push_back(static_cast<uint8_t>(one));
    return unpacked(packed.data(), parts, count, kind);
  }
  const at::ScalarType type = scalar_type(type_number, where);
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
  const auto row = std::ranges::find(kElementTypes, type, &ElementType::data_type);
  if (row == std::end(kElementTypes))
    fail_file(kReadTensorWhere, "expected numbers of a type that LibTorch has, got ", type_name(type), " in ",
              where);
  return row->type;
}

int64_t data_type(at::ScalarType type) {
  const auto row = std::ranges::find(kElementTypes, type, &ElementType::type);
  return row == std::end(kElementTypes) ? 0 : row->data_type;
}

std::string type_name(int64_t type) {
  constexpr const char* kNames[] = {
      "undefined",      "float",      "uint8",          "int8",       "uint16",    "int16",
      "int32",          "int64",      "string",         "bool",       "float16",   "double",
      "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
      "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
  if (type >= 0 && type < std::ssize(kNames)) return kNames[type];
  return "ONNX's type " + std::to_string(type);
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
