// The room `exchange` for the tool.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/app/exchange_component.h"
#include "ulp/app/gguf_file.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
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

std::shared_ptr<graph::GraphModule> load_onnx(const std::filesystem::path& path, const ModelSpec& like,
                                              ExchangeUse use) {
  exchange::OnnxImportOptions options;
  options.free_batch = true;
  // Values are counted in 8 bytes each, weights among them.
  options.max_bytes = std::max(options.max_bytes, 4 * bytes_on_disk(path));
  options.image_size = like.image_size;
  options.image_width = like.width();
  if (like.kind != NetworkKind::image) options.longest = like.max_length;
  if (use == ExchangeUse::training) options.qdq = exchange::QdqForm::fake;
  return exchange::import_onnx(path, options);
}

std::shared_ptr<graph::GraphModule> load_pt2(const std::filesystem::path& path, const ModelSpec& like) {
  exchange::Pt2ImportOptions options;
  if (like.kind != NetworkKind::image) options.longest = like.max_length;
  return exchange::import_pt2(path, options);
}

ModelSpec read_gguf_spec(const std::filesystem::path& path) {
  return gguf_spec(exchange::import_gguf(path), path);
}

PublishedModel load_gguf(const std::filesystem::path& path) {
  const exchange::GgufModel file = exchange::import_gguf(path);
  const std::shared_ptr<models::TextModel> text = gguf_network(file, path);
  const auto forward = [text](const train::TaskBatch& batch) { return text->forward(batch.inputs); };
  PublishedModel model{.network = {.module = text, .forward = forward},
                       .spec = gguf_spec(file, path),
                       .report = {},
                       .codes = exchange::gpt2_codes(file)};
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

void check_onnx(const graph::GraphModule& graph) {
  exchange::export_onnx(graph);
}

void write_onnx(const graph::GraphModule& graph, const std::filesystem::path& path,
                const std::map<std::string, std::string>& metadata) {
  exchange::export_onnx(graph, path, {.metadata = metadata});
}

constexpr ExchangeFiles kExchangeFiles{.onnx_metadata = exchange::onnx_metadata,
                                       .load_onnx = load_onnx,
                                       .load_pt2 = load_pt2,
                                       .gguf_spec = read_gguf_spec,
                                       .load_gguf = load_gguf,
                                       .gguf_contents = gguf_contents,
                                       .check_onnx = check_onnx,
                                       .export_onnx = write_onnx};
const Component<ExchangeFiles>::Provider kExchangeProvider(exchange_files, kExchangeFiles);

}  // namespace

}  // namespace ulp::app
