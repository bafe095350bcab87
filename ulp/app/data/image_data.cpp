// Images of folders, and first samples of any data.
#include <torch/types.h>

#include <algorithm>
#include <filesystem>

#include "ulp/app/data/data_forms.h"
#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"

namespace ulp::app {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLoadImagesWhere = "app.load_images";

fs::path idx_file(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  return fs::exists(plain) ? plain : fs::path(plain.string() + ".gz");
}

io::ImageDataset load_idx_folder(const fs::path& folder, io::Split split, int64_t num_classes) {
  const std::string prefix = split == io::Split::train ? "train" : "t10k";
  return io::load_idx(idx_file(folder, prefix + "-images-idx3-ubyte"),
                      idx_file(folder, prefix + "-labels-idx1-ubyte"), num_classes);
}

/// At most so many samples of a stream.
class FirstSamples final : public train::BatchStream {
 public:
  FirstSamples(std::unique_ptr<train::BatchStream> stream, int64_t most)
      : stream_(std::move(stream)), most_(most) {}
  std::optional<train::TaskBatch> next() override {
    if (seen_ >= most_) return std::nullopt;
    std::optional<train::TaskBatch> batch = stream_->next();
    if (!batch) return batch;
    const int64_t count = std::min(batch->inputs.size(0), most_ - seen_);
    seen_ += count;
    for (at::Tensor* part : {&batch->inputs, &batch->targets, &batch->samples}) {
      if (part->defined()) *part = part->narrow(0, 0, count);
    }
    return batch;
  }
  int64_t samples() const override { return std::min(stream_->samples(), most_); }
  int64_t batches() const override { return stream_->batches(); }
  int64_t epoch() const override { return stream_->epoch(); }
  std::string state() const override { return stream_->state(); }
  void restore(const std::string& state) override { stream_->restore(state); }

 private:
  std::unique_ptr<train::BatchStream> stream_;
  int64_t most_, seen_ = 0;
};

}  // namespace

constinit Component<DataFiles> data_files("data files");

bool is_cifar_folder(const fs::path& folder) {
  return fs::exists(folder / "cifar-10-batches-bin") || fs::exists(folder / "data_batch_1.bin") ||
         fs::exists(folder / "test_batch.bin");
}

bool is_folder(const std::string& name) {
  return name == "fashion-mnist" || fs::is_directory(name);
}

io::ImageDataset read_images(const std::string& name, io::Split split) {
  if (name == "fashion-mnist") return io::load_fashion_mnist(split);
  if (is_cifar_folder(name)) return io::load_cifar(name, split);
  return load_idx_folder(name, split, ModelSpec{}.num_classes);
}

io::ImageDataset load_images(const std::string& name, io::Split split, const ModelSpec& spec) {
  if (!is_folder(name)) {
    const DataFiles* files = data_files.find();
    if (files == nullptr)
      fail_file(kLoadImagesWhere, "expected 'fashion-mnist' or a folder, got '", name,
                "' (`ulp` reads files, too: `make build` builds it)");
    const TaskData data = files->load(name, /*length=*/0, &spec, nullptr);
    if (!data.images)
      fail_file(kLoadImagesWhere, "expected images of bytes, got rows of values in '", name, "'");
    return data.images(split);
  }
  io::ImageDataset data = read_images(name, split);
  const at::IntArrayRef sizes = data.images.sizes();
  if (sizes[1] != spec.in_channels || sizes[2] != spec.image_size || sizes[3] != spec.width()) {
    fail(kLoadImagesWhere, "expected images of ", spec.in_channels, "x", spec.image_size, "x", spec.width(),
         " for ", spec.name, ", got ", sizes[1], "x", sizes[2], "x", sizes[3], " in '", name, "'");
  }
  if (data.num_classes > spec.num_classes) {
    fail(kLoadImagesWhere, "expected at most ", spec.num_classes, " classes for ", spec.name, ", got ",
         data.num_classes);
  }
  data.mean = spec.mean;
  data.std = spec.std;
  return data;
}

SplitData::SplitData(io::ImageDataset images)
    : stream([images = std::move(images)](const train::StreamOptions& options) {
        return train::image_stream(images, options);
      }),
      unit("image") {}

int64_t SplitData::samples() const {
  return stream({.batch = 1})->samples();
}

int64_t SplitData::batch(int64_t most) const {
  constexpr int64_t kTokens = 4096;
  const auto sample = stream({.batch = 1})->next();
  if (!sample || sample->inputs.is_floating_point()) return most;
  return std::clamp<int64_t>(kTokens / sample->inputs.size(1), 1, most);
}

SplitData SplitData::first(int64_t most) const {
  return {[stream = stream, most](const train::StreamOptions& options) {
            return first_samples(stream(options), most);
          },
          unit};
}

at::Tensor SplitData::first_inputs(int64_t most) const {
  const auto batches = first(most).stream({.batch = std::min(most, samples())});
  return batches->next()->inputs;
}

std::unique_ptr<train::BatchStream> first_samples(std::unique_ptr<train::BatchStream> stream, int64_t most) {
  if (most < 1) fail("app.first_samples", "expected samples >= 1, got ", most);
  return std::make_unique<FirstSamples>(std::move(stream), most);
}

at::Tensor first_images(const io::ImageDataset& data, int64_t count) {
  if (count < 1 || count > data.size())
    fail("app.first_images", "expected 1 to ", data.size(), " images, got ", count);
  io::BatchLoader loader(io::slice(data, 0, count),
                         {.batch_size = count, .shuffle = false, .channels_last = false});
  return loader.next()->images;
}

}  // namespace ulp::app
