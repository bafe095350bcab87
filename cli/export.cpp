// ulp export: a trained model -> a file that other runtimes read.
#include "ulp/app/export.h"

#include <iostream>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/app/model_file.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/graph_module.h"

namespace ulp::cli {

namespace {

struct ExportFlags : CommonFlags {
  std::string model, to = "onnx", out;
  exchange::OnnxOptions options;
  bool check = false;
  ScriptShape shape;
};

void show(const ExportFlags& flags, const std::optional<app::ExportCheck>& check) {
  const uint64_t bytes = file_bytes(flags.out);
  if (flags.json) {
    nlohmann::json json = {{"file", flags.out}, {"bytes", bytes}, {"opset", flags.options.opset}};
    if (check)
      json["check"] = {{"runtime", check->runtime},
                       {"runs", check->runs},
                       {"largest_relative_difference", check->largest}};
    return print_json(json);
  }
  std::cout << "wrote " << flags.out << ": opset " << flags.options.opset << ", " << bytes << " bytes\n";
  if (!check) return;
  std::cout << check->runtime << ": largest difference " << check->largest << " of the largest result, in "
            << check->runs << " runs\n";
}

void run(const ExportFlags& flags) {
  apply(flags);
  check_writable(flags.out);
  const app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  exchange::OnnxOptions options = flags.options;
  options.metadata[app::kModelSpecKey] = model.spec.to_json();
  exchange::export_onnx(*model.graph, flags.out, options);
  std::optional<app::ExportCheck> check;
  if (flags.check) check = app::check_onnx(flags.out, *model.graph);
  show(flags, check);
}

}  // namespace

void add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = add_command(app, "export", "Turn a trained model into a file for other runtimes",
                                  "  ulp export model.safetensors --to onnx --out model.onnx\n"
                                  "  ulp export scripted.pt --shape 3,224,224 --out model.onnx --check\n",
                                  *flags);
  command
      ->add_option("model", flags->model,
                   "A file of `ulp train`, a TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  command->add_option("-o,--out", flags->out, "File to write")->required();
  command->add_option("--to", flags->to, "Format of the file")
      ->check(CLI::IsMember({"onnx"}))
      ->capture_default_str();
  add_field_flags(*command, flags->options);
  command->add_flag("--check", flags->check,
                    "Run the file in ONNX Runtime, in Python, and show the largest difference");
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
