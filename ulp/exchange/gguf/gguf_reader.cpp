#include "ulp/exchange/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "ulp/base/error.h"
#include "ulp/exchange/proto/wire_reader.h"

namespace ulp::exchange::gguf {

namespace {

constexpr const char* kWhere = "exchange.import_gguf";
constexpr size_t kMostValues = size_t{1} << 22;  // of metadata: vocabularies have some 10^5
constexpr size_t kMostTensors = size_t{1} << 20;
constexpr int kMostDepth = 4;  // of arrays in arrays

static_assert(std::endian::native == std::endian::little, "numbers of a file are copied as they are");

/// Reads from front to back, and never beyond the end.
class GgufBytesReader {
 public:
  GgufBytesReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file(kWhere, parts..., " at byte ", at_, " of '", source_, "'");
  }

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number<uint64_t>()); }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) refuse("expected ", size, " more bytes, got the end of the file");
    const std::string_view part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }
  /// Metadata is text in UTF-8, or JSON could not hold it.
  std::string valid_text() {
    std::string read(text());
    try {
      nlohmann::json(read).dump();
    } catch (const nlohmann::json::type_error&) {
      refuse("expected a text in UTF-8");
    }
    return read;
  }
  /// Names go into messages.
  std::string name() {
    const std::string_view read = text();
    if (!is_plain_text(read)) refuse("expected a name in UTF-8 without control characters");
    return std::string(read);
  }

  nlohmann::json value(ValueType type, int depth = 0) {
    if (++values_ > kMostValues) refuse("expected at most ", kMostValues, " values");
    switch (type) {
      case ValueType::u8:
        return number<uint8_t>();
      case ValueType::i8:
        return number<int8_t>();
      case ValueType::u16:
        return number<uint16_t>();
      case ValueType::i16:
        return number<int16_t>();
      case ValueType::u32:
        return number<uint32_t>();
      case ValueType::i32:
        return number<int32_t>();
      case ValueType::f32:
        return number<float>();
      case ValueType::boolean:
        return number<uint8_t>() != 0;
      case ValueType::text:
        return valid_text();
      case ValueType::u64:
        return number<uint64_t>();
      case ValueType::i64:
        return number<int64_t>();
      case ValueType::f64:
        return number<double>();
      case ValueType::array:
        break;
    }
    if (depth >= kMostDepth) refuse("expected arrays at most ", kMostDepth, " deep");
    const ValueType element = value_type();
    const auto count = number<uint64_t>();
    if (count > left()) refuse("expected an array within the file, got one of ", count, " values");
    nlohmann::json array = nlohmann::json::array();
    for (uint64_t i = 0; i < count; ++i) array.push_back(value(element, depth + 1));
    return array;
  }
  ValueType value_type() {
    const auto type = number<uint32_t>();
    if (type >= kValueTypes) refuse("expected a type of values below ", kValueTypes, ", got ", type);
    return static_cast<ValueType>(type);
  }

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::string_view bytes_;
  const std::string& source_;
  size_t at_ = 0, values_ = 0;
};

/// A name in a message.
std::string shown(const std::string& name) {
  constexpr size_t kShown = 100;
  return "'" + name.substr(0, kShown) + "'";
}

/// a * b, or nothing where that is too large.
bool multiply(int64_t& a, int64_t b) {
  return !__builtin_mul_overflow(a, b, &a);
}

FileTensor read_tensor(GgufBytesReader& reader, uint64_t& offset) {
  FileTensor tensor;
  tensor.name = reader.name();
  const auto dimensions = reader.number<uint32_t>();
  if (dimensions > kMostDimensions)
    reader.refuse("expected at most ", kMostDimensions, " dimensions of ", shown(tensor.name), ", got ",
                  dimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = reader.number<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      reader.refuse("expected sizes of ", shown(tensor.name), " below 2^63, got ", size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  tensor.type_code = reader.number<uint32_t>();
  tensor.type = formats::find_ggml_type(tensor.type_code);
  offset = reader.number<uint64_t>();
  return tensor;
}

/// Bytes of a tensor; refuses rows that are no whole blocks and sizes that no file has. The strides of an empty tensor are
/// products of its other sizes.
int64_t bytes_of(const GgufBytesReader& reader, const FileTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) {
    if (!multiply(count, std::max<int64_t>(size, 1)))
      reader.refuse("expected fewer elements in ", shown(tensor.name));
  }
  if (std::ranges::count(tensor.shape, 0) > 0) count = 0;
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % tensor.type->elements != 0)
    reader.refuse("expected rows of whole blocks of ", tensor.type->elements, " for ", shown(tensor.name),
                  ", got ", row);
  count /= tensor.type->elements;
  if (!multiply(count, tensor.type->bytes)) reader.refuse("expected fewer bytes in ", shown(tensor.name));
  return count;
}

}  // namespace

File read(std::string_view bytes, const std::string& source) {
  GgufBytesReader reader(bytes, source);
  if (!bytes.starts_with("GGUF")) reader.refuse("expected a GGUF file");
  reader.take(4);
  const auto version = reader.number<uint32_t>();
  if (version != 2 && version != 3)
    reader.refuse("expected version 2 or 3", version << 16 == 0 ? " in little-endian order" : "", ", got ",
                  version);
  const auto tensors = reader.number<uint64_t>(), pairs = reader.number<uint64_t>();
  if (tensors > kMostTensors || tensors > reader.left() || pairs > kMostValues || pairs > reader.left())
    reader.refuse("expected numbers of tensors and pairs that the file can hold, got ", tensors, " and ",
                  pairs);
  File file;
  file.metadata = nlohmann::json::object();
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string key = reader.name();
    const ValueType type = reader.value_type();
    if (!file.metadata.emplace(key, reader.value(type)).second)
      reader.refuse("expected each key once, got ", shown(key), " again");
  }
  uint64_t alignment = kAlignment;
  if (const auto stated = file.metadata.find("general.alignment"); stated != file.metadata.end()) {
    alignment = stated->is_number_unsigned() ? stated->get<uint64_t>() : 0;
    if (!std::has_single_bit(alignment) || alignment > 65536)
      reader.refuse("expected general.alignment to be a power of 2 up to 65536, got ", stated->dump());
  }
  std::vector<uint64_t> offsets(tensors);
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    file.tensors.push_back(read_tensor(reader, offsets[i]));
    if (!names.insert(file.tensors.back().name).second)
      reader.refuse("expected each tensor once, got ", shown(file.tensors.back().name), " again");
  }
  const size_t padding = (alignment - reader.at() % alignment) % alignment;
  if (padding > reader.left() && tensors > 0) reader.refuse("expected tensors, got the end of the file");
  const std::string_view data = bytes.substr(std::min(bytes.size(), reader.at() + padding));
  uint64_t total = 0;
  for (uint64_t i = 0; i < tensors; ++i) {
    FileTensor& tensor = file.tensors[i];
    if (tensor.type == nullptr) continue;
    const auto size = static_cast<uint64_t>(bytes_of(reader, tensor));
    if (offsets[i] % alignment != 0 || offsets[i] > data.size() || size > data.size() - offsets[i])
      reader.refuse("expected the tensor ", shown(tensor.name), " within the ", data.size(),
                    " bytes of tensors, got ", size, " bytes from ", offsets[i], " on");
    total += size;
    if (total > data.size())
      reader.refuse("expected tensors with bytes of their own, got more than all ", data.size(),
                    " bytes with ", shown(tensor.name));
    tensor.bytes = data.substr(offsets[i], size);
  }
  return file;
}

}  // namespace ulp::exchange::gguf
