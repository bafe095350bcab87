#include "ulp/io/npy.h"

#include <torch/types.h>
#include <zip.h>

#include <fstream>
#include <memory>

#include "ulp/base/error.h"
#include "ulp/io/npy_reader.h"
#include "ulp/io/unpacked_bytes.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const fs::path& path) : name_(path.string()) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) fail_file("io.load_npy", "expected a file, got '", name_, "'");
    left_ = fs::file_size(path, error);
    file_.open(path, std::ios::binary);
    if (error || !file_) fail_file("io.load_npy", "could not read '", name_, "'");
  }
  void read(void* target, uint64_t bytes) override {
    if (bytes > left_ || !file_.read(static_cast<char*>(target), static_cast<std::streamsize>(bytes))) {
      fail_file("io.load_npy", "'", name_, "' ends early");
    }
    left_ -= bytes;
  }
  uint64_t left() const override { return left_; }
  const std::string& name() const override { return name_; }

 private:
  std::string name_;
  std::ifstream file_;
  uint64_t left_ = 0;
};

constexpr const char* kNpz = "io.load_npz";

struct CloseZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

/// One entry of an archive.
class EntrySource final : public ByteSource {
 public:
  EntrySource(zip_t* archive, const zip_stat_t& stat, std::string name)
      : name_(std::move(name)), left_(stat.size), entry_(zip_fopen_index(archive, stat.index, 0)) {
    if (!entry_) fail_file(kNpz, "could not read '", name_, "': ", zip_strerror(archive));
  }
  void read(void* target, uint64_t bytes) override {
    auto* at = static_cast<char*>(target);
    if (bytes > left_) fail_file(kNpz, "'", name_, "' ends early");
    left_ -= bytes;
    while (bytes > 0) {
      const zip_int64_t got = zip_fread(entry_.get(), at, bytes);
      if (got <= 0) damaged();
      at += got;
      bytes -= static_cast<uint64_t>(got);
    }
  }
  /// Also reaches the checksum, which libzip compares at the end of the entry.
  void expect_end() {
    char extra = 0;
    if (zip_fread(entry_.get(), &extra, 1) != 0) damaged();
  }
  uint64_t left() const override { return left_; }
  const std::string& name() const override { return name_; }

 private:
  [[noreturn]] void damaged() {
    fail_file(kNpz, "'", name_, "' is damaged: ", zip_file_strerror(entry_.get()));
  }

  std::string name_;
  uint64_t left_ = 0;
  std::unique_ptr<zip_file_t, CloseZip> entry_;
};

std::unique_ptr<zip_t, CloseZip> open_archive(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) fail_file(kNpz, "expected a file, got '", path.string(), "'");
  int code = 0;
  std::unique_ptr<zip_t, CloseZip> archive(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  fail_file(kNpz, "could not read '", path.string(), "' as a .npz archive: ", reason);
}

/// Refuses entries that could not have been written by NumPy before anything is allocated for them.
void check_entry(const zip_stat_t& stat, const std::string& name) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  constexpr uint64_t kBestRatio = 1032;  // of deflate
  if ((stat.valid & kNeeded) != kNeeded) fail_file(kNpz, "'", name, "' lacks its size or kind");
  if (stat.encryption_method != ZIP_EM_NONE) fail_file(kNpz, "'", name, "' is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    fail_file(kNpz, "expected an entry that is stored or deflated, got method ", stat.comp_method, " for '",
              name, "'");
  }
  const uint64_t ratio = stat.comp_method == ZIP_CM_STORE ? 1 : kBestRatio;
  if (stat.size / ratio > stat.comp_size) {
    fail_file(kNpz, "'", name, "' promises ", stat.size, " bytes, more than its ", stat.comp_size,
              " can hold");
  }
}

}  // namespace

at::Tensor load_npy(const fs::path& path) {
  FileSource source(path);
  return read_npy(source);
}

std::map<std::string, at::Tensor> load_npz(const fs::path& path) {
  const auto archive = open_archive(path);
  std::map<std::string, at::Tensor> arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  const uint64_t packed = fs::file_size(path);
  uint64_t unpacked = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0) {
      fail_file(kNpz, "could not read entry ", i, " of '", path.string(), "': ", zip_strerror(archive.get()));
    }
    std::string key = stat.name;
    const std::string name = path.string() + ":" + key.substr(0, 100);
    if (!key.ends_with(".npy")) fail_file(kNpz, "expected arrays (.npy) only, got '", name, "'");
    check_entry(stat, name);
    unpacked += stat.size;  // bounded by check_entry
    check_unpacked(kNpz, path.string(), packed, unpacked);
    EntrySource source(archive.get(), stat, name);
    key.resize(key.size() - 4);
    if (arrays.contains(key)) fail_file(kNpz, "'", name, "' is there twice");
    arrays[key] = read_npy(source);
    source.expect_end();
  }
  return arrays;
}

}  // namespace ulp::io
