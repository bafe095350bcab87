// Batches from a data set in memory: shuffled, augmented, normalised; the same on every machine for the same
// seed.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/io/dataset.h"
#include "ulp/io/sample_order.h"

namespace ulp::io {

/// How batches are made.
struct BatchLoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = true;
  bool drop_last = false;    ///< leave out the last batch of an epoch when it is not full
  bool random_flip = false;  ///< mirror every other image, chosen at random
  int64_t max_shift = 0;     ///< move each image by up to this many pixels in each direction; black comes in
  bool channels_last = true;
  uint64_t seed = 0;
  int64_t part = 0, parts = 1;  ///< of each batch, as SampleOrderOptions has it
};

/// One batch of images.
struct Batch {
  at::Tensor images;   ///< float (N, C, H, W): (pixel / 255 - mean) / std
  at::Tensor labels;   ///< int64 (N)
  at::Tensor samples;  ///< their numbers in the data set, int64 (N)
};

/// Walks through a data set epoch by epoch. Order and augmentation are functions of (seed, epoch, sample)
/// alone, so the state is three numbers and a restored loader continues exactly.
class ULP_API BatchLoader {
 public:
  /// Throws Error for a data set that check_dataset() refuses, a batch size below 1, or a shift that leaves
  /// no image.
  explicit BatchLoader(ImageDataset dataset, BatchLoaderOptions options = {});

  /// The next batch; nothing at the end of an epoch, after which the next call starts the next epoch.
  std::optional<Batch> next();

  int64_t batches() const { return order_.batches(); }  ///< in one epoch
  int64_t epoch() const { return order_.epoch(); }
  int64_t position() const { return order_.position(); }  ///< samples already given in this epoch
  const ImageDataset& dataset() const { return dataset_; }

  /// Drops what is left of the present epoch and goes to the start of this one.
  void start_epoch(int64_t epoch) { order_.start_epoch(epoch); }

  /// Where the loader stands, as JSON.
  std::string state() const { return order_.state(); }
  /// Takes that up again. Throws FileError unless it was made with the same number of samples and batch size.
  void restore(const std::string& state) { order_.restore(state); }

 private:
  void load_sample(int64_t sample, float* target) const;

  ImageDataset dataset_;
  BatchLoaderOptions options_;
  SampleOrder order_;
  std::vector<float> table_;  // [channel][pixel] -> normalised value
};

}  // namespace ulp::io
