// ulp quantize: a trained model and calibration data -> an int8 engine file.
#include "ulp/quant/quantize.h"

#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/quantize_explain.h"
#include "ulp/base/error.h"
#include "ulp/lower/lower.h"
#include "ulp/train/data.h"
#include "ulp/train/model_file.h"
#include "ulp/train/quantize.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string model, out, recipe;
  std::string data = "fashion-mnist";
  int64_t samples = 1000;
  bool verbose = false;
  ScriptShape shape;
  ExplainFlags explain;
};

quant::Recipe read_recipe(const std::string& path) {
  if (path.empty()) return quant::Recipe::x86_int8();
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_file("cli.quantize", "could not read the recipe '", path, "'");
  std::ostringstream text;
  text << in.rdbuf();
  return quant::Recipe::from_json(text.str());
}

void run(const Flags& flags) {
  if (flags.explain.asked()) return flags.explain.run(flags);
  if (flags.model.empty()) throw CLI::RequiredError("model");
  if (flags.out.empty()) throw CLI::RequiredError("--out");
  apply(flags);
  check_writable(flags.out);
  const quant::Recipe recipe = read_recipe(flags.recipe);
  const train::LoadedModel model = train::load_model_file(flags.model, flags.shape.spec());
  const io::ImageDataset data = train::load_images(flags.data, io::Split::train, model.spec);
  report::Progress progress("calibrating", std::min(flags.samples, data.size()), {.unit = "image"});
  train::QuantizedModel quantized =
      train::quantize(model.graph, recipe, data, flags.samples, [&](int64_t done) { progress.update(done); });
  progress.finish();
  if (flags.verbose) {
    for (const std::string& line : quantized.report.changes) std::cerr << line << '\n';
    for (const std::string& line : quantized.report.near_misses) std::cerr << "note: " << line << '\n';
  }
  const runtime::Plan plan =
      lower(*quantized.graph,
            {.metadata = {{train::kModelSpecKey, model.spec.to_json()}, {"recipe", recipe.to_json()}}});
  plan.save(flags.out);
  report_written(flags, plan, flags.out);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      add_command(app, "quantize", "Calibrate a trained model and turn it into an int8 engine file",
                  "  ulp quantize model.safetensors --out model.int8.ulp\n"
                  "  ulp quantize model.safetensors --samples 5000 --recipe recipe.json --out q.ulp -v\n"
                  "  ulp quantize --explain \"1.5,-2;0.3,4\" --bits 4 --signed --symmetric --restricted\n",
                  *flags);
  command->add_option("model", flags->model, "A file of `ulp train`, or a TorchScript file");
  command->add_option("-o,--out", flags->out, "Engine file to write");
  command->add_option("--recipe", flags->recipe, "Recipe as JSON (default: x86_int8)");
  add_data_option(*command, flags->data);
  command->add_option("--samples", flags->samples, "Training images to calibrate with")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("-v,--verbose", flags->verbose, "Say what was quantized, and what not and why");
  flags->shape.add_to(*command);
  flags->explain.add_to(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
