#include "ulp/app/onnx_file.h"

#include <fstream>

#include "ulp/base/error.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

/// A size that is no expression of free ones.
std::optional<int64_t> fixed(const graph::Value& value, size_t dim) {
  if (!value.meta || dim >= value.meta->sizes.size() || !value.meta->sizes[dim].constant())
    return std::nullopt;
  return value.meta->sizes[dim].offset;
}

size_t rank_of(const graph::Value& value) {
  return value.meta ? value.meta->sizes.size() : 0;
}

/// The first result.
const graph::Value* first_result(const graph::Argument& argument) {
  if (argument.is_value()) return argument.value;
  for (const graph::Argument& item : argument.items) {
    if (const graph::Value* found = first_result(item)) return found;
  }
  return nullptr;
}

ModelSpec described(const std::filesystem::path& path, const graph::Graph& graph, ModelSpec spec) {
  spec.name = report::clean_line(path.stem().string());
  const graph::Value& input = *graph.inputs().at(0);
  const graph::Value* result = first_result(graph.output_node()->args.at(0));
  if (result != nullptr && rank_of(*result) > 0)
    spec.num_classes = fixed(*result, rank_of(*result) - 1).value_or(spec.num_classes);
  if (input.meta && !at::isFloatingType(input.meta->dtype)) {
    const bool language = result != nullptr && rank_of(*result) == 3;
    spec.kind = language ? NetworkKind::language : NetworkKind::text;
    const int64_t longest = graph.free.empty() ? 0 : graph.free[0].max;
    spec.max_length = fixed(input, 1).value_or(longest);
    return spec;
  }
  spec.in_channels = fixed(input, 1).value_or(spec.in_channels);
  spec.image_size = rank_of(input) == 4 ? fixed(input, 2).value_or(spec.image_size) : 1;
  spec.mean.resize(static_cast<size_t>(spec.in_channels), spec.mean.back());
  spec.std.resize(static_cast<size_t>(spec.in_channels), spec.std.back());
  return spec;
}

}  // namespace

bool is_onnx_file(const std::filesystem::path& path) {
  if (path.extension() == ".onnx") return true;
  // The first field is the version, a small number, and another field follows; a safetensors file begins
  // with the size of its header in 8 bytes, of which the last ones are 0.
  unsigned char start[8] = {};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(start), sizeof start);
  constexpr unsigned char kVersionField = 0x08, kMostVersions = 64;
  return start[0] == kVersionField && start[1] > 0 && start[1] < kMostVersions && start[2] != 0 &&
         (start[6] != 0 || start[7] != 0);
}

std::optional<ModelSpec> onnx_spec(const std::filesystem::path& path) {
  const auto metadata = exchange::onnx_metadata(path);
  const auto found = metadata.find(kModelSpecKey);
  return found == metadata.end() ? std::nullopt : std::optional(ModelSpec::from_json(found->second));
}

std::shared_ptr<graph::GraphModule> load_onnx_graph(const std::filesystem::path& path, const ModelSpec& like,
                                                    OnnxUse use) {
  exchange::OnnxImportOptions options;
  options.free_batch = true;
  options.image_size = like.image_size;
  if (like.kind != NetworkKind::image) options.longest = like.max_length;
  if (use == OnnxUse::training) options.qdq = exchange::QdqForm::fake;
  std::shared_ptr<graph::GraphModule> graph = exchange::import_onnx(path, options);
  models::to_channels_last(*graph);
  graph->recompile();
  return graph;
}

LoadedModel load_onnx(const std::filesystem::path& path, const ModelSpec& like) {
  const std::optional<ModelSpec> stored = onnx_spec(path);
  const auto graph = load_onnx_graph(path, stored ? *stored : like, OnnxUse::inference);
  return {.spec = stored ? *stored : described(path, graph->graph(), like),
          .forward = [graph](const at::Tensor& x) { return graph->forward(x); },
          .graph = graph};
}

}  // namespace ulp::app
