// CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 bytes, the red plane first
// (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version").
#include <torch/types.h>

#include <algorithm>
#include <fstream>

#include "ulp/base/error.h"
#include "ulp/io/dataset.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLoadCifarWhere = "io.load_cifar";
constexpr int64_t kImagePixels = 3 * 32 * 32;
constexpr int64_t kRecord = 1 + kImagePixels;
constexpr int64_t kClasses = 10;

/// The files of the split, by name.
std::vector<fs::path> find_files(const fs::path& folder, Split split) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool wanted = split == Split::test ? name == "test_batch.bin"
                                             : name.starts_with("data_batch_") && name.ends_with(".bin");
    if (wanted) files.push_back(entry.path());
  }
  if (files.empty()) {
    fail_file(kLoadCifarWhere, "expected a folder with ",
              split == Split::test ? "test_batch.bin" : "data_batch_1.bin and its like", ", got '",
              folder.string(), "'");
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The records of one file: uint8 (N, 3073).
at::Tensor read_records(const fs::path& path) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) fail_file(kLoadCifarWhere, "could not read '", path.string(), "': ", error.message());
  if (bytes == 0 || bytes % kRecord != 0) {
    fail_file(kLoadCifarWhere, "expected a multiple of ", kRecord, " bytes in '", path.string(), "', got ",
              bytes);
  }
  at::Tensor records = torch::empty({bytes / kRecord, kRecord}, at::kByte);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(static_cast<char*>(records.data_ptr()), bytes)) {
    fail_file(kLoadCifarWhere, "could not read '", path.string(), "'");
  }
  const at::Tensor labels = records.select(1, 0);
  if (const auto largest = labels.max().item<int64_t>(); largest >= kClasses) {
    fail_file(kLoadCifarWhere, "expected labels below ", kClasses, " in '", path.string(), "', got ", largest,
              "; is it CIFAR-100?");
  }
  return records;
}

}  // namespace

ImageDataset load_cifar(const fs::path& folder, Split split) {
  std::error_code ignored;
  const fs::path inner = folder / "cifar-10-batches-bin";
  std::vector<at::Tensor> parts;
  for (const fs::path& path : find_files(fs::is_directory(inner, ignored) ? inner : folder, split)) {
    parts.push_back(read_records(path));
  }
  const at::Tensor records = torch::cat(parts);
  ImageDataset dataset;
  dataset.images = records.narrow(1, 1, kImagePixels).reshape({records.size(0), 3, 32, 32});
  dataset.labels = records.select(1, 0).to(at::kLong);
  dataset.num_classes = kClasses;
  dataset.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                         "dog",      "frog",       "horse", "ship", "truck"};
  dataset.mean = {0.4914, 0.4822, 0.4465};
  dataset.std = {0.2470, 0.2435, 0.2616};
  return dataset;
}

}  // namespace ulp::io
