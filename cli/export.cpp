// ulp export: a trained model -> a file that other runtimes read.
#include "ulp/app/export.h"

#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/app/model_file.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/graph/graph_module.h"

namespace ulp::cli {

namespace {

struct ExportFlags : CommonFlags {
  std::string model, to = "onnx", out;
  exchange::OnnxOptions options;
  exchange::TfliteOptions tflite;
  bool check = false;
  ScriptShape shape;
};

using Metadata = std::map<std::string, std::string>;

/// A file that other runtimes read.
struct Format {
  std::string name;
  /// Flags of this format alone.
  std::vector<std::string> flags;
  /// What the file is, in a word or two and for --json.
  std::pair<std::string, nlohmann::json> (*about)(const ExportFlags&);
  void (*write)(const ExportFlags&, const graph::GraphModule&, const Metadata&);
  app::ExportCheck (*check)(const ExportFlags&, graph::GraphModule&);
};

const Format kOnnx = {
    .name = "onnx",
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

const Format kTflite = {
    .name = "tflite",
    .flags = {"--batch", "--integer-io"},
    .about = [](const ExportFlags& flags) -> std::pair<std::string, nlohmann::json> {
      const int64_t batch = flags.tflite.batch;
      return {"batch " + (batch == 0 ? "free" : std::to_string(batch)), {{"batch", batch}}};
    },
    .write = [](const ExportFlags& flags, const graph::GraphModule& model,
                const Metadata&) { exchange::export_tflite(model, flags.out, flags.tflite); },
    .check =
        [](const ExportFlags& flags, graph::GraphModule& model) {
          return app::check_tflite(flags.out, model, flags.tflite.batch);
        }};

const std::vector<const Format*> kFormats = {&kOnnx, &kTflite};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format* format : kFormats) names.push_back(format->name);
  return names;
}

/// The one that --to names. Throws a CLI::ValidationError for flags of another one.
const Format& format_of(const ExportFlags& flags, const CLI::App& command) {
  const Format* found = nullptr;
  for (const Format* format : kFormats) {
    if (format->name == flags.to) found = format;
    for (const std::string& flag : format->flags) {
      if (format->name != flags.to && command.count(flag) > 0)
        throw CLI::ValidationError(flag + " goes with --to " + format->name + ", got --to " + flags.to);
    }
  }
  return *found;
}

void show(const ExportFlags& flags, const Format& format, const std::optional<app::ExportCheck>& check) {
  const uint64_t bytes = file_bytes(flags.out);
  const auto [words, values] = format.about(flags);
  if (flags.json) {
    nlohmann::json json = {{"file", flags.out}, {"bytes", bytes}};
    json.update(values);
    if (check)
      json["check"] = {{"runtime", check->runtime},
                       {"runs", check->runs},
                       {"largest_relative_difference", check->largest}};
    return print_json(json);
  }
  std::cout << "wrote " << flags.out << ": " << words << ", " << bytes << " bytes\n";
  if (!check) return;
  std::cout << check->runtime << ": largest difference " << check->largest << " of the largest result, in "
            << check->runs << " runs\n";
}

void run(const ExportFlags& flags, const CLI::App& command) {
  const Format& format = format_of(flags, command);
  apply(flags);
  check_writable(flags.out);
  const app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  format.write(flags, *model.graph, {{app::kModelSpecKey, model.spec.to_json()}});
  std::optional<app::ExportCheck> check;
  if (flags.check) check = format.check(flags, *model.graph);
  show(flags, format, check);
}

}  // namespace

void add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = add_command(app, "export", "Turn a trained model into a file for other runtimes",
                                  "  ulp export model.safetensors --to onnx --out model.onnx\n"
                                  "  ulp export scripted.pt --shape 3,224,224 --out model.onnx --check\n"
                                  "  ulp export model.safetensors --to tflite --out model.tflite --check\n",
                                  *flags);
  command->add_option("model", flags->model, "A file of `ulp train`, a TorchScript, ONNX or .pt2 file")
      ->required();
  command->add_option("-o,--out", flags->out, "File to write")->required();
  command->add_option("--to", flags->to, "Format of the file")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  add_field_flags(*command, flags->options);
  add_field_flags(*command, flags->tflite);
  command->add_flag("--check", flags->check,
                    "Run the file in ONNX Runtime or LiteRT, in Python, and show the largest difference");
  flags->shape.add_to(*command);
  command->callback([flags, command] { run(*flags, *command); });
}

}  // namespace ulp::cli
