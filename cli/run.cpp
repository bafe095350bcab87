// ulp run: an engine or a model on inputs from a file, on test samples, or on random numbers.
#include "ulp/app/run/run.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

struct RunFlags : CommonFlags {
  app::RunOptions options;
  std::string out;
  ScriptShape shape;
  bool random = false;
};

nlohmann::json description_of(const app::RunOutput& output) {
  nlohmann::json json = {{"name", output.name}, {"shape", output.value.sizes().vec()}};
  for (const app::TopClass& top : app::top_classes(output.value))
    json["top"].push_back({{"class", top.index}, {"value", top.value}});
  return json;
}

void print_text(const nlohmann::json& json) {
  for (const auto& output : json) {
    std::cout << report::escape_controls(output["name"].get<std::string>()) << ' ' << output["shape"].dump()
              << '\n';
    if (!output.contains("top")) continue;
    for (size_t i = 0; i < output["top"].size(); ++i) {
      std::cout << "  row " << i << ": class " << output["top"][i]["class"] << " ("
                << output["top"][i]["value"] << ")\n";
    }
  }
}

void run(RunFlags& flags) {
  apply(flags);
  if (flags.options.input.empty() + flags.options.data.empty() + !flags.random != 2)
    throw CLI::ValidationError("give exactly one of --input, --data and --random");
  if (const std::string kind = std::filesystem::path(flags.out).extension().string();
      kind == ".npy" || kind == ".npz")
    throw CLI::ValidationError("--out", "expected the name of a safetensors file, got '" + flags.out + "'");
  if (!flags.out.empty()) check_writable(flags.out);
  flags.options.threads = flags.threads;
  flags.options.script_spec = flags.shape.spec();
  const std::vector<app::RunOutput> outputs = app::run_file(flags.options);
  if (!flags.out.empty()) app::save_outputs(flags.out, outputs);
  nlohmann::json json = nlohmann::json::array();
  for (const app::RunOutput& output : outputs) json.push_back(description_of(output));
  if (flags.json) return print_json(json);
  print_text(json);
}

void add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  app::RunOptions& options = flags->options;
  CLI::App* command = add_command(app, "run", "Run an engine file, or a model as an engine, on inputs",
                                  "  ulp run model.int8.ulp --data fashion-mnist --count 5\n"
                                  "  ulp run model.int8.ulp --input x.safetensors --out y.safetensors\n"
                                  "  ulp run model.int8.ulp --random --count 64 --json\n"
                                  "  ulp run scripted.pt --shape 3,224,224 --pieces --random\n",
                                  *flags);
  command
      ->add_option("model", options.model,
                   "Engine file, file of `ulp train`, TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  command->add_flag("--pieces,--fallback", options.pieces,
                    "Let LibTorch run what the engine does not have of a model");
  command->add_option("--input", options.input,
                      "Safetensors or .npz file with a tensor per input, by name; .npy for one input");
  command->add_option("--data", options.data,
                      "Take the first test samples of this data set: images, rows or texts");
  command->add_flag("--random", flags->random, "Take normal random numbers (seed 0)");
  command->add_option("--count", options.count, "Samples or random items")
      ->check(positive())
      ->capture_default_str();
  command->add_option("-o,--out", flags->out, "Safetensors file for the outputs");
  command->add_flag("--allow-nonfinite", options.allow_nonfinite, "Accept NaN and inf in --input");
  add_error_budget(*command, options.error_budget);
  add_measuring_limit(*command, options.max_measuring_seconds);
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

const Command kRunCommand("run", add_run);

}  // namespace

}  // namespace ulp::cli
