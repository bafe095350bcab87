// IDX: two zero bytes, a type byte, the number of dimensions, each dimension as 32 bits big-endian, then the
// values, big-endian too (http://yann.lecun.com/exdb/mnist, "The IDX file format").
#include <torch/types.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/io/dataset.h"
#include "ulp/io/unpacked_bytes.h"

namespace ulp::io {

namespace {

constexpr const char* kReadIdxWhere = "io.read_idx";

/// A file read through zlib, which passes plain files through unchanged.
class Stream {
 public:
  explicit Stream(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
      fail_file(kReadIdxWhere, "expected a file, got '", path.string(), "', ",
                error ? error.message() : "which is not one");
    }
    stored_bytes_ = std::filesystem::file_size(path, error);
    errno = 0;
    file_ = ::gzopen(path.c_str(), "rbe");
    if (file_ == nullptr)
      fail_file(kReadIdxWhere, "could not read '", path.string(), "': ", std::strerror(errno));
    ::gzbuffer(file_, 1 << 18);
  }
  ~Stream() { ::gzclose_r(file_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void read(void* target, uint64_t bytes) {
    auto* at = static_cast<char*>(target);
    while (bytes > 0) {
      const auto chunk = static_cast<unsigned>(std::min<uint64_t>(bytes, 1 << 30));
      const int got = ::gzread(file_, at, chunk);
      check();
      if (got <= 0)
        fail_file(kReadIdxWhere, "'", path_.string(), "' ends early: ", bytes, " more bytes were expected");
      at += got;
      bytes -= static_cast<uint64_t>(got);
    }
  }
  /// Also reaches gzip's checksum, which zlib compares at the end of the stream.
  void expect_end() {
    char extra = 0;
    const int got = ::gzread(file_, &extra, 1);
    check();
    if (got > 0) fail_file(kReadIdxWhere, "'", path_.string(), "' holds more bytes than its header says");
  }
  /// The most that the file can hold, or may unpack to. Deflate's best ratio is 1032 to 1.
  uint64_t most_bytes() const {
    if (::gzdirect(file_)) return stored_bytes_;
    return std::min(stored_bytes_ * 1032, most_unpacked_bytes(stored_bytes_));
  }

 private:
  void check() {
    int code = Z_OK;
    const char* reason = ::gzerror(file_, &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    if (code == Z_BUF_ERROR) fail_file(kReadIdxWhere, "'", path_.string(), "' is truncated");
    fail_file(kReadIdxWhere, "'", path_.string(),
              "' is damaged: ", code == Z_ERRNO ? std::strerror(errno) : reason);
  }

  std::filesystem::path path_;
  uint64_t stored_bytes_ = 0;
  ::gzFile file_ = nullptr;
};

struct IdxType {
  unsigned char code;
  at::ScalarType type;
};
constexpr IdxType kIdxTypes[] = {{0x08, at::kByte}, {0x09, at::kChar},  {0x0B, at::kShort},
                                 {0x0C, at::kInt},  {0x0D, at::kFloat}, {0x0E, at::kDouble}};

at::ScalarType type_of(unsigned char code, const std::filesystem::path& path) {
  for (const IdxType& one : kIdxTypes) {
    if (one.code == code) return one.type;
  }
  fail_file(kReadIdxWhere, "'", path.string(), "' has an unknown type code ", static_cast<int>(code));
}

void to_little_endian(at::Tensor& values) {
  const auto width = static_cast<size_t>(values.element_size());
  if (width == 1) return;
  auto* at = static_cast<unsigned char*>(values.data_ptr());
  for (int64_t i = 0; i < values.numel(); ++i, at += width) std::reverse(at, at + width);
}

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path) {
  Stream file(path);
  unsigned char magic[4];
  file.read(magic, sizeof magic);
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0 || magic[3] > 8) {
    fail_file(kReadIdxWhere, "'", path.string(), "' is not an IDX file (nor one compressed with gzip)");
  }
  const at::ScalarType type = type_of(magic[2], path);
  std::vector<int64_t> shape(magic[3]);
  auto bytes = static_cast<uint64_t>(at::elementSize(type));
  for (int64_t& size : shape) {
    unsigned char word[4];
    file.read(word, sizeof word);
    size = int64_t{word[0]} << 24 | int64_t{word[1]} << 16 | int64_t{word[2]} << 8 | int64_t{word[3]};
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &bytes) ||
        bytes > file.most_bytes()) {
      fail_file(kReadIdxWhere, "the header of '", path.string(),
                "' promises more than the file can hold, or ",
                "than four times its bytes and 256 MiB where it is packed");
    }
  }
  at::Tensor values = torch::empty(shape, type);
  file.read(values.data_ptr(), values.nbytes());
  file.expect_end();
  to_little_endian(values);
  return values;
}

}  // namespace ulp::io
