#include "ulp/train/data.h"

#include <filesystem>

#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"

namespace ulp::train {

namespace fs = std::filesystem;

namespace {

fs::path idx_file(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  return fs::exists(plain) ? plain : fs::path(plain.string() + ".gz");
}

io::ImageDataset load_folder(const fs::path& folder, io::Split split, int64_t num_classes) {
  if (!fs::is_directory(folder)) {
    fail_file("train.load_images", "expected 'fashion-mnist' or a folder with IDX files, got '",
              folder.string(), "'");
  }
  const std::string prefix = split == io::Split::train ? "train" : "t10k";
  return io::load_idx(idx_file(folder, prefix + "-images-idx3-ubyte"),
                      idx_file(folder, prefix + "-labels-idx1-ubyte"), num_classes);
}

}  // namespace

io::ImageDataset load_images(const std::string& name, io::Split split, const ModelSpec& spec) {
  io::ImageDataset data =
      name == "fashion-mnist" ? io::load_fashion_mnist(split) : load_folder(name, split, spec.num_classes);
  const at::IntArrayRef sizes = data.images.sizes();
  if (sizes[1] != spec.in_channels || sizes[2] != spec.image_size || sizes[3] != spec.image_size) {
    fail("train.load_images", "expected images of ", spec.in_channels, "x", spec.image_size, "x",
         spec.image_size, " for ", spec.name, ", got ", sizes[1], "x", sizes[2], "x", sizes[3], " in '", name,
         "'");
  }
  if (data.num_classes > spec.num_classes) {
    fail("train.load_images", "expected at most ", spec.num_classes, " classes for ", spec.name, ", got ",
         data.num_classes);
  }
  data.mean = spec.mean;
  data.std = spec.std;
  return data;
}

at::Tensor first_images(const io::ImageDataset& data, int64_t count) {
  if (count < 1 || count > data.size())
    fail("train.first_images", "expected 1 to ", data.size(), " images, got ", count);
  io::BatchLoader loader(io::slice(data, 0, count),
                         {.batch_size = count, .shuffle = false, .channels_last = false});
  return loader.next()->images;
}

}  // namespace ulp::train
