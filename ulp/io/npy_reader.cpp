// The format (numpy.lib.format): "\x93NUMPY", two bytes of version, the length of the header (16 bits in
// version 1, 32 later), the header, the values. The header is a Python dictionary with the keys descr,
// fortran_order and shape, padded with spaces and ended by a newline.
#include "ulp/io/npy_reader.h"

#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

constexpr const char* kLoadNpyWhere = "io.load_npy";
constexpr uint64_t kMagicBytes = 8;
constexpr uint64_t kMaxHeader = 1 << 16;  // numpy.load trusts 10,000
constexpr size_t kMaxDims = 32;           // NumPy's own limit

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

/// Parses the dictionary; nothing but its three keys and their kinds of values is accepted.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !header.descr) {
        if (peek() == '[') fail_file(kLoadNpyWhere, "expected plain numbers, got records in '", file_, "'");
        header.descr = quoted();
      } else if (key == "fortran_order" && !header.fortran_order) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !header.shape) {
        header.shape = tuple();
      } else {
        damaged("an unexpected key '" + key.substr(0, 20) + "'");
      }
      if (!accept(',') && peek() != '}') damaged("no ',' or '}' after a value");
    }
    if (peek() != '\0') damaged("more text after the dictionary");
    if (!header.descr || !header.fortran_order || !header.shape) damaged("a missing key");
    return header;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    fail_file(kLoadNpyWhere, "the header of '", file_, "' is damaged: it has ", what);
  }
  /// The next character that is no space; 0 at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) damaged(std::string("no '") + wanted + "' where one belongs");
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') damaged("no quoted text where one belongs");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) damaged("a text without an end");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (inside.find('\\') != std::string_view::npos) damaged("an escape");
    at_ = end + 1;
    return std::string(inside);
  }
  bool boolean() {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    damaged("neither True nor False as fortran_order");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      peek();
      int64_t size = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) damaged("a shape of something else than sizes");
      at_ = static_cast<size_t>(end - text_.data());
      sizes.push_back(size);
      if (sizes.size() > kMaxDims) damaged("more than 32 dimensions");
      if (!accept(',') && peek() != ')') damaged("no ',' or ')' after a size");
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

struct NpyType {
  std::string_view code;
  at::ScalarType type;
};
constexpr NpyType kNpyTypes[] = {{"b1", at::kBool},  {"u1", at::kByte},  {"i1", at::kChar},
                                 {"i2", at::kShort}, {"i4", at::kInt},   {"i8", at::kLong},
                                 {"f2", at::kHalf},  {"f4", at::kFloat}, {"f8", at::kDouble}};

at::ScalarType type_of(const std::string& descr, const std::string& file) {
  const char order = descr.empty() ? '\0' : descr[0];
  const std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  if (code.substr(0, 1) == "O") {
    fail_file(kLoadNpyWhere, "expected plain numbers, got Python objects in '", file,
              "' (they are never unpickled)");
  }
  for (const NpyType& one : kNpyTypes) {
    if (one.code != code) continue;
    if (order == '<' || (order == '|' && at::elementSize(one.type) == 1)) return one.type;
    if (order == '>') {
      fail_file(kLoadNpyWhere, "expected little-endian numbers, got '", descr, "' in '", file,
                "'; convert with array.astype(array.dtype.newbyteorder('<'))");
    }
  }
  fail_file(kLoadNpyWhere, "expected one of b1, u1, i1, i2, i4, i8, f2, f4, f8, got '", descr.substr(0, 20),
            "' in '", file, "'");
}

std::string read_header(ByteSource& source) {
  unsigned char start[kMagicBytes];
  if (source.left() < sizeof start)
    fail_file(kLoadNpyWhere, "'", source.name(), "' is too short for an array");
  source.read(start, sizeof start);
  if (std::string_view(reinterpret_cast<char*>(start), 6) != "\x93NUMPY") {
    fail_file(kLoadNpyWhere, "'", source.name(), "' is not an array of NumPy");
  }
  if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
    fail_file(kLoadNpyWhere, "expected format version 1.0, 2.0 or 3.0, got ", int{start[6]}, ".",
              int{start[7]}, " in '", source.name(), "'");
  }
  unsigned char length[4] = {};
  source.read(length, start[6] == 1 ? 2 : 4);
  const uint64_t bytes =
      uint64_t{length[0]} | uint64_t{length[1]} << 8 | uint64_t{length[2]} << 16 | uint64_t{length[3]} << 24;
  if (bytes > kMaxHeader || bytes > source.left()) {
    fail_file(kLoadNpyWhere, "the header of '", source.name(), "' claims ", bytes, " bytes, of ",
              source.left(), " that are left and ", kMaxHeader, " at most");
  }
  std::string header(bytes, '\0');
  source.read(header.data(), header.size());
  return header;
}

void check_size(const Header& header, at::ScalarType type, const ByteSource& source) {
  auto bytes = static_cast<uint64_t>(at::elementSize(type));
  bool fits = true;
  for (const int64_t size : *header.shape) {
    // A size of 0 must not hide an overflow of the others: strides are computed from them.
    const uint64_t factor = static_cast<uint64_t>(std::max<int64_t>(size, 1));
    fits = fits && !__builtin_mul_overflow(bytes, factor, &bytes) && bytes <= uint64_t{1} << 62;
  }
  if (fits && std::count(header.shape->begin(), header.shape->end(), 0) > 0) bytes = 0;
  if (!fits || bytes > source.left()) {
    fail_file(kLoadNpyWhere, "'", source.name(), "' is truncated, or its header promises more than it holds");
  }
  if (bytes < source.left()) {
    fail_file(kLoadNpyWhere, "'", source.name(), "' holds ", source.left() - bytes,
              " bytes more than its header says");
  }
}

}  // namespace

at::Tensor read_npy(ByteSource& source) {
  const std::string text = read_header(source);
  const Header header = HeaderParser(text, source.name()).parse();
  const at::ScalarType type = type_of(*header.descr, source.name());
  check_size(header, type, source);
  std::vector<int64_t> shape = *header.shape;
  if (*header.fortran_order) std::reverse(shape.begin(), shape.end());
  at::Tensor values = torch::empty(shape, type);
  source.read(values.data_ptr(), values.nbytes());
  if (type == at::kBool && values.view(at::kByte).gt(1).any().item<bool>()) {
    fail_file(kLoadNpyWhere, "'", source.name(), "' holds bytes that are neither false nor true");
  }
  if (!*header.fortran_order) return values;
  std::vector<int64_t> reversed(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) reversed[i] = static_cast<int64_t>(shape.size() - 1 - i);
  return values.permute(reversed).contiguous();
}

}  // namespace ulp::io
