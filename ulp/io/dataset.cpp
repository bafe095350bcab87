#include "ulp/io/dataset.h"

#include <torch/types.h>

#include <cstdlib>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

/// The index of the first label outside [0, classes), or -1.
int64_t first_bad_label(const at::Tensor& labels, int64_t classes) {
  const auto* values = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (values[i] < 0 || values[i] >= classes) return i;
  }
  return -1;
}

/// The file of that name in the folder, compressed or not; empty when there is none.
fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const char* suffix : {".gz", ""}) {
    const fs::path path = folder / (name + suffix);
    if (fs::exists(path, ignored)) return path;
  }
  return {};
}

}  // namespace

void check_dataset(const ImageDataset& dataset) {
  constexpr const char* kWhere = "io.check_dataset";
  const at::Tensor& images = dataset.images;
  const at::Tensor& labels = dataset.labels;
  if (!images.defined() || images.scalar_type() != at::kByte || images.dim() != 4) {
    fail(kWhere, "expected images of type uint8 and shape (N, C, H, W)");
  }
  if (!labels.defined() || labels.scalar_type() != at::kLong || labels.dim() != 1 ||
      !labels.is_contiguous()) {
    fail(kWhere, "expected contiguous labels of type int64 and shape (N)");
  }
  if (images.size(0) != labels.size(0)) {
    fail(kWhere, "expected as many labels as images, got ", labels.size(0), " and ", images.size(0));
  }
  if (images.numel() == 0) fail(kWhere, "expected at least one image, got shape ", images.sizes());
  if (const int64_t bad = first_bad_label(labels, dataset.num_classes); bad >= 0) {
    fail(kWhere, "expected labels below ", dataset.num_classes, ", got ", labels[bad].item<int64_t>(),
         " for image ", bad);
  }
  const auto channels = static_cast<size_t>(images.size(1));
  for (const auto* values : {&dataset.mean, &dataset.std}) {
    if (values->size() != 1 && values->size() != channels) {
      fail(kWhere, "expected one mean and std, or one for each of ", channels, " channels, got ",
           values->size());
    }
  }
  for (double std : dataset.std) {
    if (!(std > 0)) fail(kWhere, "expected std > 0, got ", std);
  }
}

ImageDataset slice(const ImageDataset& dataset, int64_t begin, int64_t end) {
  if (begin < 0 || end > dataset.size() || begin >= end) {
    fail("io.slice", "expected a range within the ", dataset.size(), " samples, got ", begin, "..", end);
  }
  ImageDataset part = dataset;
  part.images = dataset.images.slice(0, begin, end);
  part.labels = dataset.labels.slice(0, begin, end);
  return part;
}

ImageDataset load_idx(const fs::path& images, const fs::path& labels, int64_t num_classes) {
  constexpr const char* kWhere = "io.load_idx";
  ImageDataset dataset;
  dataset.num_classes = num_classes;
  const at::Tensor pixels = read_idx(images);
  if (pixels.scalar_type() != at::kByte || pixels.dim() != 3) {
    fail_file(kWhere, "expected bytes of shape (N, H, W) in '", images.string(), "', got ", pixels.toString(),
              " of ", pixels.sizes());
  }
  const at::Tensor classes = read_idx(labels);
  if (classes.scalar_type() != at::kByte || classes.dim() != 1) {
    fail_file(kWhere, "expected bytes of shape (N) in '", labels.string(), "', got ", classes.toString(),
              " of ", classes.sizes());
  }
  dataset.images = pixels.unsqueeze(1);
  dataset.labels = classes.to(at::kLong);
  try {
    check_dataset(dataset);
  } catch (const Error& error) {
    fail_file(kWhere, "'", images.string(), "' and '", labels.string(), "': ", error.what());
  }
  return dataset;
}

std::vector<fs::path> fashion_mnist_folders() {
  const std::string package = "usr/share/datasets/fashion-mnist";
  std::vector<fs::path> folders;
  const auto add_root = [&](const fs::path& root) {
    for (const fs::path& folder : {root, root / "fashion-mnist", root / package}) folders.push_back(folder);
  };
  if (const char* given = std::getenv("ULP_DATA_DIR"); given != nullptr && *given != '\0') add_root(given);
  folders.push_back(fs::path("/") / package);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    add_root(fs::path(cache) / "ulp");
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    add_root(fs::path(home) / ".cache" / "ulp");
  }
  return folders;
}

ImageDataset load_fashion_mnist(Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  std::string searched;
  for (const fs::path& folder : fashion_mnist_folders()) {
    const fs::path images = find_file(folder, prefix + "-images-idx3-ubyte");
    const fs::path labels = find_file(folder, prefix + "-labels-idx1-ubyte");
    searched += "\n  " + folder.string();
    if (images.empty() || labels.empty()) continue;
    ImageDataset dataset = load_idx(images, labels, 10);
    dataset.class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                           "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
    dataset.mean = {0.2860405969887955};
    dataset.std = {0.3530242445149223};
    return dataset;
  }
  fail_file("io.load_fashion_mnist",
            "the data set was not found; install it (apt-get install dataset-fashion-mnist), or ",
            "set ULP_DATA_DIR to a folder that holds ", prefix, "-images-idx3-ubyte.gz and ", prefix,
            "-labels-idx1-ubyte.gz. Searched:", searched);
}

}  // namespace ulp::io
