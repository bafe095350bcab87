// Labelled images in memory, read from IDX files (the format of MNIST), plain or compressed with gzip, or
// from CIFAR-10's binary files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::io {

/// Images with one label each.
struct ImageDataset {
  at::Tensor images;  ///< uint8 (N, C, H, W)
  at::Tensor labels;  ///< int64 (N), each in [0, num_classes)
  int64_t num_classes = 10;
  std::vector<std::string> class_names;  ///< empty, or one for each class
  std::vector<double> mean = {0.0};  ///< per channel, of pixels scaled to [0, 1]; what BatchLoader subtracts
  std::vector<double> std = {1.0};   ///< per channel; what BatchLoader divides by

  int64_t size() const { return images.defined() ? images.size(0) : 0; }
};

/// Throws Error unless the images are uint8 (N, C, H, W), the labels int64 (N) and in range, and N > 0.
ULP_API void check_dataset(const ImageDataset& dataset);

/// The samples [begin, end) of a data set, sharing its memory.
ULP_API ImageDataset slice(const ImageDataset& dataset, int64_t begin, int64_t end);

/// One IDX file as a tensor of its own type and shape. Throws FileError when it is missing, of another kind,
/// truncated, longer than its header says, damaged (gzip's checksum), or when its header promises more than
/// the file can hold.
ULP_API at::Tensor read_idx(const std::filesystem::path& path);

/// Images (uint8, N x H x W) and labels (uint8, N) from two IDX files. Throws FileError where they do not fit
/// together.
ULP_API ImageDataset load_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                              int64_t num_classes = 10);

/// Which part of a data set.
enum class Split { train, test };

/// Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): 60,000 and 10,000 images of 28x28 in ten classes, with the
/// mean and deviation of the training set. Looks in the folder that ULP_DATA_DIR names (the files themselves,
/// or an unpacked Debian package), then in /usr/share/datasets/fashion-mnist, then in ulp's cache folder
/// ($XDG_CACHE_HOME/ulp or ~/.cache/ulp). Throws FileError naming the Debian package when no place has it.
ULP_API ImageDataset load_fashion_mnist(Split split);

/// CIFAR-10 in its binary version (Krizhevsky 2009): every data_batch_*.bin, or test_batch.bin, of the folder
/// or of cifar-10-batches-bin in it. Any number of images of 3x32x32 in ten classes; mean and deviation are
/// those of the published training set. Throws FileError for missing and truncated files, and for labels
/// above 9.
ULP_API ImageDataset load_cifar(const std::filesystem::path& folder, Split split);

/// The folders that load_fashion_mnist searches, in order.
ULP_API std::vector<std::filesystem::path> fashion_mnist_folders();

}  // namespace ulp::io
