#include "ulp/io/batch_loader.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

constexpr int64_t kPixels = 256;

/// SplitMix64 (Steele, Lea and Flood 2014): small, seedable anywhere, and the same on every platform, which
/// std::shuffle and the standard distributions are not.
class SplitMix {
 public:
  SplitMix(uint64_t seed, uint64_t epoch, uint64_t stream) : state_(seed) {
    state_ = operator()() ^ epoch;
    state_ = operator()() ^ stream;
  }
  uint64_t operator()() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  /// In [0, bound); the bias is below bound / 2^64.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(static_cast<unsigned __int128>(operator()()) * static_cast<uint64_t>(bound) >>
                                64);
  }

 private:
  uint64_t state_;
};

constexpr uint64_t kOrderStream = ~uint64_t{0};

}  // namespace

BatchLoader::BatchLoader(ImageDataset dataset, BatchLoaderOptions options)
    : dataset_(std::move(dataset)), options_(options) {
  check_dataset(dataset_);
  dataset_.images = dataset_.images.contiguous();
  if (options.batch_size < 1) fail("io.BatchLoader", "expected batch_size >= 1, got ", options.batch_size);
  if (options.max_shift < 0 ||
      options.max_shift >= std::min(dataset_.images.size(2), dataset_.images.size(3))) {
    fail("io.BatchLoader", "expected 0 <= max_shift < the image's size, got ", options.max_shift);
  }
  const auto at = [](const std::vector<double>& values, int64_t channel) {
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
  };
  for (int64_t channel = 0; channel < dataset_.images.size(1); ++channel) {
    for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
      const double scaled = static_cast<double>(pixel) / 255.0;
      table_.push_back(static_cast<float>((scaled - at(dataset_.mean, channel)) / at(dataset_.std, channel)));
    }
  }
  fill_order();
}

int64_t BatchLoader::batches() const {
  const int64_t size = options_.batch_size;
  return options_.drop_last ? dataset_.size() / size : (dataset_.size() + size - 1) / size;
}

void BatchLoader::fill_order() {
  order_.resize(static_cast<size_t>(dataset_.size()));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!options_.shuffle) return;
  SplitMix random(options_.seed, static_cast<uint64_t>(epoch_), kOrderStream);
  for (size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

void BatchLoader::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  position_ = 0;
  fill_order();
}

std::optional<Batch> BatchLoader::next() {
  const int64_t left = dataset_.size() - position_;
  if (left <= 0 || (options_.drop_last && left < options_.batch_size)) {
    start_epoch(epoch_ + 1);
    return std::nullopt;
  }
  const int64_t count = std::min(left, options_.batch_size);
  const auto shape = dataset_.images.sizes();
  const auto format = options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  Batch batch{torch::empty({count, shape[1], shape[2], shape[3]}, at::TensorOptions().memory_format(format)),
              torch::empty({count}, at::kLong)};
  auto* images = batch.images.mutable_data_ptr<float>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  const auto* all_labels = dataset_.labels.const_data_ptr<int64_t>();
  const int64_t image_size = shape[1] * shape[2] * shape[3];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = order_[static_cast<size_t>(position_ + i)];
    load_sample(sample, images + i * image_size);
    labels[i] = all_labels[sample];
  }
  position_ += count;
  return batch;
}

void BatchLoader::load_sample(int64_t sample, float* target) const {
  const int64_t channels = dataset_.images.size(1), height = dataset_.images.size(2),
                width = dataset_.images.size(3);
  SplitMix random(options_.seed, static_cast<uint64_t>(epoch_), static_cast<uint64_t>(sample));
  const bool flip = options_.random_flip && (random() & 1) != 0;
  const int64_t down = random.below(2 * options_.max_shift + 1) - options_.max_shift;
  const int64_t right = random.below(2 * options_.max_shift + 1) - options_.max_shift;
  const uint8_t* source = dataset_.images.const_data_ptr<uint8_t>() + sample * channels * height * width;
  const int64_t pixel_step = options_.channels_last ? channels : 1;
  const int64_t channel_step = options_.channels_last ? 1 : height * width;
  for (int64_t c = 0; c < channels; ++c) {
    const float* table = table_.data() + c * kPixels;
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

std::string BatchLoader::state() const {
  return nlohmann::json{{"epoch", epoch_},
                        {"position", position_},
                        {"seed", options_.seed},
                        {"samples", dataset_.size()},
                        {"batch_size", options_.batch_size}}
      .dump();
}

void BatchLoader::restore(const std::string& state) {
  constexpr const char* kWhere = "io.BatchLoader.restore";
  int64_t epoch = 0, position = 0, samples = 0, batch_size = 0;
  uint64_t seed = 0;
  try {
    const auto json = nlohmann::json::parse(state);
    json.at("epoch").get_to(epoch);
    json.at("position").get_to(position);
    json.at("seed").get_to(seed);
    json.at("samples").get_to(samples);
    json.at("batch_size").get_to(batch_size);
  } catch (const nlohmann::json::exception& error) {
    fail_file(kWhere, "expected a loader's state, got '", state.substr(0, 80), "': ", error.what());
  }
  if (samples != dataset_.size() || batch_size != options_.batch_size) {
    fail_file(kWhere, "expected ", dataset_.size(), " samples in batches of ", options_.batch_size,
              ", got a state of ", samples, " in batches of ", batch_size);
  }
  if (epoch < 0 || position < 0 || position > samples) {
    fail_file(kWhere, "expected a position within the data set, got epoch ", epoch, ", position ", position);
  }
  options_.seed = seed;
  epoch_ = epoch;
  position_ = position;
  fill_order();
}

}  // namespace ulp::io
