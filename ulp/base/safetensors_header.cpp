#include "ulp/base/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "ulp/base/safetensors.h"

namespace ulp {

namespace {

/// Bits of one element; 0 for an unknown word.
int element_bits(const std::string& dtype) {
  static const std::map<std::string, int> bits = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4},    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},        {"F16", 16},        {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},
      {"C64", 64},        {"F64", 64},        {"I64", 64},  {"U64", 64}};
  const auto found = bits.find(dtype);
  return found == bits.end() ? 0 : found->second;
}

}  // namespace

size_t safetensors_element_size(const std::string& dtype) {
  const int bits = element_bits(dtype);
  return bits % 8 == 0 ? static_cast<size_t>(bits) / 8 : 0;
}

namespace detail {

namespace {

/// An entry of ten characters takes some 300 bytes of memory.
constexpr size_t kMaxNames = size_t{1} << 19;

std::string in_quotes(const std::string& name) {
  return "'" + (name.size() > 80 ? name.substr(0, 80) + "..." : name) + "'";
}

/// Follows the parser event by event. Doing without a document keeps nesting bounded (the schema is three
/// deep), shows duplicate keys, which a document would drop in silence, and never holds more than the header
/// describes.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (at_ == At::start) return go(At::root);
    if (at_ == At::root && key_ == "__metadata__") return go(At::metadata);
    if (at_ == At::root) {
      entry_ = HeaderEntry{};
      entry_.name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      return go(At::entry);
    }
    refuse("an object");
  }
  bool end_object() override {
    if (at_ == At::root) return go(At::end);
    if (at_ == At::entry) finish_entry();
    return go(At::root);
  }
  bool key(string_t& name) override {
    key_ = name;
    if (at_ != At::entry && ++keys_ > kMaxNames)
      throw "more than " + std::to_string(kMaxNames) + " tensors and metadata entries";
    if (at_ == At::root && !names_.insert(name).second) throw "duplicate name " + in_quotes(name);
    if (at_ == At::metadata && header_.metadata.count(name))
      throw "duplicate metadata key " + in_quotes(name);
    return true;
  }
  bool start_array(size_t) override {
    if (at_ == At::entry && key_ == "shape" && !std::exchange(has_shape_, true)) return go(At::shape);
    if (at_ == At::entry && key_ == "data_offsets" && !std::exchange(has_offsets_, true))
      return go(At::offsets);
    refuse("an array");
  }
  bool end_array() override {
    if (at_ == At::offsets && offsets_.size() != 2)
      throw "expected two data_offsets in " + in_quotes(entry_.name);
    if (at_ == At::offsets) {
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
      offsets_.clear();
    }
    return go(At::entry);
  }
  bool string(string_t& text) override {
    if (at_ == At::metadata) {
      header_.metadata.emplace(key_, std::move(text));
      return true;
    }
    if (at_ != At::entry || key_ != "dtype" || std::exchange(has_dtype_, true)) refuse("a string");
    entry_.dtype = std::move(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::offsets) {
      offsets_.push_back(value);
      if (offsets_.size() > 2) throw "expected two data_offsets in " + in_quotes(entry_.name);
      return true;
    }
    if (at_ != At::shape) refuse("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw "size " + std::to_string(value) + " of " + in_quotes(entry_.name) + " does not fit 63 bits";
    }
    entry_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    refuse("a number that is no 64-bit integer");
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw "the header is not valid JSON at byte " + std::to_string(position);
  }

 private:
  enum class At { start, root, metadata, entry, shape, offsets, end };

  bool go(At next) {
    at_ = next;
    return true;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    switch (at_) {
      case At::metadata:
        throw "metadata " + in_quotes(key_) + " is " + what + ", not a string";
      case At::root:
        throw in_quotes(key_) + " is " + what + ", not an object";
      case At::entry:
        throw "unexpected or repeated field " + in_quotes(key_) + " (" + what + ") in " +
            in_quotes(entry_.name);
      default:
        throw "unexpected " + what + " in " + in_quotes(key_) + " of " + in_quotes(entry_.name);
    }
  }
  void finish_entry() {
    if (!has_dtype_) throw in_quotes(entry_.name) + " has no dtype";
    if (!has_shape_) throw in_quotes(entry_.name) + " has no shape";
    if (!has_offsets_) throw in_quotes(entry_.name) + " has no data_offsets";
    header_.entries.push_back(std::move(entry_));
  }

  size_t keys_ = 0;
  SafetensorsHeader header_;
  HeaderEntry entry_;
  At at_ = At::start;
  std::string key_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> names_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

void check_layout(const std::vector<HeaderEntry>& entries, uint64_t data_bytes) {
  uint64_t at = 0;
  for (const HeaderEntry& entry : entries) {
    const std::string name = in_quotes(entry.name);
    if (entry.begin > entry.end || entry.end > data_bytes) {
      throw "the bytes " + std::to_string(entry.begin) + ".." + std::to_string(entry.end) + " of " + name +
          " are outside the data (" + std::to_string(data_bytes) + " bytes)";
    }
    if (entry.begin < at) throw name + " overlaps the tensor before it";
    if (entry.begin > at) throw "a hole of " + std::to_string(entry.begin - at) + " bytes before " + name;
    uint64_t expected = 0;
    try {
      expected = safetensors_bytes(entry.dtype, entry.shape);
    } catch (const std::string& reason) {
      throw name + ": " + reason;
    }
    if (expected != entry.end - entry.begin) {
      throw name + " has " + std::to_string(entry.end - entry.begin) + " bytes, its dtype and shape need " +
          std::to_string(expected);
    }
    at = entry.end;
  }
  if (at != data_bytes) throw std::to_string(data_bytes - at) + " bytes at the end belong to no tensor";
}

}  // namespace

uint64_t safetensors_bytes(const std::string& dtype, const std::vector<int64_t>& shape) {
  const auto bits = static_cast<int64_t>(element_bits(dtype));
  if (bits == 0) throw "unknown dtype " + in_quotes(dtype);
  // Sizes of zero count as one here: strides made from such a shape must not overflow either.
  int64_t extent = bits;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) throw "negative size " + std::to_string(size);
    empty = empty || size == 0;
    if (__builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) {
      throw std::string("its shape's size overflows");
    }
  }
  if (empty) return 0;
  if (extent % 8 != 0) throw "its " + dtype + " elements do not end on a whole byte";
  return static_cast<uint64_t>(extent) / 8;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') throw std::string("the header does not start with '{'");
  // The parser takes a zero byte for the end of its input and would not look at what follows.
  if (text.find('\0') != std::string_view::npos) throw std::string("the header holds a zero byte");
  HeaderReader reader;
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const HeaderEntry& a, const HeaderEntry& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  check_layout(header.entries, data_bytes);
  return header;
}

}  // namespace detail
}  // namespace ulp
