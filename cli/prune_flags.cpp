#include "cli/prune_flags.h"

#include <charconv>
#include <map>

#include "cli/help_groups.h"

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

/// The order of the help: what most runs say first.
void group_prune_help(CLI::App& command) {
  group_help(
      command,
      {{"Main flags",
        {"--method", "--sparsity", "--keep", "--score", "--pattern", "--criterion", "--data", "--finetune",
         "--epochs", "--out"}},
       {"Data", {"--samples", "--test", "--shape", "--size", "--network", "--normalize"}},
       {"Single weights (--method weights)",
        {"--scope",       "--n",         "--m",       "--reorder",        "--block-rows", "--block-columns",
         "--unit-score",  "--fraction",  "--of",      "--floor",          "--parameters", "--score-rounds",
         "--movement-lr", "--threshold", "--penalty", "--prune-schedule", "--begin",      "--end",
         "--frequency",   "--initial"}},
       {"Channels (--method channels)",
        {"--unit-scope", "--cap", "--round-to", "--normalization", "--permutations", "--measured-widths",
         "--width-table", "--steps", "--regularizer", "--lambda", "--growth", "--inexact", "--structure"}},
       {"Both methods", {"--recipe", "--target", "--skip", "--prune-seed", "--sweep"}},
       {"Lottery tickets", {"--rewind", "--rewind-step", "--rounds", "--tickets"}},
       {"Training (--finetune)",
        {"--batch", "--lr", "--optimizer", "--momentum", "--weight-decay", "--schedule", "--warmup",
         "--max-steps", "--accumulate", "--precision", "--loss", "--seed", "--augment"}},
       {"Processes and threads", {"--threads"}},
       {"Output",
        {"--report", "--save-recipe", "--save-structure", "--no-latency", "--checkpoint",
         "--checkpoint-every", "--resume", "--verbose", "--json", "--help"}}});
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
  if (method == kMethods[1]) return {.recipe = prune::ChannelPruningRecipe{}};
  return {.recipe = prune::Recipe{}};
}

namespace {

/// The share behind `flag`; `text` is the number, and `given` all that was given.
double read_share(const std::string& flag, const std::string& text, const std::string& given,
                  const std::string& expected) {
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (error == std::errc() && end == text.data() + text.size() && share > 0 && share <= 1) return share;
  throw CLI::ValidationError(flag, "expected " + expected + "a share in (0, 1], got " + given);
}

/// Reads "macs=0.5" behind --keep; behind --target "sparsity=0.9", too.
PruneGoal read_measured_goal(const std::string& flag, const std::string& text) {
  const bool old = flag == "--target";
  const std::string expected = std::string("macs=SHARE, parameters=SHARE, bytes=SHARE") +
                               (old ? ", latency=SHARE or sparsity=SHARE" : " or latency=SHARE") + " with ";
  const size_t equals = text.find('=');
  const std::string what = text.substr(0, equals),
                    number = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool sparsity = old && what == "sparsity";
  const auto kept = from_word<prune::Measure>(what);
  const double share = read_share(flag, sparsity || kept ? number : "", text, expected);
  PruneGoal goal{.given = flag + ' ' + text, .kept = std::nullopt, .share = share};
  if (!sparsity) goal.kept = *kept;
  return goal;
}

}  // namespace

std::optional<PruneGoal> PruneFlags::goal() const {
  if (int{!sparsity.empty()} + int{!keep.empty()} + int{!target.empty()} > 1)
    throw CLI::ValidationError("--sparsity, --keep and --target exclude each other");
  if (!sparsity.empty())
    return PruneGoal{.given = "--sparsity " + sparsity,
                     .kept = std::nullopt,
                     .share = read_share("--sparsity", sparsity, sparsity, "")};
  if (!keep.empty()) return read_measured_goal("--keep", keep);
  if (!target.empty()) return read_measured_goal("--target", target);
  return std::nullopt;
}

void apply_goal(const PruneGoal& goal, app::PruneRecipe& recipe) {
  if (recipe.cuts() != goal.kept.has_value()) {
    throw CLI::ValidationError(recipe.cuts()
                                   ? "--method channels expected --keep macs=SHARE, got " + goal.given
                                   : "--method weights expected --sparsity SHARE, got " + goal.given);
  }
  if (auto* cut = std::get_if<prune::ChannelPruningRecipe>(&recipe.recipe)) {
    cut->measure = *goal.kept;
    cut->share = goal.share;
  } else {
    std::get<prune::Recipe>(recipe.recipe).amount = prune::Amount::share(goal.share, prune::AmountOf::all);
  }
}

void PruneFlags::check() const {
  if (out.empty() && report.empty() && sweep.empty()) throw CLI::RequiredError("--out, --report or --sweep");
  if (!sweep.empty() && test == 0) throw CLI::ValidationError("--sweep needs test data, got --test 0");
  for (const double kept : sweep) {
    if (!(kept > 0 && kept <= 1)) throw CLI::ValidationError("--sweep", "expected shares in (0, 1]");
  }
  if (!structure.empty() && (has_goal() || !sweep.empty()))
    throw CLI::ValidationError(
        "--structure", "says what is left: expected no --keep, --sparsity, --target or --sweep with it");
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
  command.add_option("--sparsity", flags.sparsity, "Single weights: share of them that become zero")
      ->type_name("SHARE");
  command
      .add_option("--keep", flags.keep,
                  "Channels (implies --method channels): share of the multiplications (macs), parameters, "
                  "bytes or measured latency of the engine that is left, as macs=0.5")
      ->type_name("MEASURE=SHARE");
  command.add_option("--target", flags.target,
                     "Deprecated: sparsity=0.9 is --sparsity 0.9, macs=0.5 is --keep macs=0.5");
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
  group_prune_help(command);
}

}  // namespace ulp::cli
