// NumPy arrays as data: x, rows of values or images, and y, the class of each.
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "ulp/app/data/data_forms.h"
#include "ulp/base/error.h"
#include "ulp/io/npy.h"

namespace ulp::app {

namespace {

constexpr int64_t kLargestLabel = 65535;

/// The rows of both arrays for one split.
struct Arrays {
  at::Tensor x, y;
};

at::Tensor checked_labels(const at::Tensor& y, int64_t rows, const std::string& source) {
  const at::Tensor flat = y.dim() == 2 && y.size(1) == 1 ? y.flatten() : y;
  if (flat.dim() != 1 || flat.size(0) != rows) {
    fail_file(kLoadDataWhere, "expected y of shape (", rows, ") for the rows of x in '", source, "', got ",
              y.sizes());
  }
  if (flat.is_floating_point() || flat.is_complex())
    fail_file(kLoadDataWhere, "expected whole numbers as labels in '", source, "', got ", flat.dtype());
  const at::Tensor labels = flat.to(torch::kLong).contiguous();
  const auto lowest = labels.min().item<int64_t>(), highest = labels.max().item<int64_t>();
  if (lowest < 0 || highest > kLargestLabel) {
    fail_file(kLoadDataWhere, "expected labels in 0..", kLargestLabel, ", got ",
              lowest < 0 ? lowest : highest, " in '", source, "'");
  }
  return labels;
}

void check_values(const at::Tensor& x, const std::string& source) {
  if (x.dim() < 2 || x.dim() > 4 || x.numel() == 0 || x.is_complex()) {
    fail_file(kLoadDataWhere, "expected x of shape (N, values), (N, H, W) or (N, C, H, W) in '", source,
              "', got ", x.sizes());
  }
}

Arrays checked(const at::Tensor& x, const at::Tensor& y, const std::string& source) {
  check_values(x, source);
  return {x, checked_labels(y, x.size(0), source)};
}

/// Bytes (N, H, W), (N, C, H, W) or (N, H, W, C) as (N, C, H, W).
at::Tensor as_images(const at::Tensor& x) {
  if (x.dim() == 3) return x.unsqueeze(1);
  const bool channels_last = x.size(3) <= 4 && x.size(1) > 4;
  return channels_last ? x.permute({0, 3, 1, 2}).contiguous() : x;
}

/// Values (N, F), (N, H, W) or (N, C, H, W) as float (N, C, H, W).
at::Tensor as_values(const at::Tensor& x) {
  const at::Tensor values = x.to(torch::kFloat);
  if (x.dim() == 2) return values.unsqueeze(2).unsqueeze(3);
  return x.dim() == 3 ? values.unsqueeze(1) : values;
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(torch::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

/// For each channel the mean over all rows and pixels of f(values as doubles). A part of the rows at a time:
/// as doubles all of them would take eight times the memory of bytes.
template <typename F>
at::Tensor channel_means(const at::Tensor& values, F f) {
  constexpr int64_t kElements = 1 << 22;
  const int64_t rows = std::max<int64_t>(1, kElements / std::max<int64_t>(1, values[0].numel()));
  at::Tensor sums = torch::zeros({values.size(1)}, torch::kDouble);
  for (const at::Tensor& part : values.split(rows)) {
    sums += f(part.transpose(0, 1).flatten(1).to(torch::kDouble)).sum(1);
  }
  return sums / (values.numel() / values.size(1));
}

/// Mean and deviation of each channel of values / unit; 1 for a channel that never changes.
void measure(const at::Tensor& values, double unit, ModelSpec& spec) {
  const at::Tensor mean = channel_means(values, [](const at::Tensor& x) { return x; });
  const at::Tensor variance =
      channel_means(values, [&](const at::Tensor& x) { return (x - mean.unsqueeze(1)).square(); });
  const at::Tensor std = variance.sqrt() / unit;
  spec.mean = numbers(mean / unit);
  spec.std = numbers(torch::where(std > 0, std, torch::ones_like(std)));
}

at::Tensor normalised(const at::Tensor& values, const ModelSpec& spec) {
  const auto channel = [](const std::vector<double>& numbers) {
    return torch::tensor(numbers, torch::kFloat).reshape({1, -1, 1, 1});
  };
  return (values - channel(spec.mean)) / channel(spec.std);
}

TaskData byte_images(const Arrays& train, const Arrays& test, int64_t classes, const ModelSpec* model,
                     const std::string& source) {
  const auto dataset = [&](const Arrays& arrays) {
    return io::ImageDataset{.images = as_images(arrays.x).contiguous(),
                            .labels = arrays.y,
                            .num_classes = classes,
                            .class_names = {}};
  };
  io::ImageDataset images = dataset(train);
  ModelSpec measured;
  measure(images.images, 255, measured);
  images.mean = measured.mean;
  images.std = measured.std;
  return image_data(std::move(images), dataset(test), model, source);
}

TaskData value_rows(const Arrays& train, const Arrays& test, int64_t classes, const ModelSpec* model,
                    const std::string& source) {
  Arrays rows[] = {{as_values(train.x), train.y}, {as_values(test.x), test.y}};
  const at::IntArrayRef sizes = rows[0].x.sizes();
  if (model == nullptr) expect_square(sizes, source);
  for (const Arrays& split : rows) {
    if (!at::isfinite(split.x).all().item<bool>())
      fail_file(kLoadDataWhere,
                "expected numbers in x that fp32 can hold, got NaN, infinity or larger ones in '", source,
                "'");
  }
  TaskData data{.spec = {.in_channels = sizes[1],
                         .num_classes = classes,
                         .image_size = sizes[2],
                         .image_width = sizes[3]},
                .unit = "row",
                .stream = {}};
  measure(rows[0].x, 1, data.spec);
  if (model != nullptr) {
    expect_fit(data.spec, *model, source);
    data.spec.mean = model->mean;
    data.spec.std = model->std;
  }
  data.spec.rows = model != nullptr && model->rows;
  for (Arrays& split : rows) {
    split.x = normalised(split.x, data.spec);
    if (data.spec.rows) split.x = split.x.flatten(1);
  }
  data.stream = [train_rows = rows[0], test_rows = rows[1]](io::Split split,
                                                            const train::StreamOptions& options) {
    const Arrays& arrays = split == io::Split::train ? train_rows : test_rows;
    const auto gather = [arrays](std::span<const int64_t> samples) {
      const at::Tensor rows =
          torch::tensor(at::ArrayRef<int64_t>(samples.data(), samples.size()), torch::kLong);
      return train::TaskBatch{arrays.x.index_select(0, rows), arrays.y.index_select(0, rows)};
    };
    return train::sample_stream(arrays.y.size(0), gather, options);
  };
  return data;
}

TaskData from_splits(const Arrays& train, const Arrays& test, const std::string& source,
                     const ModelSpec* model) {
  if (train.x.dim() != test.x.dim() || train.x.sizes().slice(1) != test.x.sizes().slice(1)) {
    fail_file(kLoadDataWhere, "expected rows of one shape for training and testing in '", source, "', got ",
              train.x.sizes(), " and ", test.x.sizes());
  }
  const int64_t classes = std::max(train.y.max().item<int64_t>(), test.y.max().item<int64_t>()) + 1;
  const bool bytes = train.x.scalar_type() == at::kByte && train.x.dim() > 2;
  return bytes ? byte_images(train, test, classes, model, source)
               : value_rows(train, test, classes, model, source);
}

TaskData from_whole(const Arrays& all, const std::string& source, const ModelSpec* model) {
  const auto part = [&](io::Split split) {
    const at::Tensor rows = holdout(all.y.size(0), split);
    return Arrays{all.x.index_select(0, rows), all.y.index_select(0, rows)};
  };
  const Arrays test = part(io::Split::test);
  if (test.y.numel() < 1)
    fail_file(kLoadDataWhere, "expected at least 10 rows in '", source, "', got ", all.y.size(0));
  return from_splits(part(io::Split::train), test, source, model);
}

}  // namespace

TaskData array_data(const std::filesystem::path& x, const std::filesystem::path& y, const ModelSpec* model) {
  const std::string source = x.string() + "," + y.string();
  return from_whole(checked(io::load_npy(x), io::load_npy(y), source), source, model);
}

TaskData archive_data(const std::filesystem::path& path, const ModelSpec* model) {
  const std::string source = path.string();
  const auto arrays = io::load_npz(path);
  const auto has = [&](const char* name) { return arrays.contains(name); };
  const auto get = [&](const char* x, const char* y) { return checked(arrays.at(x), arrays.at(y), source); };
  if (has("x") && has("y")) return from_whole(get("x", "y"), source, model);
  if (has("x_train") && has("y_train") && has("x_test") && has("y_test"))
    return from_splits(get("x_train", "y_train"), get("x_test", "y_test"), source, model);
  std::string names;
  for (const auto& [name, array] : arrays) names.append(names.empty() ? "" : ", ").append(name);
  fail_file(kLoadDataWhere, "expected the arrays x and y, or x_train, y_train, x_test and y_test, in '",
            source, "', got ", names.empty() ? "none" : names);
}

std::optional<TaskData> values_alone(const std::filesystem::path& path, const ModelSpec& model) {
  const bool archive = path.extension() == ".npz";
  if (!archive && path.extension() != ".npy") return std::nullopt;
  at::Tensor x;
  if (archive) {
    const auto arrays = io::load_npz(path);
    if (!arrays.contains("x") || arrays.contains("y")) return std::nullopt;
    x = arrays.at("x");
  } else {
    x = io::load_npy(path);
  }
  check_values(x, path.string());
  const Arrays all{x, at::zeros({x.size(0)}, torch::kLong)};
  return from_splits(all, all, path.string(), &model);
}

}  // namespace ulp::app
