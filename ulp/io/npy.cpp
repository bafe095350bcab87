#include "ulp/io/npy.h"

#include <torch/types.h>

#include <fstream>

#include "ulp/base/error.h"
#include "ulp/io/npy_reader.h"
#include "ulp/io/zip_archive.h"

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

/// One array of an archive.
class EntrySource final : public ByteSource {
 public:
  explicit EntrySource(ZipReader& entry) : entry_(entry) {}
  void read(void* target, uint64_t bytes) override { entry_.read(target, bytes); }
  uint64_t left() const override { return entry_.left(); }
  const std::string& name() const override { return entry_.name(); }

 private:
  ZipReader& entry_;
};

}  // namespace

at::Tensor load_npy(const fs::path& path) {
  FileSource source(path);
  return read_npy(source);
}

std::map<std::string, at::Tensor> load_npz(const fs::path& path) {
  constexpr const char* kNpz = "io.load_npz";
  constexpr std::string_view kEnding = ".npy";
  const ZipArchive archive(path, kNpz, "a .npz archive");
  std::map<std::string, at::Tensor> arrays;
  for (const ZipEntry& entry : archive.entries()) {
    if (!entry.name.ends_with(kEnding))
      fail_file(kNpz, "expected arrays (.npy) only, got '", archive.label(entry), "'");
  }
  for (const ZipEntry& entry : archive.entries()) {
    const auto reader = archive.open(entry);
    EntrySource source(*reader);
    arrays[entry.name.substr(0, entry.name.size() - kEnding.size())] = read_npy(source);
    reader->expect_end();
  }
  return arrays;
}

}  // namespace ulp::io
