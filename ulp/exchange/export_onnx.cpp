#include "ulp/exchange/export_onnx.h"

#include <limits>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/exchange/onnx/converters.h"
#include "ulp/exchange/onnx/external.h"
#include "ulp/exchange/onnx/half.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/version.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using onnx::Builder;

constexpr const char* kWhere = "exchange.export_onnx";
constexpr int64_t kFirstOpset = 17, kLastOpset = 21;

/// Throws one error for all that stand in the way.
[[noreturn]] void fail_with(const std::vector<onnx::Refused>& refusals) {
  constexpr size_t kShown = 8;
  std::string text;
  bool unknown = false;
  for (size_t i = 0; i < refusals.size() && i < kShown; ++i) {
    const auto& [node, reason] = refusals[i];
    unknown = unknown || reason.empty();
    text += (text.empty() ? "" : "; ") + graph::describe(*node) + ": " +
            (reason.empty() ? "no ONNX form is known" : reason);
  }
  if (refusals.size() > kShown) text += "; and " + std::to_string(refusals.size() - kShown) + " more";
  if (unknown) text += ". There are forms of " + onnx::converter_names();
  fail(kWhere, "expected a graph whose calls have ONNX forms, got ", text);
}

/// Results in order. A pair of a word and a value is a named one.
void add_outputs(Builder& builder, const graph::Node& output, const Argument& argument,
                 const std::string& name = "") {
  if (argument.is_value()) return builder.add_output(*argument.value, name);
  const bool many = argument.kind == Argument::Kind::list || argument.kind == Argument::Kind::tuple;
  if (!many) onnx::refuse(output, "expected results that are tensors");
  const auto& items = argument.items;
  const bool pair =
      items.size() == 2 && items[0].kind == Argument::Kind::literal && items[0].literal.isString();
  if (pair) return add_outputs(builder, output, items[1], items[0].literal.toStringRef());
  for (const Argument& item : items) add_outputs(builder, output, item);
}

void convert(Builder& builder, const graph::Node& node) {
  if (node.kind() == graph::Node::Kind::output) return add_outputs(builder, node, node.args.at(0));
  if (node.kind() == graph::Node::Kind::module)
    onnx::refuse(node, "expected a graph without observers; quant::convert comes first");
  if (node.kind() != graph::Node::Kind::call || node.train_only) return;
  const onnx::ConvertFunction function = onnx::find_converter(node);
  if (function == nullptr) throw onnx::Refused{&node, ""};
  function(builder, node);
}

onnx::Model built(const graph::Graph& graph, const OnnxOptions& options) {
  Builder builder(graph, options.opset);
  const std::vector<graph::Value*> inputs = graph.inputs();
  std::vector<onnx::Refused> refusals;
  for (const graph::Value* input : inputs) {
    if (!input->meta) fail(kWhere, "expected input '", input->name, "' to have known sizes");
    builder.add_input(*input);
  }
  for (const auto& node : graph.nodes()) {
    try {
      convert(builder, *node);
    } catch (const onnx::Refused& refused) {
      refusals.push_back(refused);
    }
  }
  if (!refusals.empty()) fail_with(refusals);
  onnx::Model model = std::move(builder.model());
  model.producer = "ulp";
  model.producer_version = kVersion;
  model.metadata.insert(options.metadata.begin(), options.metadata.end());
  return model;
}

onnx::Model model_of(const graph::GraphModule& module, const OnnxOptions& options) {
  if (options.opset < kFirstOpset || options.opset > kLastOpset)
    fail(kWhere, "expected an opset of ", kFirstOpset, " to ", kLastOpset, ", got ", options.opset);
  const std::shared_ptr<graph::Graph> graph = module.graph().clone();
  for (const auto pass : {graph::fold_masks, graph::canonicalize, graph::strip_training}) pass(*graph);
  if (options.fp16) graph::fold_batch_norm(*graph);
  graph->remove_dead(/*attributes=*/true);
  if (options.fp16) onnx::to_half(*graph);
  return built(*graph, options);
}

uint64_t size_of(const onnx::Model& model) {
  WireWriter counter;
  onnx::write(model, counter);
  return counter.size();
}

/// A message of protocol buffers.
constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());

/// Calls write(sink), whose many small pieces go to the file in large ones.
template <typename Write>
void write_in_blocks(AtomicFile& file, const Write& write) {
  constexpr size_t kEnough = 1 << 20;
  std::string waiting;
  const auto flush = [&] {
    file.write(waiting);
    waiting.clear();
  };
  const WireWriter::Sink sink = [&](const void* data, size_t count) {
    if (waiting.size() + count > kEnough) flush();
    if (count > kEnough) return file.write(data, count);
    waiting.append(static_cast<const char*>(data), count);
  };
  write(sink);
  flush();
}

void write_model(const onnx::Model& model, AtomicFile& file) {
  write_in_blocks(file, [&](const WireWriter::Sink& sink) {
    WireWriter writer(&sink);
    onnx::write(model, writer);
  });
}

}  // namespace

void OnnxOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "opset", .help = "Version of ONNX's operators", .min = kFirstOpset, .max = kLastOpset},
          opset);
  visitor({.name = "external_data", .help = "Write weights to a file beside the model, FILE.data"},
          external_data);
  visitor({.name = "fp16", .help = "Weights and arithmetic in 16 bits; inputs and results stay as they are"},
          fp16);
}

std::string export_onnx(const graph::GraphModule& model, const OnnxOptions& options) {
  if (options.external_data) fail(kWhere, "expected a path to write to, since external_data makes two files");
  const onnx::Model made = model_of(model, options);
  const uint64_t size = size_of(made);
  if (size > kLargest)
    fail(kWhere, "expected a model below 2 GB, the limit of one ONNX file, got ", size,
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
