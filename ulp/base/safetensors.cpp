#include "ulp/base/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/safetensors_header.h"

namespace ulp {

namespace {

constexpr const char* kRead = "base.SafetensorsFile";
constexpr const char* kWrite = "base.write_safetensors";
constexpr size_t kAlignment = 64;

/// A read-only mapping of a regular file.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a pipe without a writer must not hang; it is refused just below.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) refuse(path, errno);
    struct stat status {};
    const bool known = ::fstat(descriptor, &status) == 0;
    if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    const int reason = errno;
    ::close(descriptor);
    if (!known) refuse(path, reason);
    if (!S_ISREG(status.st_mode))
      fail_file(kRead, "expected a file, got '", path.string(), "', which is not one");
    if (data_ == MAP_FAILED) refuse(path, reason);
  }
  ~Mapping() {
    if (data_ != nullptr && data_ != MAP_FAILED) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  [[noreturn]] static void refuse(const std::filesystem::path& path, int reason) {
    fail_file(kRead, "could not read '", path.string(), "': ", std::strerror(reason));
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

uint64_t read_little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

/// The header's text; throws std::string when its length cannot be.
std::string_view header_text(std::span<const std::byte> file) {
  if (file.size() < 8) throw "expected at least 8 bytes, got " + std::to_string(file.size());
  const uint64_t length = read_little_endian(file.data());
  if (length > detail::kSafetensorsMaxHeader) {
    throw "a header of " + std::to_string(length) + " bytes is over the format's limit of " +
        std::to_string(detail::kSafetensorsMaxHeader);
  }
  if (length > file.size() - 8) {
    throw "the header says " + std::to_string(length) + " bytes, but only " +
        std::to_string(file.size() - 8) + " follow (truncated?)";
  }
  return {reinterpret_cast<const char*>(file.data() + 8), static_cast<size_t>(length)};
}

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(kWrite, "expected names and metadata in UTF-8, got a string that is not");
  }
}

std::string header_json(std::span<const TensorEntry> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += json_string(key) + ':' + json_string(value) + ',';
    text.back() = '}';
    text += ',';
  }
  uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const uint64_t end = offset + tensor.bytes.size();
    text += json_string(tensor.name) + ":{\"dtype\":" + json_string(tensor.dtype) + ",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(tensor.shape[i]);
    }
    text += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(end) + "]},";
    offset = end;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  return text;
}

void check_entries(std::span<const TensorEntry> tensors) {
  std::unordered_set<std::string> names;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name == "__metadata__") fail(kWrite, "the name '__metadata__' is reserved by the format");
    if (!names.insert(tensor.name).second) fail(kWrite, "duplicate name '", tensor.name, "'");
    uint64_t expected = 0;
    try {
      expected = detail::safetensors_bytes(tensor.dtype, tensor.shape);
    } catch (const std::string& reason) {
      fail(kWrite, "'", tensor.name, "': ", reason);
    }
    if (expected != tensor.bytes.size()) {
      fail(kWrite, "expected ", expected, " bytes for '", tensor.name, "', got ", tensor.bytes.size());
    }
  }
}

}  // namespace

struct SafetensorsFile::State {
  std::optional<Mapping> mapping;
  std::span<const std::byte> file;
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::unordered_map<std::string, size_t> by_name;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->file = state_->mapping.emplace(path).bytes();
  read(path.string());
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, const std::string& name)
    : state_(std::make_unique<State>()) {
  state_->file = bytes;
  read(name);
}

void SafetensorsFile::read(const std::string& name) {
  try {
    const std::string_view text = header_text(state_->file);
    const std::byte* data = state_->file.data() + 8 + text.size();
    auto header = detail::parse_safetensors_header(text, state_->file.size() - 8 - text.size());
    state_->metadata = std::move(header.metadata);
    state_->tensors.reserve(header.entries.size());
    for (detail::HeaderEntry& entry : header.entries) {
      state_->by_name.emplace(entry.name, state_->tensors.size());
      state_->tensors.push_back({std::move(entry.name),
                                 std::move(entry.dtype),
                                 std::move(entry.shape),
                                 {data + entry.begin, data + entry.end}});
    }
  } catch (const std::string& reason) {
    fail_file(kRead, "'", name, "' is not a valid safetensors file: ", reason);
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<TensorEntry>& SafetensorsFile::tensors() const {
  return state_->tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}
const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->tensors[found->second];
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_entries(tensors);
  const std::string header = header_json(tensors, metadata);
  if (header.size() > detail::kSafetensorsMaxHeader) {
    fail(kWrite, "a header of ", header.size(), " bytes is over the format's limit");
  }
  unsigned char length[8];
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<unsigned char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  AtomicFile file(path);
  file.write(length, sizeof length);
  file.write(header);
  for (const TensorEntry& tensor : tensors) file.write(tensor.bytes.data(), tensor.bytes.size());
  file.commit();
}

}  // namespace ulp
