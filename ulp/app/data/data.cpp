#include "ulp/app/data/data.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "ulp/app/data/data_forms.h"
#include "ulp/base/error.h"

namespace ulp::app {

namespace fs = std::filesystem;

namespace {

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
    fail(kLoadDataWhere, "expected data of kind '", to_string(model->kind), "' for ", model->name, ", got '",
         name, "' of kind '", to_string(kind), "'");
  }
}

TaskData load_file(const std::string& name, int64_t length, const ModelSpec* model,
                   const TokenizerPointer& tokenizer) {
  if (!fs::exists(name)) {
    fail_file(kLoadDataWhere,
              "expected 'fashion-mnist', a folder, FILE.npz, X.npy,Y.npy, FILE.tsv or a text, got '", name,
              "', which does not exist");
  }
  const std::string head = head_of(name);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    expect_kind(model, NetworkKind::image, name);
    return archive_data(name, model);
  }
  if (head.starts_with("\x93NUMPY"))
    fail_file(kLoadDataWhere, "expected two arrays, X.npy,Y.npy, got only '", name, "'");
  if (head.find('\0') != std::string::npos || ends_with(name, ".npz"))
    fail_file(kLoadDataWhere, "expected FILE.npz or a text, got '", name, "', which is neither");
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

constexpr DataFiles kDataFiles{.load = load_data};
const Component<DataFiles>::Provider kDataFilesProvider(data_files, kDataFiles);

}  // namespace

void expect_fit(const ModelSpec& data, const ModelSpec& model, const std::string& name) {
  const bool image = model.kind == NetworkKind::image;
  if (image && (data.in_channels != model.in_channels || data.image_size != model.image_size ||
                data.width() != model.width())) {
    fail(kLoadDataWhere, "expected samples of ", model.in_channels, 'x', model.image_size, 'x', model.width(),
         " for ", model.name, ", got ", data.in_channels, 'x', data.image_size, 'x', data.width(), " in '",
         name, "'");
  }
  if (data.num_classes > model.num_classes) {
    fail(kLoadDataWhere, "expected at most ", model.num_classes, " classes for ", model.name, ", got ",
         data.num_classes, " in '", name, "'");
  }
}

void expect_square(at::IntArrayRef sizes, const std::string& source) {
  if (sizes[2] == sizes[3]) return;
  fail_file(kLoadDataWhere, "expected square images in '", source, "', got ", sizes[2], 'x', sizes[3]);
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
    fail_file(kLoadDataWhere, "expected test images of ", sizes.slice(1), ", as those for training, in '",
              source, "', got ", test.images.sizes().slice(1));
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
    fail(kLoadDataWhere, "expected a text for the tokenizer, got '", name, "', which is none");
  if (model != nullptr) expect_fit(data.spec, *model, name);
  return data;
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

}  // namespace ulp::app
