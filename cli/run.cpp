// ulp run: an engine on inputs from a file, on test images, or on random numbers.
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/app/data.h"
#include "ulp/app/runnable.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"
#include "ulp/lower/evaluate.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string engine, input, out, data;
  int64_t count = 1;
  bool random = false, allow_nonfinite = false;
};

void check_shape(const Flags& flags, const runtime::TensorInfo& info, const at::Tensor& tensor) {
  std::vector<int64_t> expected = info.shape;
  if (!expected.empty() && expected[0] == runtime::kBatch && tensor.dim() > 0) expected[0] = tensor.size(0);
  if (tensor.sizes() != at::IntArrayRef(expected)) {
    fail_file("cli.run", "expected '", info.name, "' of shape ", at::IntArrayRef(expected), ", got ",
              tensor.sizes(), " in '", flags.input, "'");
  }
}

std::vector<at::Tensor> inputs_from_file(const Flags& flags, const runtime::Engine& engine) {
  const io::TensorFile file = io::load_tensors(flags.input);
  std::vector<at::Tensor> inputs;
  for (const runtime::TensorInfo& info : engine.inputs()) {
    const at::Tensor* tensor = file.find(info.name);
    if (tensor == nullptr && engine.inputs().size() == 1 && file.tensors.size() == 1)
      tensor = &file.tensors[0].second;
    if (tensor == nullptr) {
      fail_file("cli.run", "expected a tensor '", info.name, "' in '", flags.input,
                "', which has none of that name");
    }
    if (!flags.allow_nonfinite && tensor->is_floating_point() &&
        !torch::isfinite(*tensor).all().item<bool>()) {
      const int64_t bad = torch::isfinite(*tensor).logical_not().sum().item<int64_t>();
      fail_file("cli.run", "expected finite numbers in '", info.name, "', got ", bad,
                " NaN or inf (--allow-nonfinite runs them)");
    }
    check_shape(flags, info, *tensor);
    inputs.push_back(*tensor);
  }
  return inputs;
}

std::vector<at::Tensor> random_inputs(const Flags& flags, const runtime::Engine& engine) {
  torch::manual_seed(0);
  std::vector<at::Tensor> inputs;
  for (const runtime::TensorInfo& info : engine.inputs()) {
    inputs.push_back(random_input(info, flags.count));
  }
  return inputs;
}

std::vector<at::Tensor> inputs_for(const Flags& flags, const runtime::Engine& engine) {
  if (!flags.input.empty()) return inputs_from_file(flags, engine);
  if (flags.random) return random_inputs(flags, engine);
  const app::ModelSpec spec = app::load_runnable(flags.engine).spec;
  return {app::first_images(app::load_images(flags.data, io::Split::test, spec), flags.count)};
}

void save_outputs(const Flags& flags, const runtime::Engine& engine, const std::vector<at::Tensor>& outputs) {
  io::NamedTensors named;
  for (size_t i = 0; i < outputs.size(); ++i) named.emplace_back(engine.outputs()[i].name, outputs[i]);
  io::save_tensors(flags.out, named);
}

nlohmann::json describe(const std::string& name, const at::Tensor& output) {
  nlohmann::json json = {{"name", name}, {"shape", output.sizes().vec()}};
  if (output.dim() != 2) return json;
  const auto [values, classes] = output.max(1);
  for (int64_t i = 0; i < output.size(0); ++i) {
    json["top"].push_back({{"class", classes[i].item<int64_t>()}, {"value", values[i].item<double>()}});
  }
  return json;
}

void run(const Flags& flags) {
  apply(flags);
  if (flags.input.empty() + flags.data.empty() + !flags.random != 2) {
    throw CLI::ValidationError("give exactly one of --input, --data and --random");
  }
  if (!flags.out.empty()) check_writable(flags.out);
  runtime::Engine engine(flags.engine, {.threads = flags.threads});
  const std::vector<at::Tensor> outputs = run_engine_all(engine, inputs_for(flags, engine));
  if (!flags.out.empty()) save_outputs(flags, engine, outputs);
  nlohmann::json json = nlohmann::json::array();
  for (size_t i = 0; i < outputs.size(); ++i) json.push_back(describe(engine.outputs()[i].name, outputs[i]));
  if (flags.json) return print_json(json);
  for (const auto& output : json) {
    std::cout << output["name"].get<std::string>() << ' ' << output["shape"].dump() << '\n';
    if (!output.contains("top")) continue;
    for (size_t i = 0; i < output["top"].size(); ++i) {
      std::cout << "  row " << i << ": class " << output["top"][i]["class"] << " ("
                << output["top"][i]["value"] << ")\n";
    }
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = add_command(app, "run", "Run an engine file on inputs",
                                  "  ulp run model.int8.ulp --data fashion-mnist --count 5\n"
                                  "  ulp run model.int8.ulp --input x.safetensors --out y.safetensors\n"
                                  "  ulp run model.int8.ulp --random --count 64 --json\n",
                                  *flags);
  command->add_option("engine", flags->engine, "Engine file")->required();
  command->add_option("--input", flags->input, "safetensors file with a tensor per input, by name");
  command->add_option("--data", flags->data, "Take the first test images of this data set");
  command->add_flag("--random", flags->random, "Take normal random numbers (seed 0)");
  command->add_option("--count", flags->count, "Images or random items")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-o,--out", flags->out, "safetensors file for the outputs");
  command->add_flag("--allow-nonfinite", flags->allow_nonfinite, "Accept NaN and inf in --input");
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
