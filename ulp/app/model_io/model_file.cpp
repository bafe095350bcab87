#include "ulp/app/model_io/model_file.h"

#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/module.h>
#include <torch/script.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/app/model_io/model_sizes.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/app/model_io/torchscript_file.h"
#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/io/safetensors.h"
#include "ulp/io/text_dataset.h"
#include "ulp/io/zip_archive.h"
#include "ulp/libtorch/shape_propagation.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

/// Of anything that a description may name: a network beyond it is a file that lies.
constexpr int64_t kLargestSize = 65536;
constexpr int64_t kMostTokens = int64_t{1} << 24;

NetworkKind kind_of(const std::string& name) {
  for (NetworkKind kind : {NetworkKind::image, NetworkKind::language, NetworkKind::text}) {
    if (name == to_string(kind)) return kind;
  }
  fail_file("app.ModelSpec", "expected a kind of network that this program knows, got '", name, "'");
}

/// Two samples, so that capture can run the model in train mode as well.
at::Tensor example(const ModelSpec& spec) {
  return torch::zeros(spec.batch_sizes(2));
}

/// What an error inside a TorchScript module says without the lines of the module's code.
std::string without_traceback(const std::string& said) {
  constexpr std::string_view kTraceback = "The following operation failed in the TorchScript interpreter.",
                             kReason = "RuntimeError: ";
  const size_t code = said.find(kTraceback), reason = said.rfind(kReason);
  if (code == std::string::npos || reason == std::string::npos) return said;
  return said.substr(0, code) + report::first_line(std::string_view(said).substr(reason + kReason.size()));
}

/// Why a module may not take what it was given, where that can be seen; empty where not.
std::string weights_note(const torch::jit::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.scalar_type() == at::kDouble)
      return "; its weights are float64: model.float() makes them float32";
  }
  return "";
}

/// The tool can make one input.
void expect_one_argument(const torch::jit::Module& module, const std::filesystem::path& path) {
  std::string names;
  int64_t count = 0;
  const auto forward = module.find_method("forward");
  if (!forward)
    fail_file("app.load_model_file", "expected a module with forward, got none in '", path.string(), "'");
  for (const c10::Argument& argument : forward->function().getSchema().arguments()) {
    if (argument.name() == "self" || argument.default_value()) continue;
    names += (count++ == 0 ? "" : ", ") + argument.name();
  }
  if (count == 1) return;
  fail_file("app.load_model_file", "expected a TorchScript module with one input, got '", path.string(),
            "', whose forward takes ", count == 0 ? "none" : names,
            "; ONNX and .pt2 files say the sizes of several");
}

/// A module that does not take images of one pixel may take rows: the spec then says so.
std::shared_ptr<graph::GraphModule> capture_script(torch::jit::Module& module,
                                                   const std::filesystem::path& path, ModelSpec& spec) {
  try {
    return capture(module, {example(spec)});
  } catch (const Error& error) {
    if (spec.image_size == 1 && !spec.rows) {
      spec.take_rows();
      return capture_script(module, path, spec);
    }
    fail("app.load_model_file", "the TorchScript module '", path.string(), "' did not run on two ",
         spec.input_text(), ", which --shape changes: ", without_traceback(error.what()),
         weights_note(module));
  }
}

LoadedModel load_script(const std::filesystem::path& path, const ModelSpec& spec) {
  const auto module = std::make_shared<torch::jit::Module>(load_torchscript(path));
  LoadedModel loaded{.spec = spec, .forward = {}, .graph = nullptr};
  expect_one_argument(*module, path);
  loaded.graph = capture_script(*module, path, loaded.spec);
  loaded.spec.num_classes = classes_of(loaded.graph->graph()).value_or(spec.num_classes);
  loaded.spec.name = report::clean_line(path.stem().string());  // goes into JSON, which is UTF-8
  loaded.graph->eval();
  loaded.forward = [module](const at::Tensor& images) { return module->forward({images}).toTensor(); };
  return loaded;
}

/// What a file of save_model_file() says of itself.
struct StoredModel {
  ModelSpec spec;
  bool graph = false;  ///< a captured model, whose nodes are in the file, rather than a reference network
};

/// Anything else is an error.
StoredModel expect_stored(const std::filesystem::path& path) {
  expect_safetensors(path);
  const io::Metadata metadata = io::load_metadata(path);
  const auto found = metadata.find(kModelSpecKey);
  if (found == metadata.end() || metadata.contains("ulp.plan")) {
    fail_file(
        "app.load_model_file",
        "expected a model written by `ulp train`, a TorchScript, ONNX or .pt2 file, got '", path.string(),
        metadata.contains("ulp.plan")
            ? "', which is an engine file"
            : "', which names no network; published weights need a config.json beside them, or --network");
  }
  const StoredModel stored{ModelSpec::from_json(found->second), metadata.contains(io::kGraphKey)};
  if (!stored.graph) check_sizes(path, stored.spec);
  return stored;
}

/// The captured model of a file, which takes what its description says.
std::shared_ptr<graph::GraphModule> load_stored_graph(const std::filesystem::path& path,
                                                      const ModelSpec& spec) {
  std::shared_ptr<graph::GraphModule> graph = io::load_graph(path);
  const std::vector<graph::Value*> inputs = graph->graph().inputs();
  const bool image = spec.kind == NetworkKind::image;
  const std::vector<int64_t> sizes = image ? spec.batch_sizes(1) : std::vector<int64_t>(2);
  bool fits = inputs.size() == 1 && inputs[0]->meta && inputs[0]->meta->sizes.size() == sizes.size();
  for (size_t d = 1; fits && image && d < sizes.size(); ++d) {
    fits = inputs[0]->meta->sizes[d] == graph::SizeExpr{0, 1, sizes[d]};
  }
  if (!fits) {
    fail_file("app.load_model_file",
              "expected a graph that takes what its description says, got another in '", path.string(), "'");
  }
  return graph;
}

LoadedModel loaded_graph(const std::filesystem::path& path, const ModelSpec& spec) {
  const std::shared_ptr<graph::GraphModule> graph = load_stored_graph(path, spec);
  return {
      .spec = spec, .forward = [graph](const at::Tensor& x) { return graph->forward(x); }, .graph = graph};
}

LoadedModel load_pretrained(const std::filesystem::path& path, const ModelSpec& like) {
  PretrainedModel model = load_pretrained_model(path, like, PretrainedFit::exact);
  auto graph = std::static_pointer_cast<graph::GraphModule>(model.network.module);
  if (!model.codes.empty()) graph = quant::read_quantized_weights(graph, model.codes);
  return {.spec = std::move(model.spec),
          .forward = [graph](const at::Tensor& x) { return graph->forward(x); },
          .graph = graph};
}

LoadedModel load_stored(const std::filesystem::path& path) {
  const auto [spec, is_graph] = expect_stored(path);
  if (spec.kind != NetworkKind::image) {
    fail_file("app.load_model_file", "expected an image network, got '", path.string(), "' with ", spec.name,
              ", a network over text; `ulp eval` takes it");
  }
  if (is_graph) return loaded_graph(path, spec);
  const auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
  io::load_model(path, *model);
  models::to_channels_last(*model);
  model->eval();
  LoadedModel loaded{.spec = spec, .forward = {}, .graph = capture_model(*model, spec)};
  loaded.forward = [model](const at::Tensor& images) { return model->forward(images); };
  return loaded;
}

}  // namespace

int64_t ModelSpec::vocab_size() const {
  return tokenizer ? tokenizer->vocab_size() : io::kByteVocabulary;
}

int64_t ModelSpec::padding_token() const {
  return tokenizer ? tokenizer->padding().value_or(-1) : io::kTextPadding;
}

ModelSpec ModelSpec::from_json(const std::string& text) {
  try {
    const auto json = parse_json(text);
    ModelSpec spec{.name = json.at("name").get<std::string>(),
                   .kind = kind_of(json.value("kind", "image")),
                   .num_classes = json.at("num_classes").get<int64_t>()};
    const auto check = [](const char* size, int64_t value, int64_t most = kLargestSize) {
      if (value > 0 && value <= most) return;
      fail_file("app.ModelSpec", "expected ", size, " in 1..", most, ", got ", value);
    };
    if (spec.kind == NetworkKind::image) {
      json.at("in_channels").get_to(spec.in_channels);
      json.at("image_size").get_to(spec.image_size);
      json.at("mean").get_to(spec.mean);
      json.at("std").get_to(spec.std);
      check("in_channels", spec.in_channels);
      check("image_size", spec.image_size);
      spec.rows = json.value("rows", false);
      spec.image_width = json.value("image_width", int64_t{0});
      if (spec.image_width != 0) check("image_width", spec.image_width);
      if (spec.rows) check("image_size of rows", spec.image_size, 1);
    } else {
      json.at("max_length").get_to(spec.max_length);
      json.at("class_names").get_to(spec.class_names);
      if (json.contains("tokenizer")) {
        spec.tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::from_json(
            json.at("tokenizer").get_ref<const std::string&>(), "the model's tokenizer"));
      }
      check("max_length", spec.max_length);
    }
    // The tables of published networks may have more rows than there are tokens.
    check("num_classes", spec.num_classes, spec.kind == NetworkKind::language ? kMostTokens : kLargestSize);
    if (spec.kind == NetworkKind::language && spec.tokenizer && spec.num_classes < spec.vocab_size())
      fail_file("app.ModelSpec", "expected num_classes of at least ", spec.vocab_size(),
                ", the tokens of the tokenizer, got ", spec.num_classes);
    return spec;
  } catch (const nlohmann::json::exception& error) {
    fail_file("app.ModelSpec", "expected a model's description in JSON: ", error.what());
  }
}

torch::jit::Module load_torchscript(const std::filesystem::path& path) {
  constexpr const char* kWhere = "app.load_model_file";
  const auto refuse = [&](std::string_view said) {
    const io::ZipArchive readable(path, kWhere, "a TorchScript module");  // or it says why it is not
    const size_t start = said.find_first_not_of(" \n");
    fail_file(kWhere, "'", path.string(), "' is no TorchScript module: ",
              report::first_line(start == std::string_view::npos ? said : said.substr(start)));
  };
  try {
    torch::jit::Module module = torch::jit::load(path.string());
    module.eval();
    return module;
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::exception& error) {  // of the parser of its code
    refuse(error.what());
  }
  return {};
}

void save_model_file(const std::filesystem::path& path, const torch::nn::Module& model,
                     const ModelSpec& spec) {
  const io::Metadata metadata = {{kModelSpecKey, spec.to_json()}};
  if (const auto* graph = dynamic_cast<const graph::GraphModule*>(&model))
    return io::save_graph(path, *graph, metadata);
  io::save_model(path, model, metadata);
}

namespace {

LoadedModel load_unchecked(const std::filesystem::path& path, const ModelSpec& script_spec) {
  if (is_exchange_file(path)) return load_exchange(path, script_spec);
  if (is_pretrained_file(path, script_spec.network)) return load_pretrained(path, script_spec);
  return is_zip_file(path) ? load_script(path, script_spec) : load_stored(path);
}

}  // namespace

LoadedModel load_model_file(const std::filesystem::path& path, const ModelSpec& script_spec) {
  LoadedModel loaded = load_unchecked(path, script_spec);
  expect_asked_sizes(script_spec, loaded.spec, path);
  return loaded;
}

void expect_named_sizes(const ModelSpec& asked, const std::filesystem::path& path) {
  const bool nameless = is_pretrained_file(path, asked.network) && !says_its_network(path);
  if (!asked.network.empty() && !nameless)
    fail("app.load_model_file", "expected no --network beside '", path.string(),
         "', which says itself which network it is, got --network ", asked.network);
  if (asked.sizes.empty() || (is_pretrained_file(path) && !is_gguf_file(path)))
    return;  // which is asked itself
  if (!is_exchange_file(path) || is_graph_file(path))
    fail("app.load_model_file",
         "expected --size beside an ONNX file, a .pt2 archive or a published decoder, got '", path.string(),
         "'");
}

void expect_asked_sizes(const ModelSpec& asked, const ModelSpec& found, const std::filesystem::path& path) {
  expect_named_sizes(asked, path);
  if (!asked.asked) return;
  const bool same = found.kind == NetworkKind::image && asked.in_channels == found.in_channels &&
                    asked.image_size == found.image_size && asked.width() == found.width();
  if (same) return;
  fail("app.load_model_file", "expected no --shape beside '", path.string(),
       "', which says itself that it takes ", found.input_text(), ", got --shape ", asked.in_channels, ',',
       asked.image_size, ',', asked.width());
}

std::optional<ModelSpec> read_model_spec(const std::filesystem::path& path) {
  if (is_exchange_file(path)) return exchange_spec(path);
  if (is_pretrained_file(path)) return pretrained_spec(path);
  if (is_zip_file(path)) return std::nullopt;
  expect_safetensors(path);
  const io::Metadata metadata = io::load_metadata(path);
  const auto found = metadata.find(kModelSpecKey);
  if (found == metadata.end()) return std::nullopt;
  return ModelSpec::from_json(found->second);
}

Network make_network(const ModelSpec& spec) {
  if (spec.kind == NetworkKind::image) {
    const auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
    models::to_channels_last(*model);
    return {model, [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); }};
  }
  const bool classifies = spec.kind == NetworkKind::text;
  const auto model = models::make_text_model(
      spec.name,
      {.task = classifies ? models::TextTask::classification : models::TextTask::language_modelling,
       .vocab_size = spec.vocab_size(),
       .max_length = spec.max_length,
       .num_classes = spec.num_classes,
       .padding_token = classifies ? spec.padding_token() : -1});
  return {model, [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); }};
}

namespace {

Network network_of(const std::shared_ptr<graph::GraphModule>& graph) {
  return {graph, [graph](const train::TaskBatch& batch) { return graph->forward(batch.inputs); }};
}

}  // namespace

namespace {

/// Without the name of a network, which is that of another file.
ModelSpec unnamed(ModelSpec spec) {
  spec.network.clear();
  return spec;
}

}  // namespace

ModelSpec spec_for_file(const std::filesystem::path& path, ModelSpec like) {
  if (like.kind == NetworkKind::image && like.image_size == 1 &&
      (is_exchange_file(path) || is_zip_file(path)))
    like.rows = load_model_file(path, unnamed(like)).spec.rows;
  return like;
}

Network load_network(const std::filesystem::path& path, const ModelSpec& like, PretrainedFit fit) {
  if (is_exchange_file(path))
    return network_of(
        load_exchange_graph(path, with_sizes_of(exchange_spec(path), like), ExchangeUse::training));
  if (is_pretrained_file(path, like.network)) return load_pretrained_model(path, like, fit).network;
  if (is_zip_file(path)) return network_of(load_script(path, like).graph);
  const auto [spec, is_graph] = expect_stored(path);
  if (is_graph) return network_of(load_stored_graph(path, spec));
  Network network = make_network(spec);
  io::load_model(path, *network.module);
  network.module->eval();
  return network;
}

/// With any length up to the longest, where that is long enough to see what follows it. A long one is seen at
/// a part of it: logits of many tokens, and scores of all tokens for each, take much memory.
std::shared_ptr<graph::GraphModule> capture_text_model(const std::shared_ptr<models::TextModel>& model,
                                                       const ModelSpec& spec) {
  constexpr int64_t kLengths = 3, kSeen = 32, kLong = 512, kMostLogits = int64_t{1} << 26;
  graph::CaptureOptions options;
  if (spec.max_length >= kLengths) options.free = {{0, 1, "time", spec.max_length}};
  const bool large =
      spec.kind == NetworkKind::language &&
      (spec.max_length > kLong || spec.max_length > kMostLogits / std::max<int64_t>(spec.num_classes, 1));
  const int64_t length = large ? std::min(spec.max_length, kSeen) : spec.max_length;
  std::shared_ptr<graph::GraphModule> graph;
  libtorch::with_shapes([&] { graph = capture(model, {torch::ones({2, length}, torch::kLong)}, options); });
  return graph;
}

Network captured(const Network& network, const ModelSpec& spec) {
  auto graph = std::dynamic_pointer_cast<graph::GraphModule>(network.module);
  if (const auto image = std::dynamic_pointer_cast<models::ImageModel>(network.module)) {
    graph = capture_model(*image, spec);
  } else if (const auto text = std::dynamic_pointer_cast<models::TextModel>(network.module)) {
    graph = capture_text_model(text, spec);
  }
  if (!graph) fail("app.captured", "expected a reference network or a graph, got another module");
  return network_of(graph);
}

LoadedModel load_text_model_file(const std::filesystem::path& path, const ModelSpec& like) {
  if (is_exchange_file(path)) return load_exchange(path, {});
  if (is_pretrained_file(path)) return load_pretrained(path, like);
  const auto [spec, is_graph] = expect_stored(path);
  if (spec.kind == NetworkKind::image) {
    fail_file("app.load_text_model_file", "expected a network over text, got '", path.string(), "' with ",
              spec.name, ", an image network");
  }
  if (is_graph) return loaded_graph(path, spec);
  const auto model = std::dynamic_pointer_cast<models::TextModel>(load_network(path).module);
  LoadedModel loaded{.spec = spec,
                     .forward = [model](const at::Tensor& tokens) { return model->forward(tokens); },
                     .graph = capture_text_model(model, spec)};
  loaded.graph->eval();
  return loaded;
}

LoadedModel load_any_model_file(const std::filesystem::path& path, const ModelSpec& script_spec) {
  if (is_exchange_file(path)) return load_model_file(path, script_spec);
  const std::optional<ModelSpec> stored = read_model_spec(path);
  if (stored) expect_asked_sizes(script_spec, *stored, path);
  const bool text = stored && stored->kind != NetworkKind::image;
  return text ? load_text_model_file(path, script_spec) : load_model_file(path, script_spec);
}

void expect_float(const graph::GraphModule& model, const std::filesystem::path& path) {
  for (const auto& node : model.graph().nodes()) {
    const bool codes = node->is("ulp::quantize") || node->is("ulp::dequantize_weight") ||
                       node->target().starts_with("ulp::linear_dynamic");
    if (!codes) continue;
    fail_file("app.expect_float", "expected a float model, got '", path.string(),
              "', which is quantized already: `ulp lower` makes an engine of it, `ulp export` an ONNX file, "
              "and `ulp "
              "train --init` trains it on");
  }
}

void to_float(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  const auto cast = [](at::Tensor& tensor) {
    if (!tensor.is_floating_point() || tensor.scalar_type() == at::kFloat) return;
    tensor.mutable_grad().reset();
    tensor.set_data(tensor.to(at::kFloat));
  };
  for (at::Tensor& tensor : module.parameters()) cast(tensor);
  for (at::Tensor& tensor : module.buffers()) cast(tensor);
}

}  // namespace ulp::app
