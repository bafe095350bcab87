// ulp lower: a trained model -> an engine file in fp32 or bf16.
#include "ulp/lower/lower.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/app/model_file.h"
#include "ulp/app/network_form.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"

namespace ulp::cli {

namespace {

struct LowerFlags : CommonFlags {
  std::string model, out;
  LowerOptions options;
  bool verbose = false;
  ScriptShape shape;
};

/// One line for each change and near miss, those of the passes first.
void show(const graph::PassReport& report) {
  for (const graph::PassReport& part : report.parts) show(part);
  for (const auto* lines : {&report.changes, &report.near_misses}) {
    for (const std::string& line : *lines) std::cerr << report.pass << ": " << printable(line) << '\n';
  }
}

/// Says what was done also where the rest of the model has no lowering.
runtime::Plan lower_and_show(graph::GraphModule& model, const LowerOptions& options, bool verbose) {
  graph::PassReport report;
  try {
    runtime::Plan plan = lower(model, options, &report);
    if (verbose) show(report);
    return plan;
  } catch (const Error&) {
    if (verbose) show(report);
    throw;
  }
}

void run(const LowerFlags& flags) {
  apply(flags);
  check_other_file(flags.model, flags.out);
  check_ending(flags.out, {".ulp"});
  check_writable(flags.out);
  app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  app::expect_engine_inputs(*model.graph, flags.model);
  LowerOptions options = flags.options;
  options.metadata[app::kModelSpecKey] = model.spec.to_json();
  const runtime::Plan plan = lower_and_show(*model.graph, options, flags.verbose);
  plan.save(flags.out);
  report_written(flags, plan, flags.out);
}

void add_lower(CLI::App& app) {
  auto flags = std::make_shared<LowerFlags>();
  CLI::App* command = add_command(app, "lower", "Turn a trained model into an engine file in fp32 or bf16",
                                  "  ulp lower model.safetensors --precision bf16 --out model.ulp\n"
                                  "  ulp lower scripted.pt --shape 3,224,224 --out model.ulp\n",
                                  *flags);
  command
      ->add_option("model", flags->model,
                   "A file of `ulp train`, a TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  command->add_option("-o,--out", flags->out, "Engine file to write")->required();
  add_field_flags(*command, flags->options);
  command->add_flag("-v,--verbose", flags->verbose, "Say what was fused, and what was not and why");
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

const Command kLowerCommand("lower", add_lower);

}  // namespace

}  // namespace ulp::cli
