#include "cli/distill_flags.h"

#include <algorithm>

#include "ulp/distill/losses/registry.h"

namespace ulp::cli {

namespace {

constexpr const char* kList = "distill";

/// "  kd  softened predictions (T=4)" for each loss.
std::string loss_help() {
  std::string text = "Losses:\n";
  for (const distill::LossEntry& entry : distill::loss_entries()) {
    text += "  " + entry.name + std::string(entry.name.size() < 20 ? 20 - entry.name.size() : 1, ' ') +
            entry.help;
    if (!entry.options.empty()) text += " (" + entry.options + ")";
    text += '\n';
  }
  return text;
}

void add_learning_options(CLI::App& command, DistillFlags& flags) {
  command
      .add_option(
          "--loss", flags.losses,
          "What the student learns, as NAME[:WEIGHT][,KEY=VALUE ...][@PLACE[=TEACHER'S PLACE]]; may be given "
          "several times; alpha=A is the share of the labels; a WEIGHT or T may be FROM>TO along the run")
      ->default_str("kd:T=4,alpha=0.1")
      ->allow_extra_args(false);
  command.add_option("--recipe", flags.recipe, "A recipe of distillation as JSON, in the place of --loss");
  command
      .add_option("--assistant", flags.assistants,
                  "A network between teacher and student; may be given several times")
      ->allow_extra_args(false);
  command
      .add_option("--generations", flags.generations, "Born again: so many students, each teaching the next")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--peer", flags.peers,
                  "Without a teacher: a network that learns with the student; may be given several times")
      ->allow_extra_args(false);
  command.add_option("--peer-weight", flags.peer_weight, "Of what peers say, against labels")
      ->capture_default_str();
  command
      .add_option("--exits", flags.exits,
                  "Without a teacher: places of classifiers that the last layer teaches")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--exit-features", flags.exit_features, "The place whose features the exits learn, too");
  command.add_flag("--init", flags.init, "Start from the teacher's tensors of the same names");
  command.add_option(
      "--init-layers", flags.init_layers,
      "Start from the teacher; of its layers NAME.0, NAME.1 ... take as many as the student has");
}

void add_label_options(CLI::App& command, DistillFlags& flags) {
  command.add_option("--labels", flags.labels, "Share of the training data whose labels are used")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--unlabelled", flags.unlabelled,
                     "Further data, whose labels are not used; X.npy and FILE.npz need none");
  command
      .add_option("--hard-labels", flags.hard_labels,
                  "What has no label takes the teacher's class where it is at least so sure (0: never)")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--top", flags.top,
                  "Ask the teacher once, about the samples as they are, and keep so many of its classes (0: "
                  "ask each time)")
      ->check(not_negative())
      ->capture_default_str();
  command.add_option("--noise", flags.noise, "Standard deviation of noise on what the student sees")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--teacher-cache", flags.cache,
                     "File that keeps the teacher's values of each sample; needs --no-augment");
}

}  // namespace

app::DistillScheme DistillFlags::scheme() const {
  if (!peers.empty()) return app::DistillScheme::mutual;
  return exits.empty() ? app::DistillScheme::offline : app::DistillScheme::self;
}

void DistillFlags::check() const {
  checkpointing.check();
  if (out.empty() && report.empty()) throw CLI::RequiredError("--out or --report");
  if (!peers.empty() && !exits.empty()) throw CLI::ValidationError("--peer and --exits exclude each other");
  const bool offline = scheme() == app::DistillScheme::offline;
  if (offline && teachers.empty()) throw CLI::RequiredError("a teacher, or --peer or --exits");
  if (!offline && !teachers.empty())
    throw CLI::ValidationError((peers.empty() ? "--exits" : "--peer") +
                               std::string(" is for networks without a teacher"));
  if (!offline && (!losses.empty() || !recipe.empty()))
    throw CLI::ValidationError("--loss and --recipe need a teacher");
  const bool needs_teacher = init || !init_layers.empty() || generations > 1 || !assistants.empty() ||
                             !cache.empty() || top > 0 || hard_labels > 0;
  if (!offline && needs_teacher)
    throw CLI::ValidationError(
        "--init, --generations, --assistant, --teacher-cache, --top and --hard-labels need a teacher");
  if (top > 0 && !cache.empty())
    throw CLI::ValidationError("--top and --teacher-cache exclude each other: both ask the teacher once");
  if (top > 0 && !unlabelled.empty()) throw CLI::ValidationError("--top and --unlabelled exclude each other");
  if (hard_labels > 0 && labels == 1)
    throw CLI::ValidationError("--hard-labels is for data whose labels are used in part: --labels below 1");
  if (!losses.empty() && !recipe.empty())
    throw CLI::ValidationError("--loss and --recipe exclude each other");
  if (!teacher_weights.empty() && teacher_weights.size() != teachers.size())
    throw CLI::ValidationError(
        "--teacher-weights", "expected one for each of the " + std::to_string(teachers.size()) + " teachers");
  if (labels == 0)
    throw CLI::ValidationError("--labels", "expected a share > 0; alpha=0 of a loss leaves labels out");
  check_ending(out, {".safetensors"});
  for (const std::string& file : {out, save_recipe, checkpointing.path, cache}) {
    if (!file.empty()) check_writable(file);
  }
  if (!report.empty()) make_folder(report);
}

void add_distill_flags(CLI::App& command, DistillFlags& flags) {
  command.add_option("teacher", flags.teachers,
                     "A model file, a TorchScript, ONNX or .pt2 file, published weights or an engine; "
                     "several are an ensemble");
  command.add_option("--student", flags.student, "A reference network, or a model file to start from")
      ->required();
  command.add_option("-o,--out", flags.out, "Model file to write, which every command takes");
  add_learning_options(command, flags);
  command.add_option("--teacher-weights", flags.teacher_weights, "Weights of several teachers")
      ->delimiter(',');
  command
      .add_option("--teacher-precision", flags.teacher_precision,
                  "In which a teacher that is no engine computes")
      ->capture_default_str();
  add_any_data_option(command, flags.data);
  command
      .add_option("--length", flags.length, "Text without a teacher: bytes that the network reads at once")
      ->check(positive())
      ->capture_default_str();
  add_label_options(command, flags);
  command.add_option("--test", flags.test, "Test samples to compare accuracies on (0: none)")
      ->check(not_negative())
      ->capture_default_str();
  command.add_flag("--no-alone", flags.no_alone, "Leave out the student that learns by labels alone");
  command.add_flag("--no-latency", flags.no_latency, "Leave out the latencies");
  command.add_option("--save-recipe", flags.save_recipe, "Write the recipe that was used as JSON");
  command.add_option("--report", flags.report, "Folder for report.json and report.html");
  flags.checkpointing.add_to(command);
  app::RecipeTraining training = app::as_used(app::RecipeTraining{});
  flags.fields.add(command, kList, "How the student trains",
                   [&](FieldVisitor& visit) { visit(app::kTrainingField, training); }, {"training"});
  flags.shape.add_to(command);
  command.footer(loss_help() + command.get_footer());
}

}  // namespace ulp::cli
