#include "ulp/app/train/workload.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::app {

namespace {

/// As many batches as anyone asks for.
class DrawnStream final : public train::BatchStream {
 public:
  DrawnStream(std::function<train::TaskBatch(memory::RunSize)> draw, memory::RunSize size)
      : draw_(std::move(draw)), size_(size) {}
  std::optional<train::TaskBatch> next() override { return draw_(size_); }
  int64_t samples() const override { return batches() * size_.batch; }
  int64_t batches() const override { return std::numeric_limits<int32_t>::max(); }
  int64_t epoch() const override { return 0; }
  std::string state() const override { return {}; }
  void restore(const std::string&) override {}

 private:
  std::function<train::TaskBatch(memory::RunSize)> draw_;
  memory::RunSize size_;
};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// Images as the tool's loader lays them out, or rows; a class a picture or a row, or a pixel.
auto draw_images(const ModelSpec& spec, bool of_pixels) {
  return [spec, of_pixels, classes = spec.num_classes](memory::RunSize size) {
    const auto format = spec.rows ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    const at::Tensor images =
        torch::empty(spec.batch_sizes(size.batch), at::TensorOptions().memory_format(format));
    const std::vector<int64_t> targets = of_pixels
                                             ? std::vector<int64_t>{size.batch, spec.image_size, spec.width()}
                                             : std::vector<int64_t>{size.batch};
    return train::TaskBatch{.inputs = images.normal_(),
                            .targets = torch::empty(targets, torch::kLong).random_(0, classes)};
  };
}

/// What a graph takes as its first input; free dimensions other than the batch are at their largest.
auto draw_inputs(const graph::Graph& graph, int64_t classes) {
  std::vector<int64_t> largest = {1};
  for (const graph::DynamicDimension& free : graph.free) largest.push_back(free.max);
  return [sizes = graph.inputs().at(0)->meta->sizes, largest, classes](memory::RunSize size) {
    std::vector<int64_t> shape, free = largest;
    free[0] = size.batch;
    for (const graph::SizeExpr& one : sizes) shape.push_back(one.at(free));
    return train::TaskBatch{.inputs = torch::randn(shape),
                            .targets = torch::empty({size.batch}, torch::kLong).random_(0, classes)};
  };
}

/// Tokens other than 0, which may be padding.
auto draw_tokens(int64_t vocabulary, int64_t classes, bool of_texts) {
  return [=](memory::RunSize size) {
    const std::vector<int64_t> targets =
        of_texts ? std::vector<int64_t>{size.batch} : std::vector<int64_t>{size.batch, size.length};
    return train::TaskBatch{
        .inputs = torch::empty({size.batch, size.length}, torch::kLong).random_(1, vocabulary),
        .targets = torch::empty(targets, torch::kLong).random_(0, classes)};
  };
}

Workload image_model(const std::string& name, const ModelShape& shape) {
  if (shape.image.size() != 3)
    fail("app.find_workload", "expected channels, height and width, got ", shape.image.size(), " numbers");
  if (shape.image[1] != shape.image[2])
    fail("app.find_workload", "expected images as wide as high, got ", shape.image[1], " x ", shape.image[2]);
  const ModelSpec spec{.name = name,
                       .in_channels = shape.image[0],
                       .num_classes = shape.classes,
                       .image_size = shape.image[1]};
  return {.name = name,
          .kind = NetworkKind::image,
          .make = [spec] { return make_network(spec); },
          .draw = draw_images(spec, /*of_pixels=*/name == "unet")};
}

Workload published_model(const std::string& name) {
  const bool classifies = !name.starts_with("gpt2");
  const auto make = [name] {
    const std::shared_ptr<models::TextModel> model = models::make_pretrained_text(name);
    return Network{model, [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); }};
  };
  const auto [vocabulary, max_length] = models::pretrained_text_sizes(name);
  return {.name = name,
          .kind = classifies ? NetworkKind::text : NetworkKind::language,
          .make = make,
          .draw = draw_tokens(vocabulary, classifies ? 2 : vocabulary, classifies),
          .max_length = max_length};
}

Workload text_model(const ModelSpec& spec, std::function<Network()> make) {
  const bool classifies = spec.kind == NetworkKind::text;
  return {
      .name = spec.name,
      .kind = spec.kind,
      .make = std::move(make),
      .draw = draw_tokens(spec.vocab_size(), classifies ? spec.num_classes : spec.vocab_size(), classifies),
      .max_length = spec.max_length};
}

Workload named_text_model(const std::string& name, const ModelShape& shape) {
  const bool classifies = models::text_model_tasks(name)[0] == models::TextTask::classification;
  const ModelSpec spec{.name = name,
                       .kind = classifies ? NetworkKind::text : NetworkKind::language,
                       .num_classes = shape.classes,
                       .max_length = shape.length};
  return text_model(spec, [spec] { return make_network(spec); });
}

Workload model_of_file(const std::string& path, const ModelShape& shape) {
  ModelSpec like{.in_channels = shape.image.at(0),
                 .num_classes = shape.classes,
                 .image_size = shape.image.at(1),
                 .image_width = shape.image.at(2)};
  like.asked = shape.given;
  like.mean.assign(static_cast<size_t>(like.in_channels), 0);
  like.std.assign(static_cast<size_t>(like.in_channels), 1);
  if (const auto spec = read_model_spec(path)) {
    expect_asked_sizes(like, *spec, path);
    const auto make = [path] { return load_network(path); };
    if (spec->kind != NetworkKind::image) return text_model(*spec, make);
    return {.name = spec->name,
            .kind = NetworkKind::image,
            .make = make,
            .draw = draw_images(*spec, /*of_pixels=*/spec->name == "unet")};
  }
  const LoadedModel loaded = load_model_file(path, like);
  const auto make = [path, like] { return load_network(path, like); };
  if (loaded.spec.kind != NetworkKind::image) return text_model(loaded.spec, make);
  return {.name = loaded.spec.name,
          .kind = NetworkKind::image,
          .make = make,
          .draw = draw_inputs(loaded.graph->graph(), loaded.spec.num_classes),
          .foreign_file = path};
}

}  // namespace

train::Task Workload::task(memory::RunSize size) const {
  Network network = make();
  train::Task task{.model = network.module,
                   .forward = std::move(network.forward),
                   .batches = std::make_unique<DrawnStream>(draw, size)};
  if (kind != NetworkKind::image) return task;
  // One class a picture, or one a pixel: logits (N, classes, H, W).
  task.loss = [](const at::Tensor& logits, const train::TaskBatch& batch) {
    return at::cross_entropy_loss(logits.to(torch::kFloat), batch.targets);
  };
  return task;
}

void Workload::expect_trains(const torch::nn::Module& module) const {
  const auto* graph = dynamic_cast<const graph::GraphModule*>(&module);
  if (foreign_file.empty() || graph == nullptr) return;
  expect_one_input(*graph, foreign_file);
  expect_logits(*graph, foreign_file);
}

int64_t usual_length(const Workload& model) {
  constexpr int64_t kUsual = 128;
  return std::min(model.max_length, kUsual);
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names = models::model_names();
  for (const auto& more : {models::text_model_names(), models::pretrained_text_names()})
    names.insert(names.end(), more.begin(), more.end());
  std::ranges::sort(names);
  return names;
}

Workload find_workload(const std::string& name, const ModelShape& shape) {
  if (has(models::model_names(), name)) return image_model(name, shape);
  if (has(models::pretrained_text_names(), name)) return published_model(name);
  if (has(models::text_model_names(), name)) return named_text_model(name, shape);
  if (!std::filesystem::exists(name)) {
    std::string names;
    for (const std::string& known : workload_names()) names += (names.empty() ? "" : ", ") + known;
    fail_file("app.find_workload", "expected a model file or one of ", names, ", got '", name, "'");
  }
  return model_of_file(name, shape);
}

}  // namespace ulp::app
