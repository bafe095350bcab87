// ulp lower: a trained model -> an engine file in fp32 or bf16.
#include "ulp/lower/lower.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/lora_flags.h"
#include "cli/model_flags.h"
#include "ulp/app/model_io/adapter.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::cli {

namespace {

struct LowerFlags : CommonFlags {
  std::string model, out, adapter;
  LowerOptions options;
  bool verbose = false, fallback = false;
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

/// "2 engines and 1 piece in LibTorch, for aten::renorm 'renorm' in body".
std::string text_of_pieces(const std::shared_ptr<graph::GraphModule>& model, const LowerOptions& options) {
  LowerOptions used = options;
  used.continued.clear();
  size_t engines = 0, others = 0;
  std::string why;
  for (const PartitionInfo& piece :
       lower_partitioned(model, {}, used, {.max_measuring_seconds = 0}).partitions()) {
    ++(piece.engine ? engines : others);
    for (const std::string& line : piece.why) why += (why.empty() ? ", for " : "; ") + line;
  }
  return std::to_string(engines) + (engines == 1 ? " engine and " : " engines and ") +
         std::to_string(others) + (others == 1 ? " piece in LibTorch" : " pieces in LibTorch") + why;
}

/// An engine file holds one engine: what runs in pieces is the model's own file.
runtime::Plan lower_or_say_pieces(const LowerFlags& flags, const std::shared_ptr<graph::GraphModule>& model,
                                  const LowerOptions& options) {
  try {
    return lower_and_show(*model, options, flags.verbose);
  } catch (const FileError&) {
    throw;
  } catch (const Error&) {
    if (!flags.fallback) throw;
    throw EndWith{kFailed, "no engine file is written, for one holds a whole model; '" + flags.model +
                               "' runs as " + text_of_pieces(model, options) + ": `ulp run " + flags.model +
                               " --fallback` does that"};
  }
}

void run(const LowerFlags& flags) {
  apply(flags);
  check_other_file(flags.model, flags.out);
  check_ending(flags.out, {".ulp"});
  check_writable(flags.out);
  app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  app::merge_adapter(model, flags.adapter, flags.model);
  app::expect_engine_inputs(*model.graph, flags.model);
  LowerOptions options = flags.options;
  options.metadata[app::kModelSpecKey] = model.spec.to_json();
  const runtime::Plan plan = lower_or_say_pieces(flags, model.graph, options);
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
  command->add_flag(
      "--fallback", flags->fallback,
      "Where the engine lacks something: say in which pieces the model runs, and which LibTorch computes");
  add_adapter_flag(*command, flags->adapter);
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

const Command kLowerCommand("lower", add_lower);

}  // namespace

}  // namespace ulp::cli
