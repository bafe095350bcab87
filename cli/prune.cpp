// ulp prune: a trained model and data -> a model with fewer weights or channels, and what that cost and
// saved.
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/prune_flags.h"
#include "cli/recipe_file.h"
#include "cli/stage_bars.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/app/data/data.h"
#include "ulp/app/data/named_data.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/interrupt.h"
#include "ulp/io/graph_file.h"

namespace ulp::cli {

namespace {

/// --method, else what --structure, --keep or --sparsity is for, else the first.
std::string method_of(const PruneFlags& flags, const std::optional<PruneGoal>& goal) {
  if (!flags.method.empty()) return flags.method;
  return kMethods[!flags.structure.empty() || (goal && goal->kept) ? 1 : 0];
}

/// --recipe, else the method's own; flags over both.
app::PruneRecipe make_recipe(const PruneFlags& flags) {
  const std::optional<PruneGoal> goal = flags.goal();
  app::PruneRecipe recipe =
      flags.recipe.empty() ? recipe_of(method_of(flags, goal)) : read_recipe<app::PruneRecipe>(flags.recipe);
  const std::string method = recipe.cuts() ? kMethods[1] : kMethods[0];
  if (!flags.method.empty() && flags.method != method)
    throw CLI::ValidationError("--recipe", "is for --method " + method + ", got --method " + flags.method);
  put_over(flags.fields.given(method), recipe);
  for (const auto& [flag, file] :
       {std::pair("--structure", flags.structure), {"--save-structure", flags.save_structure}}) {
    if (!file.empty() && !recipe.cuts())
      throw CLI::ValidationError(flag, "is for --method channels, got --method weights");
  }
  if (goal) apply_goal(*goal, recipe);
  if (!flags.rewind.empty() && recipe.cuts())
    throw CLI::ValidationError("--rewind", "is for --method weights, got --method channels");
  as_usage([&] { recipe.validate(); });
  return recipe;
}

/// A network and the data that it is tried on.
struct PruneJob {
  app::ModelSpec spec;
  std::shared_ptr<graph::GraphModule> graph;
  std::optional<app::TaskData> data = {};  ///< labelled
  std::vector<std::vector<at::Tensor>> inputs =
      {};  ///< of a network with several inputs, which nobody labelled
};

/// Samples of named inputs that go through the network at once.
constexpr int64_t kNamedPruneBatch = 64;

bool needs_labels(const PruneFlags& flags) {
  return flags.finetune || !flags.rewind.empty() || !flags.sweep.empty();
}

/// Whether the network compares with labels; otherwise it is pruned without data where nobody asked for some.
bool takes_labels(const PruneFlags& flags, const app::LoadedModel& model) {
  try {
    app::expect_sample_input(*model.graph, flags.model);
    app::expect_logits(*model.graph, flags.model);
    return true;
  } catch (const FileError& error) {
    if (needs_labels(flags)) throw;
    if (flags.data_given || flags.test > 0)
      throw FileError(
          std::string(error.what()) +
          "; --test 0 without --data prunes it without a trial, and --data FILE.npz has its inputs by name");
    return false;
  }
}

PruneJob open(const PruneFlags& flags) {
  app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  app::expect_float(*model.graph, flags.model);
  if (const auto named = app::load_named_inputs(flags.data, *model.graph)) {
    if (needs_labels(flags))
      throw CLI::ValidationError("--data",
                                 "arrays named by inputs have no labels, which --finetune, --rewind and "
                                 "--sweep need");
    return {model.spec, model.graph, std::nullopt, named->batches(flags.samples, kNamedPruneBatch)};
  }
  if (!takes_labels(flags, model)) return {model.spec, model.graph};
  return {model.spec, model.graph, app::load_data(flags.data, /*length=*/0, &model.spec)};
}

app::PruneRun prune(const PruneFlags& flags, const PruneJob& job, const app::PruneRecipe& recipe) {
  StageBars bars;
  app::PruneRequest request;
  request.model = job.spec.name;
  request.captured = job.graph;
  request.recipe = recipe;
  request.finetune = flags.finetune;
  request.samples = flags.samples;
  request.sweep = flags.sweep;
  request.sweep_only = !flags.sweep.empty() && flags.out.empty() && !flags.has_goal() &&
                       flags.recipe.empty() && flags.save_structure.empty() && !flags.finetune;
  request.latency = !flags.no_latency;
  request.threads = flags.threads;
  request.width_table = flags.width_table;
  if (!flags.structure.empty()) request.structure = read_text(flags.structure);
  request.saving = flags.checkpointing.saving();
  if (const auto* weights = std::get_if<prune::Recipe>(&recipe.recipe))
    request.tickets = flags.ticket_rounds(weights->schedule.rounds);
  request.inputs = job.inputs;
  if (job.data) {
    request.unit = job.data->unit;
    request.train_batches = [&](const train::StreamOptions& options) {
      return job.data->stream(io::Split::train, options);
    };
  }
  if (flags.test > 0 && job.data) {
    request.test_batches = [&] {
      const int64_t batch = job.spec.kind == app::NetworkKind::image ? 250 : 64;
      return app::first_samples(job.data->stream(io::Split::test, {.batch = batch}), flags.test);
    };
  }
  request.progress = [&](const app::Stage& stage) { bars.show(stage); };
  return app::run_prune(request);
}

void write_files(const PruneFlags& flags, const PruneJob& job, const app::PruneRecipe& recipe,
                 app::PruneRun& run) {
  if (!flags.out.empty() && job.graph->graph().inputs().size() == 1) {
    app::save_model_file(flags.out, *run.model, job.spec);
  } else if (!flags.out.empty()) {
    io::save_graph(flags.out, *run.model);  // whose graph says what it takes
  }
  write_text(flags.save_recipe, recipe.to_json());
  write_text(flags.save_structure, run.structure);
  if (flags.report.empty() || run.outcome.interrupted) return;
  const nlohmann::json fields = nlohmann::json::parse(recipe.to_json());
  for (const auto& [name, value] : fields.items())
    run.outcome.settings.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  const report::Report report = app::prune_report(run.outcome);
  report.write_json(std::filesystem::path(flags.report) / "report.json");
  report.write_html(std::filesystem::path(flags.report) / "report.html");
}

void show(const PruneFlags& flags, const app::PruneRun& run) {
  const app::PruneOutcome& outcome = run.outcome;
  if (flags.json) {
    nlohmann::json json{{"method", outcome.method},
                        {"states", to_json(app::states_table(outcome))},
                        {"parameters", to_json(app::parameters_table(outcome))},
                        {"not_pruned", outcome.reasons},
                        {"notes", outcome.notes}};
    if (!outcome.sweep.empty()) json["sweep"] = to_json(app::sweep_table(outcome));
    if (!outcome.rounds.empty()) json["rounds"] = to_json(app::rounds_table(outcome));
    if (!flags.out.empty()) json["file"] = flags.out;
    return print_json(json);
  }
  print_table(app::states_table(outcome));
  if (!outcome.sweep.empty()) print_table(app::sweep_table(outcome));
  if (!outcome.rounds.empty()) print_table(app::rounds_table(outcome));
  if (flags.verbose) print_table(app::parameters_table(outcome));
  for (const std::string& line : outcome.notes) std::cout << line << '\n';
  for (const std::string& line : outcome.reasons) {
    if (flags.verbose) std::cerr << "note: " << printable(line) << '\n';
  }
  if (!flags.verbose && !outcome.reasons.empty())
    std::cout << outcome.reasons.size() << (outcome.reasons.size() == 1 ? " layer was" : " layers were")
              << " not pruned, or only in part (--verbose says why)\n";
  if (!flags.out.empty()) std::cout << "wrote " << flags.out << ": " << file_bytes(flags.out) << " bytes\n";
}

void run(const PruneFlags& flags) {
  flags.check();
  const app::PruneRecipe recipe = make_recipe(flags);
  amp::prepare_training_memory();
  amp::prepare_training_products();
  apply(flags);
  const auto threads = adaptive_threads(flags);
  const PruneJob job = open(flags);
  app::PruneRun made = prune(flags, job, recipe);
  write_files(flags, job, recipe, made);
  if (made.outcome.interrupted) {
    if (!flags.out.empty())
      std::cerr << "ulp: wrote " << flags.out << " as it was when training was interrupted\n";
    throw Interrupted();
  }
  show(flags, made);
}

void add_prune(CLI::App& app) {
  auto flags = std::make_shared<PruneFlags>();
  CLI::App* command = add_command(
      app, "prune", "Take weights or channels out of a trained model, and show what that costs",
      "  ulp prune model.safetensors --sparsity 0.9 --finetune --out sparse.safetensors\n"
      "  ulp prune model.safetensors --keep macs=0.5 --finetune --epochs 2 --out small.safetensors\n"
      "  ulp prune model.safetensors --score taylor --sweep 0.5,0.2,0.1 --report .\n"
      "  ulp prune model.safetensors --sparsity 0.9 --rewind lr --rounds 5 --out ticket.safetensors\n"
      "  ulp prune model.safetensors --pattern n_m --n 2 --m 4 --out sparse.safetensors\n",
      *flags);
  say_threads_follow(*command);
  add_prune_flags(*command, *flags);
  command->callback([flags, command] {
    flags->data_given = command->count("--data") > 0;
    run(*flags);
  });
}

const Command kPruneCommand("prune", add_prune);

}  // namespace

}  // namespace ulp::cli
