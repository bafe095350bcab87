#include "ulp/app/model_io/exchange_file.h"

#include <algorithm>
#include <fstream>

#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/io/zip_archive.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

/// A size that is no expression of free ones.
std::optional<int64_t> fixed(const graph::Value& value, size_t dim) {
  if (!value.meta || dim >= value.meta->sizes.size() || !value.meta->sizes[dim].constant())
    return std::nullopt;
  return value.meta->sizes[dim].offset;
}

ModelSpec described(const std::filesystem::path& path, const graph::Graph& graph, ModelSpec spec) {
  spec.name = report::clean_line(path.stem().string());
  const graph::Value& input = *graph.inputs().at(0);
  const std::vector<const graph::Value*> results = results_of(graph);
  spec.num_classes = classes_of(graph).value_or(spec.num_classes);
  if (input.meta && !at::isFloatingType(input.meta->dtype)) {
    const bool language = !results.empty() && rank_of(*results[0]) == 3;
    spec.kind = language ? NetworkKind::language : NetworkKind::text;
    const int64_t longest = graph.free.empty() ? 0 : graph.free[0].max;
    spec.max_length = fixed(input, 1).value_or(longest);
    return spec;
  }
  spec.in_channels = fixed(input, 1).value_or(spec.in_channels);
  const int64_t width = spec.width();
  spec.image_size = rank_of(input) == 4 ? fixed(input, 2).value_or(spec.image_size) : 1;
  spec.image_width = rank_of(input) == 4 ? fixed(input, 3).value_or(width) : 0;
  if (rank_of(input) == 2) spec.take_rows();
  spec.mean.resize(static_cast<size_t>(spec.in_channels), spec.mean.back());
  spec.std.resize(static_cast<size_t>(spec.in_channels), spec.std.back());
  return spec;
}

bool begins_as_onnx(const std::filesystem::path& path) {
  // The first field is the version, a small number, and another field follows; a safetensors file begins
  // with the size of its header in 8 bytes, of which the last ones are 0.
  unsigned char start[8] = {};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(start), sizeof start);
  constexpr unsigned char kVersionField = 0x08, kMostVersions = 64;
  return start[0] == kVersionField && start[1] > 0 && start[1] < kMostVersions && start[2] != 0 &&
         (start[6] != 0 || start[7] != 0);
}

const ExchangeFiles& readers() {
  return exchange_files.functions("app.load_model_file");
}

}  // namespace

constinit Component<ExchangeFiles> exchange_files("exchange");

namespace {

/// What a file is by its name, where that says so.
std::string kind_by_name(const std::filesystem::path& path) {
  static constexpr std::pair<std::string_view, const char*> kEndings[] = {
      {".gguf", "a GGUF file"},           {".ulp", "an engine"},
      {".safetensors", "safetensors"},    {".tflite", "a TensorFlow Lite file"},
      {".pt", "a TorchScript archive"},   {".pth", "a TorchScript archive"},
      {".mlpackage", "a Core ML package"}};
  const std::string ending = path.extension().string();
  for (const auto& [known, kind] : kEndings)
    if (ending == known) return kind;
  return "";
}

}  // namespace

void expect_safetensors(const std::filesystem::path& path) {
  // The size of the header in 8 bytes, and the header, which begins with a brace.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  char start[9] = {};
  std::ifstream in(path, std::ios::binary);
  if (!in) return;
  in.read(start, sizeof start);
  const auto there = static_cast<size_t>(in.gcount());
  if (there == sizeof start && start[8] == '{') return;
  std::string found = there == 0 ? "which is empty" : "which begins as none of them";
  if (std::string_view(start + 4, 4) == "TFL3")
    found =
        "which is a TensorFlow Lite file: they are written, and `ulp inspect` lists them, but none is run";
  else if (const std::string kind = kind_by_name(path); !kind.empty())
    found += ", though its name says " + kind + ": it is damaged, or something else";
  fail_file("app.load_model_file",
            "expected a model or an engine: a file of `ulp train` or `ulp lower`, TorchScript, ONNX, .pt2, "
            "GGUF or published weights, got '",
            path.string(), "', ", found);
}

bool is_zip_file(const std::filesystem::path& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, 4) == std::string_view("PK\x03\x04", 4);
}

bool is_pt2_file(const std::filesystem::path& path) {
  if (path.extension() == ".pt2") return true;
  if (!is_zip_file(path)) return false;
  try {
    const io::ZipArchive archive(path, "app.is_pt2_file", "a zip archive");
    return std::ranges::any_of(
        archive.entries(), [](const io::ZipEntry& entry) { return entry.name.ends_with("/archive_format"); });
  } catch (const FileError&) {
    return false;  // whoever reads it says what is wrong
  }
}

bool is_graph_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  char start[9] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  if (start[8] != '{') return false;
  try {
    const io::Metadata metadata = io::load_metadata(path);
    return metadata.contains(io::kGraphKey) && !metadata.contains(kModelSpecKey);
  } catch (const FileError&) {
    return false;  // whoever reads it says what is wrong
  }
}

bool is_exchange_file(const std::filesystem::path& path) {
  return path.extension() == ".onnx" || begins_as_onnx(path) || is_pt2_file(path) || is_graph_file(path);
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::string head(4, '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == "GGUF";
}

namespace {

/// What `ulp export` has put beside the program.
std::optional<ModelSpec> archive_spec(const std::filesystem::path& path) {
  const io::ZipArchive archive(path, "app.load_model_file", "a .pt2 archive");
  for (const io::ZipEntry& entry : archive.entries()) {
    if (!entry.name.ends_with(std::string("/extra/") + kModelSpecKey)) continue;
    const std::unique_ptr<io::ZipReader> reader = archive.open(entry);
    std::string text(reader->left(), '\0');
    reader->read(text.data(), text.size());
    reader->expect_end();
    return ModelSpec::from_json(text);
  }
  return std::nullopt;
}

}  // namespace

ModelSpec with_sizes_of(const std::optional<ModelSpec>& stored, const ModelSpec& like) {
  ModelSpec spec = stored.value_or(like);
  spec.sizes = like.sizes;
  spec.smallest_sizes = like.smallest_sizes;
  return spec;
}

std::optional<ModelSpec> exchange_spec(const std::filesystem::path& path) {
  if (is_graph_file(path)) return std::nullopt;
  if (is_pt2_file(path)) return archive_spec(path);
  const auto metadata = readers().onnx_metadata(path);
  const auto found = metadata.find(kModelSpecKey);
  return found == metadata.end() ? std::nullopt : std::optional(ModelSpec::from_json(found->second));
}

namespace {

std::shared_ptr<graph::GraphModule> read_exchange(const std::filesystem::path& path, const ModelSpec& like,
                                                  ExchangeUse use, std::vector<FixedDimension>& fixed) {
  if (is_graph_file(path)) return io::load_graph(path);
  std::shared_ptr<graph::GraphModule> graph =
      is_pt2_file(path) ? readers().load_pt2(path, like) : readers().load_onnx(path, like, use, fixed);
  models::to_channels_last(*graph);
  graph->recompile();
  graph->eval();
  return graph;
}

}  // namespace

std::shared_ptr<graph::GraphModule> load_exchange_graph(const std::filesystem::path& path,
                                                        const ModelSpec& like, ExchangeUse use) {
  std::vector<FixedDimension> unasked;
  return read_exchange(path, like, use, unasked);
}

LoadedModel load_exchange(const std::filesystem::path& path, const ModelSpec& like) {
  const std::optional<ModelSpec> stored = exchange_spec(path);
  std::vector<FixedDimension> fixed;
  const auto graph = read_exchange(path, with_sizes_of(stored, like), ExchangeUse::inference, fixed);
  return {.spec = stored ? *stored : described(path, graph->graph(), like),
          .forward = [graph](const at::Tensor& x) { return graph->forward(x); },
          .graph = graph,
          .fixed = std::move(fixed)};
}

}  // namespace ulp::app
