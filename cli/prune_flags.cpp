#include "cli/prune_flags.h"

#include <charconv>
#include <map>

namespace ulp::cli {

namespace {

/// The flags of every method's recipe, from its own list of fields.
void add_prune_recipe_options(CLI::App& command, RecipeFlags& flags) {
  flags.keep_whole("loss");
  for (const char* method : kMethods) {
    app::PruneRecipe recipe = recipe_of(method);
    flags.add(command, method, std::string("Recipe of --method ") + method,
              [&](FieldVisitor& visit) { recipe.visit_fields(visit); },
              {"pattern", "amount", "schedule", "training"});
  }
}

}  // namespace

namespace {

/// The words of --rewind.
const std::map<std::string, train::Rewind> kRewinds = {{"weights", train::Rewind::weights},
                                                       {"lr", train::Rewind::learning_rate},
                                                       {"fine_tune", train::Rewind::fine_tune}};

void check_rewinding(const PruneFlags& flags) {
  if (flags.rewind.empty()) {
    if (!flags.tickets.empty() || flags.rewind_step != 0)
      throw CLI::ValidationError(flags.tickets.empty() ? "--rewind-step" : "--tickets", "goes with --rewind");
    return;
  }
  if (flags.finetune)
    throw CLI::ValidationError("--rewind", "trains in rounds: expected no --finetune with it");
  if (flags.checkpointing.given())
    throw CLI::ValidationError("--rewind", "keeps its rounds in --tickets: expected no --checkpoint with it");
  if (!flags.sweep.empty()) throw CLI::ValidationError("--rewind", "expected no --sweep with it");
  if (flags.test == 0) throw CLI::ValidationError("--rewind needs test data, got --test 0");
  if (flags.rewind_step > 0 && flags.rewind != "weights")
    throw CLI::ValidationError("--rewind-step", "goes with --rewind weights, got --rewind " + flags.rewind);
}

}  // namespace

std::optional<app::TicketRounds> PruneFlags::ticket_rounds(int64_t rounds) const {
  if (rewind.empty()) return std::nullopt;
  return app::TicketRounds{
      .rewind = kRewinds.at(rewind), .rounds = rounds, .step = rewind_step, .folder = tickets};
}

app::PruneRecipe recipe_of(const std::string& method) {
  if (method == kMethods[1]) return {.recipe = prune::CutRecipe{}};
  return {.recipe = prune::Recipe{}};
}

void apply_target(const std::string& target, app::PruneRecipe& recipe) {
  if (target.empty()) return;
  const size_t equals = target.find('=');
  const std::string what = target.substr(0, equals),
                    text = equals == std::string::npos ? "" : target.substr(equals + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1;
  const bool known = what == "sparsity" || from_word<prune::Measure>(what);
  if (!number || !known) {
    throw CLI::ValidationError(
        "--target",
        "expected macs=SHARE, parameters=SHARE, bytes=SHARE, latency=SHARE or sparsity=SHARE with "
        "a share in (0, 1], got " +
            target);
  }
  if (recipe.cuts() == (what == "sparsity")) {
    throw CLI::ValidationError(
        "--target", recipe.cuts()
                        ? "expected macs, parameters, bytes or latency with --method channels, got " + target
                        : "expected sparsity with --method weights, got " + target);
  }
  if (auto* cut = std::get_if<prune::CutRecipe>(&recipe.recipe)) {
    cut->measure = *from_word<prune::Measure>(what);
    cut->share = value;
  } else {
    std::get<prune::Recipe>(recipe.recipe).amount = prune::Amount::share(value, prune::AmountOf::all);
  }
}

void PruneFlags::check() const {
  if (out.empty() && report.empty() && sweep.empty()) throw CLI::RequiredError("--out, --report or --sweep");
  if (!sweep.empty() && test == 0) throw CLI::ValidationError("--sweep needs test data, got --test 0");
  for (const double kept : sweep) {
    if (!(kept > 0 && kept <= 1)) throw CLI::ValidationError("--sweep", "expected shares in (0, 1]");
  }
  if (!structure.empty() && (!target.empty() || !sweep.empty()))
    throw CLI::ValidationError("--structure",
                               "says what is left: expected no --target and no --sweep with it");
  check_rewinding(*this);
  checkpointing.check();
  if (checkpointing.given() && !finetune)
    throw CLI::ValidationError("--checkpoint", "is for training: expected --finetune with it");
  check_ending(out, {".safetensors"});
  for (const std::string& file : {out, save_recipe, save_structure, checkpointing.path}) {
    if (!file.empty()) check_writable(file);
  }
  if (!report.empty()) make_folder(report);
  if (!tickets.empty()) make_folder(tickets);
}

void add_prune_flags(CLI::App& command, PruneFlags& flags) {
  command
      .add_option(
          "model", flags.model,
          "A file of `ulp train` or `ulp prune`, a TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  command.add_option("-o,--out", flags.out, "Model file to write, which every command takes");
  command
      .add_option("--method", flags.method,
                  "What is pruned:\nweights: single weights become zeros\nchannels: channels, heads and "
                  "neurons are cut out")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kMethods), std::end(kMethods))))
      ->default_str("the recipe's, else weights");
  command.add_option(
      "--target", flags.target,
      "sparsity=0.9 (weights): the share that is pruned; macs=0.5, parameters=0.5, bytes=0.5 or "
      "latency=0.5 (channels): the share that is left");
  command.add_option("--width-table", flags.width_table,
                     "File of --measured-widths: read, or measured and written where there is none");
  command.add_option("--structure", flags.structure,
                     "File of --save-structure of the same network: cut the same channels again");
  command.add_option("--save-structure", flags.save_structure, "Write which channels were kept as JSON");
  command.add_option("--recipe", flags.recipe, "A file of the method's recipe as JSON");
  add_any_data_option(command, flags.data);
  command.add_option("--samples", flags.samples, "Training samples that scores are computed with")
      ->check(positive())
      ->capture_default_str();
  command.add_option("--test", flags.test, "Test samples to compare accuracies on (0: none)")
      ->check(not_negative())
      ->capture_default_str();
  command.add_flag("--finetune", flags.finetune, "Train on, by the fields of training below");
  flags.checkpointing.add_to(command);
  command
      .add_option(
          "--rewind", flags.rewind,
          "Lottery tickets: train, prune, go back and train again, in --rounds. Back to:\nweights: the "
          "weights "
          "and the rate of --rewind-step\nlr: the trained weights, with the whole schedule of the rate "
          "again\nfine_tune: the trained weights, at a small rate")
      ->check(CLI::IsMember(std::vector<std::string>{"weights", "lr", "fine_tune"}));
  command.add_option("--rewind-step", flags.rewind_step, "--rewind weights: the step of the first round")
      ->check(not_negative())
      ->capture_default_str();
  command.add_option("--tickets", flags.tickets,
                     "Folder for each round of --rewind; a run that was ended goes on there");
  command.add_option("--sweep", flags.sweep, "Shares to keep, each pruned at once: a curve of accuracies")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag("--no-latency", flags.no_latency, "Leave out the latencies");
  command.add_option("--save-recipe", flags.save_recipe, "Write the recipe that was used as JSON");
  command.add_option("--report", flags.report, "Folder for report.json and report.html");
  command.add_flag("-v,--verbose", flags.verbose, "Show each layer, and what was not pruned and why");
  add_prune_recipe_options(command, flags.fields);
  flags.shape.add_to(command);
}

}  // namespace ulp::cli
