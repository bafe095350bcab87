#include "ulp/app/data.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "ulp/app/data_forms.h"
#include "ulp/base/error.h"
#include "ulp/io/batch_loader.h"

namespace ulp::app {

namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "app.load_data";

fs::path idx_file(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  return fs::exists(plain) ? plain : fs::path(plain.string() + ".gz");
}

io::ImageDataset load_idx_folder(const fs::path& folder, io::Split split, int64_t num_classes) {
  const std::string prefix = split == io::Split::train ? "train" : "t10k";
  return io::load_idx(idx_file(folder, prefix + "-images-idx3-ubyte"),
                      idx_file(folder, prefix + "-labels-idx1-ubyte"), num_classes);
}

bool is_cifar_folder(const fs::path& folder) {
  return fs::exists(folder / "cifar-10-batches-bin") || fs::exists(folder / "data_batch_1.bin") ||
         fs::exists(folder / "test_batch.bin");
}

bool is_folder(const std::string& name) {
  return name == "fashion-mnist" || fs::is_directory(name);
}

/// Images of a folder, normalised as the data set is.
io::ImageDataset read_images(const std::string& name, io::Split split) {
  if (name == "fashion-mnist") return io::load_fashion_mnist(split);
  if (is_cifar_folder(name)) return io::load_cifar(name, split);
  return load_idx_folder(name, split, ModelSpec{}.num_classes);
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() > end.size() && name.ends_with(end);
}

/// What stands at the beginning of the file.
std::string head_of(const fs::path& path) {
  std::string head(4096, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(in.gcount()));
  return head;
}

void expect_kind(const ModelSpec* model, NetworkKind kind, const std::string& name) {
  if (model != nullptr && model->kind != kind) {
    fail(kWhere, "expected data of kind '", to_string(model->kind), "' for ", model->name, ", got '", name,
         "' of kind '", to_string(kind), "'");
  }
}

TaskData load_file(const std::string& name, int64_t length, const ModelSpec* model,
                   const TokenizerPointer& tokenizer) {
  if (!fs::exists(name)) {
    fail_file(kWhere, "expected 'fashion-mnist', a folder, FILE.npz, X.npy,Y.npy, FILE.tsv or a text, got '",
              name, "', which does not exist");
  }
  const std::string head = head_of(name);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    expect_kind(model, NetworkKind::image, name);
    return archive_data(name, model);
  }
  if (head.starts_with("\x93NUMPY"))
    fail_file(kWhere, "expected two arrays, X.npy,Y.npy, got only '", name, "'");
  if (head.find('\0') != std::string::npos || ends_with(name, ".npz"))
    fail_file(kWhere, "expected FILE.npz or a text, got '", name, "', which is neither");
  const bool labelled = ends_with(name, ".tsv");
  expect_kind(model, labelled ? NetworkKind::text : NetworkKind::language, name);
  return labelled ? labelled_text_data(name, length, model, tokenizer)
                  : language_data(name, length, tokenizer);
}

TaskData load_folder(const std::string& name, const ModelSpec* model) {
  io::ImageDataset train = read_images(name, io::Split::train);
  if (!is_cifar_folder(name)) {
    train.mean = ModelSpec{}.mean;  // Fashion-MNIST's
    train.std = ModelSpec{}.std;
  }
  return image_data(std::move(train), read_images(name, io::Split::test), model, name);
}

/// The network as if it told any number of classes apart: labels are not looked at.
ModelSpec of_any_class(ModelSpec model) {
  if (model.kind == NetworkKind::image) model.num_classes = std::numeric_limits<int64_t>::max();
  return model;
}

SplitData split_of(const TaskData& data, io::Split split) {
  return {
      [stream = data.stream, split](const train::StreamOptions& options) { return stream(split, options); },
      data.unit};
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

void expect_fit(const ModelSpec& data, const ModelSpec& model, const std::string& name) {
  const bool image = model.kind == NetworkKind::image;
  if (image && (data.in_channels != model.in_channels || data.image_size != model.image_size ||
                data.width() != model.width())) {
    fail(kWhere, "expected samples of ", model.in_channels, 'x', model.image_size, 'x', model.width(),
         " for ", model.name, ", got ", data.in_channels, 'x', data.image_size, 'x', data.width(), " in '",
         name, "'");
  }
  if (data.num_classes > model.num_classes) {
    fail(kWhere, "expected at most ", model.num_classes, " classes for ", model.name, ", got ",
         data.num_classes, " in '", name, "'");
  }
}

void expect_square(at::IntArrayRef sizes, const std::string& source) {
  if (sizes[2] == sizes[3]) return;
  fail_file(kWhere, "expected square images in '", source, "', got ", sizes[2], 'x', sizes[3]);
}

at::Tensor holdout(int64_t samples, io::Split split) {
  const at::Tensor all = torch::arange(samples, torch::kLong);
  const at::Tensor test = all.remainder(kHoldout).eq(kHoldout - 1);
  return all.masked_select(split == io::Split::test ? test : test.logical_not());
}

TaskData image_data(io::ImageDataset train, io::ImageDataset test, const ModelSpec* model,
                    const std::string& source) {
  const at::IntArrayRef sizes = train.images.sizes();
  if (model == nullptr) expect_square(sizes, source);
  if (test.images.sizes().slice(1) != sizes.slice(1)) {
    fail_file(kWhere, "expected test images of ", sizes.slice(1), ", as those for training, in '", source,
              "', got ", test.images.sizes().slice(1));
  }
  TaskData data{.spec = {.in_channels = sizes[1],
                         .num_classes = train.num_classes,
                         .image_size = sizes[2],
                         .image_width = sizes[3],
                         .mean = model ? model->mean : train.mean,
                         .std = model ? model->std : train.std},
                .unit = "image",
                .stream = {}};
  for (io::ImageDataset* split : {&train, &test}) {
    split->mean = data.spec.mean;
    split->std = data.spec.std;
  }
  data.images = [train = std::move(train), test = std::move(test)](io::Split split) {
    return split == io::Split::train ? train : test;
  };
  data.stream = [images = data.images](io::Split split, const train::StreamOptions& options) {
    return train::image_stream(images(split), options);
  };
  return data;
}

io::ImageDataset load_images(const std::string& name, io::Split split, const ModelSpec& spec) {
  constexpr const char* kWhere = "app.load_images";
  if (!is_folder(name)) {
    const TaskData data = load_data(name, /*length=*/0, &spec);
    if (!data.images) fail_file(kWhere, "expected images of bytes, got rows of values in '", name, "'");
    return data.images(split);
  }
  io::ImageDataset data = read_images(name, split);
  const at::IntArrayRef sizes = data.images.sizes();
  if (sizes[1] != spec.in_channels || sizes[2] != spec.image_size || sizes[3] != spec.width()) {
    fail(kWhere, "expected images of ", spec.in_channels, "x", spec.image_size, "x", spec.width(), " for ",
         spec.name, ", got ", sizes[1], "x", sizes[2], "x", sizes[3], " in '", name, "'");
  }
  if (data.num_classes > spec.num_classes) {
    fail(kWhere, "expected at most ", spec.num_classes, " classes for ", spec.name, ", got ",
         data.num_classes);
  }
  data.mean = spec.mean;
  data.std = spec.std;
  return data;
}

TaskData load_data(const std::string& name, int64_t length, const ModelSpec* model,
                   TokenizerPointer tokenizer) {
  if (model != nullptr) {
    length = model->max_length;
    tokenizer = model->tokenizer;
  }
  const size_t comma = name.find(',');
  TaskData data;
  if (comma != std::string::npos && !fs::exists(name)) {
    expect_kind(model, NetworkKind::image, name);
    data = array_data(name.substr(0, comma), name.substr(comma + 1), model);
  } else if (is_folder(name)) {
    expect_kind(model, NetworkKind::image, name);
    data = load_folder(name, model);
  } else {
    data = load_file(name, length, model, tokenizer);
  }
  if (tokenizer && data.spec.kind == NetworkKind::image)
    fail(kWhere, "expected a text for the tokenizer, got '", name, "', which is none");
  if (model != nullptr) expect_fit(data.spec, *model, name);
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

SplitData load_split(const std::string& name, io::Split split, const ModelSpec& model) {
  if (is_folder(name) && model.kind == NetworkKind::image) return load_images(name, split, model);
  return split_of(load_data(name, /*length=*/0, &model), split);
}

SplitData load_samples(const std::string& name, const ModelSpec& model) {
  if (is_folder(name) && model.kind == NetworkKind::image)
    return load_images(name, io::Split::train, of_any_class(model));
  return split_of(load_unlabelled(name, model), io::Split::train);
}

TaskData load_unlabelled(const std::string& name, const ModelSpec& model) {
  if (fs::exists(name) && !fs::is_directory(name)) {
    if (auto values = values_alone(name, model)) {
      expect_kind(&model, NetworkKind::image, name);
      expect_fit(values->spec, model, name);
      return *std::move(values);
    }
  }
  const ModelSpec any = of_any_class(model);
  return load_data(name, /*length=*/0, &any);
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
