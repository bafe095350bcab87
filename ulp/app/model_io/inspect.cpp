#include "ulp/app/model_io/inspect.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/app/model_io/torchscript_file.h"
#include "ulp/base/safetensors.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/models/registry.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape)
    text += (text.empty() ? "" : " x ") + (size == runtime::kBatch ? "N" : std::to_string(size));
  return text.empty() ? "scalar" : text;
}

namespace {

constexpr const char* kPlanKey = "ulp.plan";
constexpr const char* kReadContentsWhere = "app.read_contents";

/// "8 N x 32": rows of each item stand before the batch's letter.
std::string sizes_text(const runtime::TensorInfo& tensor) {
  return (tensor.times > 1 ? std::to_string(tensor.times) + " " : "") + shape_text(tensor.shape);
}

report::Table steps_table(const runtime::Plan& plan) {
  report::Table table{.title = "Steps",
                      .columns = {{"step"}, {"op"}, {"reads"}, {"writes"}, {"type"}, {"attributes"}}};
  for (const runtime::Step& step : plan.steps) {
    std::string reads;
    for (const int32_t input : step.inputs) reads += (reads.empty() ? "" : ", ") + plan.tensors[input].name;
    const runtime::TensorInfo& output = plan.tensors[step.output];
    table.add_row({step.name, std::string(to_string(step.op)), reads,
                   output.name + " [" + sizes_text(output) + "]", std::string(to_string(output.type)),
                   runtime::attributes_text(step.attributes)});
  }
  return table;
}

/// Numbers with a sign bit, of which -0 is a zero, too.
bool has_minus_zero(std::string_view dtype) {
  return dtype == "BF16" || (dtype.starts_with("F") && !dtype.ends_with("FNUZ"));
}

/// The share of zeros among the elements, in percent; nothing for none, for elements below a byte, and for
/// powers of two, which have no zero.
report::Cell zeros_of(const TensorEntry& tensor) {
  const size_t size = safetensors_element_size(tensor.dtype);
  if (size == 0 || tensor.bytes.empty() || tensor.dtype == "F8_E8M0") return {};
  const std::byte sign = has_minus_zero(tensor.dtype) ? std::byte{0x80} : std::byte{0};
  size_t zeros = 0;
  for (size_t at = 0; at < tensor.bytes.size(); at += size) {
    const auto element = tensor.bytes.subspan(at, size);
    const bool rest =
        std::ranges::all_of(element.first(size - 1), [](std::byte b) { return b == std::byte{0}; });
    zeros += rest && (element.back() & ~sign) == std::byte{0};
  }
  return 100.0 * static_cast<double>(zeros * size) / static_cast<double>(tensor.bytes.size());
}

report::Table tensors_table(const SafetensorsFile& file) {
  report::Table table{
      .title = "Tensors",
      .columns = {
          {"name"}, {"dtype"}, {"shape"}, {"size", "bytes"}, {"zeros", "%", report::Better::none, 1}}};
  for (const TensorEntry& tensor : file.tensors()) {
    table.add_row({tensor.name, tensor.dtype, shape_text(tensor.shape),
                   static_cast<double>(tensor.bytes.size()), zeros_of(tensor)});
  }
  return table;
}

/// Where the bytes of a compressed model are.
report::Table accounting_table(const std::filesystem::path& path) {
  const std::vector<std::vector<std::string>> rows = prune::load_accounting(path).rows();
  report::Table table{.title = "Tensors", .columns = {}};
  for (const std::string& title : rows.at(0)) table.columns.push_back({title});
  for (size_t i = 1; i < rows.size(); ++i) table.add_row({rows[i].begin(), rows[i].end()});
  return table;
}

/// What a file of another program holds, without tensors yet.
FileContents foreign_contents(const std::filesystem::path& path, const char* kind) {
  std::error_code error;  // whoever reads the file says what is wrong
  return {.kind = std::string(kind) + " (--graph shows its graph)",
          .bytes = std::filesystem::file_size(path, error),
          .metadata = {},
          .steps = std::nullopt,
          .tensors = {.title = "Tensors",
                      .columns = {{"name"}, {"dtype"}, {"shape"}, {"size", "bytes"}, {"kind"}}}};
}

void add_tensor(FileContents& contents, const std::string& name, const at::Tensor& tensor, const char* kind) {
  contents.tensors.add_row({name, std::string(c10::toString(tensor.scalar_type())),
                            shape_text(tensor.sizes().vec()), static_cast<double>(tensor.nbytes()),
                            std::string(kind)});
}

/// The tensors that the graph of a file has.
FileContents exchange_contents(const std::filesystem::path& path, const ModelSpec& like) {
  const bool archive = is_pt2_file(path);
  FileContents contents = foreign_contents(path, archive ? "torch.export archive" : "ONNX model");
  if (!archive) contents.metadata = exchange_files.functions(kReadContentsWhere).onnx_metadata(path);
  const LoadedModel model = load_exchange(path, like);
  for (const auto& [name, attribute] : std::as_const(*model.graph).graph().attributes()) {
    const bool parameter = attribute.kind == graph::Attribute::Kind::parameter;
    const bool buffer = attribute.kind == graph::Attribute::Kind::buffer;
    add_tensor(contents, name, attribute.tensor, parameter ? "parameter" : buffer ? "buffer" : "constant");
  }
  return contents;
}

FileContents torchscript_contents(const std::filesystem::path& path) {
  FileContents contents = foreign_contents(path, "TorchScript module");
  const torch::jit::Module module = load_torchscript(path);
  for (const auto& item : module.named_parameters()) add_tensor(contents, item.name, item.value, "parameter");
  for (const auto& item : module.named_buffers()) add_tensor(contents, item.name, item.value, "buffer");
  return contents;
}

bool is_tflite_file(const std::filesystem::path& path) {
  char head[8] = {};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  return std::string_view(head + 4, 4) == "TFL3";
}

bool is_coreml_package(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) &&
         std::filesystem::is_regular_file(path / "Manifest.json", error);
}

std::string lines_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The tensors of the files, and how they differ from those of the network.
FileContents published_contents(const std::filesystem::path& path, const ModelSpec& like) {
  FileContents contents;
  contents.tensors = {.title = "Tensors", .columns = {{"name"}, {"dtype"}, {"shape"}, {"size", "bytes"}}};
  for (const auto& [name, tensor] : io::load_pretrained_tensors(path)) {
    contents.tensors.add_row({name, std::string(c10::toString(tensor.scalar_type())),
                              shape_text(tensor.sizes().vec()), static_cast<double>(tensor.nbytes())});
    contents.bytes += tensor.nbytes();
  }
  ModelSpec own = like;
  own.num_classes = 0;  // the file's
  const PretrainedModel model =
      load_pretrained_model(path, pretrained_spec(path).value_or(own), PretrainedFit::partial);
  contents.kind = "published weights of " + model.spec.name;
  const io::PretrainedReport& report = model.report;
  for (const auto& [what, names] : {std::pair("missing", &report.differences.missing),
                                    {"unexpected", &report.differences.unexpected},
                                    {"does not fit", &report.differences.mismatched},
                                    {"left out", &report.ignored},
                                    {"renamed", &report.renamed}})
    if (!names->empty()) contents.metadata[what] = lines_of(*names);
  return contents;
}

}  // namespace

uint64_t bytes_of_files(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error) fail_file("app.bytes_of_files", "could not read '", path.string(), "': ", error.message());
    return bytes;
  }
  uint64_t bytes = 0;
  std::filesystem::recursive_directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_regular_file(error) && !error) bytes += entry->file_size(error);
    if (error) break;
  }
  if (error)
    fail_file("app.bytes_of_files", "could not read all of '", path.string(), "': ", error.message());
  return bytes;
}

FileContents read_contents(const std::filesystem::path& path, const ModelSpec& like) {
  expect_named_sizes(like, path);
  if (is_tflite_file(path) || is_coreml_package(path))
    return exchange_files.functions(kReadContentsWhere).listed_contents(path);
  if (is_exchange_file(path) && !is_graph_file(path)) return exchange_contents(path, like);
  if (is_gguf_file(path)) return exchange_files.functions(kReadContentsWhere).gguf_contents(path);
  if (is_pretrained_file(path, like.network)) return published_contents(path, like);
  if (is_zip_file(path)) return torchscript_contents(path);
  expect_safetensors(path);
  const SafetensorsFile file(path);
  FileContents contents{.kind = "safetensors",
                        .bytes = std::filesystem::file_size(path),
                        .metadata = file.metadata(),
                        .steps = std::nullopt,
                        .tensors = tensors_table(file)};
  if (contents.metadata.erase(kPlanKey) != 0) {
    contents.kind = "engine";
    contents.steps = steps_table(runtime::Plan::load(path));
  }
  if (contents.metadata.erase(io::kGraphKey) != 0) contents.kind = "captured model (--graph shows its graph)";
  if (contents.metadata.contains("ulp.compressed")) {
    contents.kind = "compressed model";
    contents.tensors = accounting_table(path);
  }
  return contents;
}

bool is_reference_network(const std::string& name) {
  const auto names = models::model_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::shared_ptr<graph::GraphModule> graph_of(const std::string& network_or_file, ModelSpec spec) {
  if (is_tflite_file(network_or_file) || is_coreml_package(network_or_file))
    fail_file("app.graph_of", "expected a file that is read as a graph, got '", network_or_file,
              "', whose operators and tensors alone are shown");
  if (!is_reference_network(network_or_file)) return load_model_file(network_or_file, spec).graph;
  expect_named_sizes(spec, network_or_file);
  spec.name = network_or_file;
  auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
  return capture_model(*model, spec);
}

}  // namespace ulp::app
