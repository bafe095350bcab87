#include "ulp/io/batch_loader.h"

#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/io/split_mix.h"

namespace ulp::io {

namespace {

constexpr int64_t kPixelValues = 256;

ImageDataset checked(ImageDataset dataset) {
  check_dataset(dataset);
  dataset.images = dataset.images.contiguous();
  return dataset;
}

}  // namespace

BatchLoader::BatchLoader(ImageDataset dataset, BatchLoaderOptions options)
    : dataset_(checked(std::move(dataset))),
      options_(options),
      order_({.samples = dataset_.size(),
              .batch_size = options.batch_size,
              .shuffle = options.shuffle,
              .drop_last = options.drop_last,
              .seed = options.seed,
              .part = options.part,
              .parts = options.parts}) {
  if (options.max_shift < 0 ||
      options.max_shift >= std::min(dataset_.images.size(2), dataset_.images.size(3))) {
    fail("io.BatchLoader", "expected 0 <= max_shift < the image's size, got ", options.max_shift);
  }
  const auto at = [](const std::vector<double>& values, int64_t channel) {
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
  };
  for (int64_t channel = 0; channel < dataset_.images.size(1); ++channel) {
    for (int64_t pixel = 0; pixel < kPixelValues; ++pixel) {
      const double scaled = static_cast<double>(pixel) / 255.0;
      table_.push_back(static_cast<float>((scaled - at(dataset_.mean, channel)) / at(dataset_.std, channel)));
    }
  }
}

std::optional<Batch> BatchLoader::next() {
  const std::span<const int64_t> samples = order_.next();
  if (samples.empty()) return std::nullopt;
  const auto count = static_cast<int64_t>(samples.size());
  const auto shape = dataset_.images.sizes();
  const auto format = options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  Batch batch{torch::empty({count, shape[1], shape[2], shape[3]}, at::TensorOptions().memory_format(format)),
              torch::empty({count}, at::kLong), torch::empty({count}, at::kLong)};
  auto* images = batch.images.mutable_data_ptr<float>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  auto* numbers = batch.samples.mutable_data_ptr<int64_t>();
  const auto* all_labels = dataset_.labels.const_data_ptr<int64_t>();
  const int64_t image_size = shape[1] * shape[2] * shape[3];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = samples[static_cast<size_t>(i)];
    load_sample(sample, images + i * image_size);
    labels[i] = all_labels[sample];
    numbers[i] = sample;
  }
  return batch;
}

void BatchLoader::load_sample(int64_t sample, float* target) const {
  const int64_t channels = dataset_.images.size(1), height = dataset_.images.size(2),
                width = dataset_.images.size(3);
  SplitMix random(order_.seed(), static_cast<uint64_t>(order_.epoch()), static_cast<uint64_t>(sample));
  const bool flip = options_.random_flip && (random() & 1) != 0;
  const int64_t down = random.below(2 * options_.max_shift + 1) - options_.max_shift;
  const int64_t right = random.below(2 * options_.max_shift + 1) - options_.max_shift;
  const uint8_t* source = dataset_.images.const_data_ptr<uint8_t>() + sample * channels * height * width;
  const int64_t pixel_step = options_.channels_last ? channels : 1;
  const int64_t channel_step = options_.channels_last ? 1 : height * width;
  for (int64_t c = 0; c < channels; ++c) {
    const float* table = table_.data() + c * kPixelValues;
    const uint8_t* plane = source + c * height * width;
    for (int64_t y = 0; y < height; ++y) {
      float* row = target + c * channel_step + y * width * pixel_step;
      const int64_t from_y = y - down;
      const bool inside_y = from_y >= 0 && from_y < height;
      for (int64_t x = 0; x < width; ++x) {
        const int64_t shifted = x - right;
        const int64_t from_x = flip ? width - 1 - shifted : shifted;
        const bool inside = inside_y && shifted >= 0 && shifted < width;
        row[x * pixel_step] = table[inside ? plane[from_y * width + from_x] : 0];
      }
    }
  }
}

}  // namespace ulp::io
