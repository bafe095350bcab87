// ulp export: a trained model -> a file that other runtimes read.
#include "ulp/app/export/export.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/lora_flags.h"
#include "cli/model_flags.h"
#include "ulp/app/model_io/adapter.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/base/interrupt.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/gguf.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

struct ExportFlags : CommonFlags {
  std::string model, to = "onnx", out, adapter;
  exchange::OnnxOptions options;
  exchange::CoreMlOptions coreml;
  exchange::TfliteOptions tflite;
  int64_t batch = 1;
  std::string gguf_type = enum_name(exchange::GgufType::q8_0), words;
  bool check = false;
  ScriptShape shape;
};

using Metadata = std::map<std::string, std::string>;

/// A file that other runtimes read.
struct ExportFormat {
  std::string name, ending;
  /// Flags of this format alone.
  std::vector<std::string> flags;
  /// What the file is, in a word or two and for --json.
  std::pair<std::string, nlohmann::json> (*about)(const ExportFlags&);
  void (*write)(const ExportFlags&, const graph::GraphModule&, const Metadata&);
  /// Null: no other runtime is asked.
  app::ExportChecks (*check)(const ExportFlags&, graph::GraphModule&);
};

const ExportFormat kOnnx = {
    .name = "onnx",
    .ending = ".onnx",
    .flags = {"--opset", "--external-data", "--fp16"},
    .about = [](const ExportFlags& flags) -> std::pair<std::string, nlohmann::json> {
      return {"opset " + std::to_string(flags.options.opset), {{"opset", flags.options.opset}}};
    },
    .write =
        [](const ExportFlags& flags, const graph::GraphModule& model, const Metadata& metadata) {
          exchange::OnnxOptions options = flags.options;
          options.metadata = metadata;
          exchange::export_onnx(model, flags.out, options);
        },
    .check = [](const ExportFlags& flags,
                graph::GraphModule& model) { return app::check_onnx(flags.out, model); }};

const ExportFormat kCoreMl = {
    .name = "coreml",
    .ending = ".mlpackage",
    .flags = {"--batch", "--int8-weights", "--fp16"},
    .about = [](const ExportFlags& flags) -> std::pair<std::string, nlohmann::json> {
      return {"ML program of iOS 16 and macOS 13, batch " + std::to_string(flags.batch),
              {{"batch", flags.batch}}};
    },
    .write =
        [](const ExportFlags& flags, const graph::GraphModule& model, const Metadata& metadata) {
          exchange::CoreMlOptions options = flags.coreml;
          options.fp16 = flags.options.fp16;
          options.batch = flags.batch;
          options.metadata = metadata;
          exchange::export_coreml(model, flags.out, options);
        },
    .check = [](const ExportFlags& flags, graph::GraphModule&) { return app::check_coreml(flags.out); }};

const ExportFormat kTflite = {
    .name = "tflite",
    .ending = ".tflite",
    .flags = {"--batch", "--integer-io"},
    .about = [](const ExportFlags& flags) -> std::pair<std::string, nlohmann::json> {
      return {"batch " + (flags.batch == 0 ? "free" : std::to_string(flags.batch)), {{"batch", flags.batch}}};
    },
    .write =
        [](const ExportFlags& flags, const graph::GraphModule& model, const Metadata&) {
          exchange::TfliteOptions options = flags.tflite;
          options.batch = flags.batch;
          exchange::export_tflite(model, flags.out, options);
        },
    .check = [](const ExportFlags& flags,
                graph::GraphModule& model) { return app::check_tflite(flags.out, model, flags.batch); }};

const ExportFormat kPt2 = {
    .name = "pt2",
    .ending = ".pt2",
    .flags = {},
    .about = [](const ExportFlags&) -> std::pair<std::string, nlohmann::json> {
      return {"program of torch.export, schema 8.20", {{"schema", "8.20"}}};
    },
    .write = [](const ExportFlags& flags, const graph::GraphModule& model,
                const Metadata& metadata) { exchange::export_pt2(model, flags.out, {.metadata = metadata}); },
    .check = [](const ExportFlags& flags,
                graph::GraphModule& model) { return app::check_pt2(flags.out, model); }};

/// What is said of the model's tokenizer: in the folder that was named, or beside published weights.
exchange::GgufVocabulary words_of_model(const ExportFlags& flags) {
  const std::filesystem::path model = flags.model;
  if (!flags.words.empty()) return exchange::read_gguf_vocabulary(flags.words);
  if (!app::is_pretrained_file(model)) return {};
  return exchange::read_gguf_vocabulary(std::filesystem::is_directory(model) ? model : model.parent_path());
}

const ExportFormat kGguf = {
    .name = "gguf",
    .ending = ".gguf",
    .flags = {"--gguf-type", "--tokenizer-config"},
    .about = [](const ExportFlags& flags) -> std::pair<std::string, nlohmann::json> {
      return {"weights of GPT-2 in " + flags.gguf_type, {{"type", flags.gguf_type}}};
    },
    .write =
        [](const ExportFlags& flags, const graph::GraphModule& model, const Metadata& metadata) {
          exchange::export_gguf(
              model, flags.out,
              {.type = require_word<exchange::GgufType>("cli.export", "type", flags.gguf_type),
               .heads = exchange::attention_heads(model),
               .tokenizer = app::ModelSpec::from_json(metadata.at(app::kModelSpecKey)).tokenizer,
               .words = words_of_model(flags)});
        },
    .check = nullptr};

const ExportFormat kSafetensors = {.name = "safetensors",
                                   .ending = ".safetensors",
                                   .flags = {},
                                   .about = [](const ExportFlags&) -> std::pair<std::string, nlohmann::json> {
                                     return {"weights under published names", nlohmann::json::object()};
                                   },
                                   .write = [](const ExportFlags& flags, const graph::GraphModule& model,
                                               const Metadata&) { io::save_pretrained(flags.out, model); },
                                   .check = nullptr};

const std::vector<const ExportFormat*> kFormats = {&kOnnx, &kCoreMl, &kTflite, &kPt2, &kGguf, &kSafetensors};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ExportFormat* format : kFormats) names.push_back(format->name);
  return names;
}

bool takes(const ExportFormat& format, const std::string& flag) {
  return std::ranges::find(format.flags, flag) != format.flags.end();
}

/// "coreml or tflite".
std::string formats_with(const std::string& flag) {
  std::string names;
  for (const ExportFormat* format : kFormats) {
    if (takes(*format, flag)) names += (names.empty() ? "" : " or ") + format->name;
  }
  return names;
}

/// The one that --to names. Throws a CLI::ValidationError for flags of other ones.
const ExportFormat& format_of(const ExportFlags& flags, const CLI::App& command) {
  const ExportFormat& found = **std::ranges::find(kFormats, flags.to, &ExportFormat::name);
  for (const ExportFormat* format : kFormats) {
    for (const std::string& flag : format->flags) {
      if (command.count(flag) > 0 && !takes(found, flag))
        throw CLI::ValidationError(flag + " goes with --to " + formats_with(flag) + ", got --to " + flags.to);
    }
  }
  check_ending(flags.out, {found.ending});
  if (flags.check && found.check == nullptr)
    throw CLI::ValidationError("no other runtime checks files of --to " + flags.to + "; leave --check out");
  if (flags.batch == 0 && &found != &kTflite)
    throw CLI::ValidationError("--batch 0, a free batch, goes with --to tflite, got --to " + flags.to);
  return found;
}

nlohmann::json check_to_json(const app::ExportCheck& check) {
  if (check.runs == 0) return {{"runtime", check.runtime}, {"operations", check.operations}};
  return {{"runtime", check.runtime}, {"runs", check.runs}, {"largest_relative_difference", check.largest}};
}

void show(const app::ExportCheck& check) {
  std::cout << check.runtime << ": ";
  if (check.runs == 0) {
    std::cout << check.operations
              << " operations read, sizes and types as written; it cannot run them here\n";
    return;
  }
  std::cout << "largest difference " << check.largest << " of the largest result, in " << check.runs
            << " runs\n";
}

/// What other runtimes make of the file; where they cannot be asked, the error says that it is there.
app::ExportChecks checked(const ExportFlags& flags, const ExportFormat& format, graph::GraphModule& model) {
  if (!flags.check) return {};
  try {
    return format.check(flags, model);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + "; '" + flags.out + "' is written and was not checked");
  }
}

nlohmann::json fixed_to_json(const app::FixedDimension& fixed) {
  return {{"input", fixed.input}, {"dimension", fixed.name}, {"size", fixed.size}};
}

void show(const app::FixedDimension& fixed) {
  const std::string name = report::clean_line(fixed.name);
  std::cout << "'" << name << "' of input '" << report::clean_line(fixed.input) << "' is fixed at "
            << fixed.size << ": the model leaves it free; --shape fixes another size, --size " << name
            << "=N leaves it free up to N\n";
}

void show(const ExportFlags& flags, const ExportFormat& format, const app::LoadedModel& model,
          const app::ExportChecks& checks) {
  const uint64_t bytes = app::bytes_of_files(flags.out);
  const auto [words, values] = format.about(flags);
  if (flags.json) {
    nlohmann::json json = {{"file", flags.out}, {"bytes", bytes}};
    json.update(values);
    for (const app::FixedDimension& fixed : model.fixed) json["fixed"].push_back(fixed_to_json(fixed));
    for (const app::ExportCheck& check : checks.done) json["checks"].push_back(check_to_json(check));
    return print_json(json);
  }
  std::cout << "wrote " << flags.out << ": " << words << ", " << bytes << " bytes\n";
  for (const app::FixedDimension& fixed : model.fixed) show(fixed);
  for (const app::ExportCheck& check : checks.done) show(check);
  for (const std::string& missing : checks.missing) std::cout << missing << '\n';
}

/// Throws ulp::Error where a runtime's results are too far from ours, or no numbers.
void expect_close(const ExportFlags& flags, const graph::GraphModule& model,
                  const app::ExportChecks& checks) {
  const app::ExportTolerance tolerance = app::export_tolerance(model, flags.options.fp16);
  for (const app::ExportCheck& check : checks.done) {
    if (check.runs == 0 || check.largest <= tolerance.share) continue;
    fail("cli.export", "expected ", check.runtime, " to differ by at most ", tolerance.share,
         " of the largest result, which is allowed for ", tolerance.of, ", got ", check.largest, "; '",
         flags.out, "' is written");
  }
}

/// --integer-io of a float model would change nothing.
void check_integer_io(const ExportFlags& flags, const graph::GraphModule& model) {
  const bool codes =
      std::ranges::any_of(model.graph().nodes(), [](const auto& node) { return node->is("ulp::quantize"); });
  if (flags.tflite.integer_io && !codes)
    throw CLI::ValidationError("--integer-io",
                               "is for models whose activations are codes (ulp quantize --out q.tflite "
                               "--integer-io), got the float model '" +
                                   flags.model + "'");
}

void run(const ExportFlags& flags, const CLI::App& command) {
  const ExportFormat& format = format_of(flags, command);
  apply(flags);
  check_other_file(flags.model, flags.out);
  if (!std::filesystem::is_directory(flags.out)) check_writable(flags.out);
  app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  app::merge_adapter(model, flags.adapter, flags.model);
  check_integer_io(flags, *model.graph);
  format.write(flags, *model.graph, {{app::kModelSpecKey, model.spec.to_json()}});
  const app::ExportChecks checks = checked(flags, format, *model.graph);
  show(flags, format, model, checks);
  expect_close(flags, *model.graph, checks);
}

void add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = add_command(app, "export", "Turn a trained model into a file for other runtimes",
                                  "  ulp export model.safetensors --to onnx --out model.onnx\n"
                                  "  ulp export scripted.pt --shape 3,224,224 --out model.onnx --check\n"
                                  "  ulp export model.safetensors --to coreml --fp16 --out model.mlpackage\n"
                                  "  ulp export model.safetensors --to tflite --out model.tflite --check\n"
                                  "  ulp export model.safetensors --to pt2 --out model.pt2 --check\n"
                                  "  ulp export gpt2.safetensors --to gguf --gguf-type q4_0 --out gpt2.gguf\n"
                                  "  ulp export model.onnx --to safetensors --out model.safetensors\n",
                                  *flags);
  command
      ->add_option("model", flags->model,
                   "A file of `ulp train`, a TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  command->add_option("-o,--out", flags->out, "File to write; for Core ML a folder")->required();
  command->add_option("--to", flags->to, "Format of the file")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  add_field_flags(*command, flags->options);
  command
      ->add_option("--batch", flags->batch,
                   "Batch of the inputs, for --to coreml and tflite, where 0 leaves it free")
      ->check(not_negative())
      ->capture_default_str();
  command->add_flag("--integer-io", flags->tflite.integer_io,
                    "Inputs and results in int8 where the model has codes there, for --to tflite");
  command->add_flag("--int8-weights", flags->coreml.int8_weights,
                    "Weights in 8 bits, arithmetic in float, for --to coreml");
  const auto types = enum_names<exchange::GgufType>();
  command->add_option("--gguf-type", flags->gguf_type, "How matrices are stored, for --to gguf")
      ->check(CLI::IsMember(std::vector<std::string>(types.begin(), types.end())))
      ->capture_default_str();
  command
      ->add_option("--tokenizer-config", flags->words,
                   "Folder with tokenizer_config.json (first and last token, chat template), for --to gguf; "
                   "by default the one of published weights")
      ->check(CLI::ExistingDirectory);
  command->add_flag(
      "--check", flags->check,
      "Run an ONNX file in ONNX Runtime and OpenVINO, in Python, where they are installed, and "
      "show the largest difference, a TensorFlow Lite file in LiteRT, a .pt2 archive in PyTorch; "
      "read a Core ML package with coremltools. Fails beyond 1e-5 of the largest result in fp32, 5e-3 in "
      "fp16 and 5e-2 "
      "where activations are codes");
  add_adapter_flag(*command, flags->adapter);
  flags->shape.add_to(*command);
  command->callback([flags, command] { run(*flags, *command); });
}

const Command kExportCommand("export", add_export);

}  // namespace

}  // namespace ulp::cli
