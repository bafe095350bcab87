// The room `exchange` for the tool.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/gguf_file.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/exchange/listed_file.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

namespace {

/// Bytes of the file and of the one beside it that `ulp export` gives a large model.
int64_t bytes_on_disk(const std::filesystem::path& path) {
  std::error_code missing;
  const auto size = [&](const std::filesystem::path& file) {
    const auto bytes = std::filesystem::file_size(file, missing);
    return missing ? int64_t{0} : static_cast<int64_t>(bytes);
  };
  return size(path) + size(path.string() + ".data");
}

/// Sizes that somebody asked for, from 1 on unless a smallest one is named.
std::map<std::string, exchange::SizeRange> ranges_of(const ModelSpec& like) {
  std::map<std::string, exchange::SizeRange> ranges;
  for (const auto& [name, size] : like.sizes) {
    const auto smallest = like.smallest_sizes.find(name);
    ranges[name] = {.min = smallest == like.smallest_sizes.end() ? 1 : smallest->second, .max = size};
  }
  return ranges;
}

/// Refuses sizes of dimensions that are not free in the file.
std::shared_ptr<graph::GraphModule> with_sizes(std::shared_ptr<graph::GraphModule> module,
                                               const std::filesystem::path& path, const ModelSpec& like) {
  std::string names;
  for (const graph::DynamicDimension& free : module->graph().free)
    names += (names.empty() ? "'" : ", '") + free.name + "'";
  for (const auto& [name, size] : like.sizes) {
    if (std::ranges::none_of(module->graph().free,
                             [&, &name = name](const auto& free) { return free.name == name; }))
      fail("app.load_model_file", "expected --size of a dimension that '", path.string(), "' leaves free, ",
           names.empty() ? "which are none but the batch" : names, ", got one of '", name, "'");
  }
  return module;
}

std::shared_ptr<graph::GraphModule> load_onnx(const std::filesystem::path& path, const ModelSpec& like,
                                              ExchangeUse use, std::vector<FixedDimension>& fixed) {
  exchange::OnnxImportOptions options;
  options.free_batch = true;
  // Values are counted in 8 bytes each, weights among them.
  options.max_bytes = std::max(options.max_bytes, 4 * bytes_on_disk(path));
  options.image_size = like.image_size;
  options.image_width = like.width();
  options.on_fixed_size = [&fixed](const exchange::FixedSize& one) {
    fixed.push_back({one.input, one.name, one.size});
  };
  if (like.kind != NetworkKind::image) options.longest = like.max_length;
  if (use == ExchangeUse::training) options.qdq = exchange::QdqForm::fake;
  options.sizes = ranges_of(like);
  return with_sizes(exchange::import_onnx(path, options), path, like);
}

std::shared_ptr<graph::GraphModule> load_pt2(const std::filesystem::path& path, const ModelSpec& like) {
  exchange::Pt2ImportOptions options;
  if (like.kind != NetworkKind::image) options.longest = like.max_length;
  options.sizes = ranges_of(like);
  return with_sizes(exchange::import_pt2(path, options), path, like);
}

ModelSpec read_gguf_spec(const std::filesystem::path& path) {
  return gguf_spec(exchange::import_gguf(path), path);
}

PretrainedModel load_gguf(const std::filesystem::path& path) {
  const exchange::GgufModel file = exchange::import_gguf(path);
  const std::shared_ptr<models::TextModel> text = gguf_network(file, path);
  const auto forward = [text](const train::TaskBatch& batch) { return text->forward(batch.inputs); };
  PretrainedModel model{.network = {.module = text, .forward = forward},
                        .spec = gguf_spec(file, path),
                        .report = {},
                        .codes = exchange::gpt2_quantized_weights(file)};
  model.network = captured(model.network, model.spec);
  model.network.module->eval();
  return model;
}

FileContents gguf_contents(const std::filesystem::path& path) {
  const exchange::GgufModel file = exchange::import_gguf(path);
  FileContents contents;
  contents.kind = "GGUF (--graph shows its graph)";
  contents.bytes = std::filesystem::file_size(path);
  contents.tensors = {.title = "Tensors", .columns = {{"name"}, {"type"}, {"shape"}, {"elements"}}};
  for (const exchange::GgufTensor& tensor : file.tensors)
    contents.tensors.add_row({tensor.name, tensor.type, shape_text(tensor.values.sizes().vec()),
                              static_cast<double>(tensor.values.numel())});
  const nlohmann::json metadata = nlohmann::json::parse(file.metadata);
  for (const auto& [key, value] : metadata.items())
    contents.metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return contents;
}

FileContents listed_contents(const std::filesystem::path& path) {
  const bool package = std::filesystem::is_directory(path);
  const exchange::ListedFile file = package ? exchange::list_coreml(path) : exchange::list_tflite(path);
  FileContents contents;
  contents.kind = package ? "Core ML package" : "TensorFlow Lite file";
  const auto joined = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  };
  contents.steps = report::Table{.title = "Operators", .columns = {{"op"}, {"reads"}, {"writes"}}};
  for (const exchange::ListedOperator& one : file.operators)
    contents.steps->add_row({one.op, joined(one.inputs), joined(one.outputs)});
  contents.tensors = {.title = "Tensors", .columns = {{"name"}, {"type"}, {"shape"}, {"bytes"}, {"use"}}};
  for (const exchange::ListedTensor& one : file.tensors) {
    if (one.use.empty()) continue;
    std::string shape;
    for (const int64_t size : one.shape)
      shape += (shape.empty() ? "" : " x ") + (size < 0 ? "free" : std::to_string(size));
    contents.tensors.add_row(
        {one.name, one.type, shape.empty() ? "scalar" : shape, static_cast<double>(one.bytes), one.use});
  }
  contents.bytes = bytes_of_files(path);
  return contents;
}

void check_onnx(const graph::GraphModule& graph) {
  exchange::export_onnx(graph);
}

void write_onnx(const graph::GraphModule& graph, const std::filesystem::path& path,
                const std::map<std::string, std::string>& metadata) {
  exchange::export_onnx(graph, path, {.metadata = metadata});
}

void check_tflite(const graph::GraphModule& graph) {
  exchange::export_tflite(graph);
}

void write_tflite(const graph::GraphModule& graph, const std::filesystem::path& path, bool integer_io) {
  exchange::export_tflite(graph, path, {.integer_io = integer_io});
}

constexpr ExchangeFiles kExchangeFiles{.onnx_metadata = exchange::onnx_metadata,
                                       .load_onnx = load_onnx,
                                       .load_pt2 = load_pt2,
                                       .gguf_spec = read_gguf_spec,
                                       .load_gguf = load_gguf,
                                       .gguf_contents = gguf_contents,
                                       .listed_contents = listed_contents,
                                       .check_onnx = check_onnx,
                                       .export_onnx = write_onnx,
                                       .check_tflite = check_tflite,
                                       .export_tflite = write_tflite};
const Component<ExchangeFiles>::Provider kExchangeProvider(exchange_files, kExchangeFiles);

}  // namespace

}  // namespace ulp::app
