#include "ulp/exchange/export_onnx.h"

#include <limits>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/exchange/onnx/converters.h"
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
  model.metadata = options.metadata;
  return model;
}

onnx::Model model_of(const graph::GraphModule& module, const OnnxOptions& options) {
  if (options.opset < kFirstOpset || options.opset > kLastOpset)
    fail(kWhere, "expected an opset of ", kFirstOpset, " to ", kLastOpset, ", got ", options.opset);
  const std::shared_ptr<graph::Graph> graph = module.graph().clone();
  for (const auto pass : {graph::fold_masks, graph::canonicalize, graph::strip_training}) pass(*graph);
  graph->remove_dead(/*attributes=*/true);
  return built(*graph, options);
}

/// What goes to the sink; a file that no reader would take is refused before the first byte.
void write_model(const onnx::Model& model, const WireWriter::Sink& sink) {
  WireWriter counter;
  onnx::write(model, counter);
  if (counter.size() > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    fail(kWhere, "expected a model below 2 GB, the limit of the format without external data, got ",
         counter.size(), " bytes");
  WireWriter writer(&sink);
  onnx::write(model, writer);
}

}  // namespace

void OnnxOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "opset", .help = "Version of ONNX's operators", .min = kFirstOpset, .max = kLastOpset},
          opset);
}

std::string export_onnx(const graph::GraphModule& model, const OnnxOptions& options) {
  std::string bytes;
  const WireWriter::Sink sink = [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  };
  write_model(model_of(model, options), sink);
  return bytes;
}

void export_onnx(const graph::GraphModule& model, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  const onnx::Model made = model_of(model, options);
  constexpr size_t kEnough = 1 << 20;  // fields are small, and each write is a call of the system
  AtomicFile file(path);
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
  write_model(made, sink);
  flush();
  file.commit();
}

}  // namespace ulp::exchange
