#include "ulp/exchange/export_onnx.h"

#include <limits>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/exchange/calls.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/half.h"
#include "ulp/exchange/integer_sums.h"
#include "ulp/exchange/name_sizes.h"
#include "ulp/exchange/onnx/converters.h"
#include "ulp/exchange/onnx/external.h"
#include "ulp/exchange/spelled/spelled.h"
#include "ulp/exchange/store_fixed.h"
#include "ulp/exchange/store_minima.h"
#include "ulp/exchange/stored_batch_range.h"
#include "ulp/exchange/write_in_blocks.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/decompose/decompose.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/version.h"

namespace ulp::exchange {

namespace {

using onnx::Builder;

constexpr const char* kExportOnnxWhere = "exchange.export_onnx";
constexpr int64_t kFirstExportOpset = 17, kLastExportOpset = 21;

onnx::Model built(const graph::Graph& graph, const OnnxOptions& options) {
  Builder builder(graph, options.opset);
  const std::vector<graph::Value*> inputs = graph.inputs();
  for (const graph::Value* input : inputs) {
    if (!input->meta) fail(kExportOnnxWhere, "expected input '", input->name, "' to have known sizes");
    builder.add_input(*input);
  }
  const auto call = [&](const graph::Node& node) {
    const onnx::ConvertFunction function = onnx::find_converter(node);
    if (function == nullptr) return false;
    expect_peer_type(node, onnx::peer_types());
    function(builder, node);
    return true;
  };
  const auto result = [&](const graph::Value& value, const std::string& name) {
    builder.add_output(value, name);
  };
  convert_graph(graph, {.where = kExportOnnxWhere,
                        .form = "ONNX form",
                        .op_names = onnx::converter_names,
                        .call = call,
                        .result = result});
  onnx::Model model = std::move(builder.model());
  model.producer = "ulp";
  model.producer_version = kVersion;
  store_batch_range(graph.batch_range, model.metadata);
  model.metadata.insert(options.metadata.begin(), options.metadata.end());
  return model;
}

onnx::Model model_of(const graph::GraphModule& module, const OnnxOptions& options) {
  if (options.opset < kFirstExportOpset || options.opset > kLastExportOpset)
    fail(kExportOnnxWhere, "expected an opset of ", kFirstExportOpset, " to ", kLastExportOpset, ", got ",
         options.opset);
  graph::check_conditions(module.graph(), kExportOnnxWhere);
  const std::shared_ptr<graph::Graph> graph = module.graph().clone();
  for (const auto pass : {graph::fold_masks, graph::canonicalize, graph::strip_training}) pass(*graph);
  store_minima(*graph, kExportOnnxWhere);
  if (options.fp16) graph::fold_batch_norm(*graph);
  graph->remove_dead(/*attributes=*/true);
  name_sizes(*graph);
  check_integer_sums(*graph, kExportOnnxWhere);
  if (options.fp16) to_half(*graph, kExportOnnxWhere);
  const auto has_no_form = [](const graph::Node& node) { return onnx::find_converter(node) == nullptr; };
  graph::decompose(*graph, has_no_form);
  spelled::split_extremes(*graph);
  spelled::spell_out(*graph, has_no_form);
  store_fixed(*graph, has_no_form);
  carry_types(*graph, onnx::peer_types());
  return built(*graph, options);
}

uint64_t size_of(const onnx::Model& model) {
  WireWriter counter;
  onnx::write(model, counter);
  return counter.size();
}

/// A message of protocol buffers.
constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());

void write_model(const onnx::Model& model, AtomicFile& file) {
  write_in_blocks(file, [&](const WireWriter::Sink& sink) {
    WireWriter writer(&sink);
    onnx::write(model, writer);
  });
}

}  // namespace

void OnnxOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "opset",
           .help = "Version of ONNX's operators",
           .min = kFirstExportOpset,
           .max = kLastExportOpset},
          opset);
  visitor({.name = "external_data", .help = "Write weights to a file beside the model, FILE.data"},
          external_data);
  visitor({.name = "fp16", .help = "Weights and arithmetic in 16 bits; inputs and results stay as they are"},
          fp16);
}

std::string export_onnx(const graph::GraphModule& model, const OnnxOptions& options) {
  if (options.external_data)
    fail(kExportOnnxWhere, "expected a path to write to, since external_data makes two files");
  const onnx::Model made = model_of(model, options);
  const uint64_t size = size_of(made);
  if (size > kLargest)
    fail(kExportOnnxWhere, "expected a model below 2 GB, the limit of one ONNX file, got ", size,
         " bytes; written to a path, its weights go into a second file");
  std::string bytes;
  bytes.reserve(size);
  const WireWriter::Sink sink = [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  };
  WireWriter writer(&sink);
  onnx::write(made, writer);
  return bytes;
}

void export_onnx(const graph::GraphModule& model, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  onnx::Model made = model_of(model, options);
  if (!options.external_data && size_of(made) <= kLargest) {
    AtomicFile file(path);
    write_model(made, file);
    return file.commit();
  }
  const std::filesystem::path data_path = path.string() + ".data";
  onnx::move_out(made, data_path.filename().string());
  AtomicFile data(data_path), file(path);
  write_in_blocks(data, [&](const WireWriter::Sink& sink) { onnx::write_moved(made, sink); });
  write_model(made, file);
  data.commit();
  file.commit();
}

}  // namespace ulp::exchange
