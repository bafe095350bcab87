// ulp train: trains a reference network on images, arrays or text, with checkpoints that continue bit for
// bit.
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "cli/fp8_recipe_file.h"
#include "cli/model_flags.h"
#include "cli/recipe_file.h"
#include "cli/train_flags.h"
#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/app/data/data.h"
#include "ulp/app/memory/memory_budget.h"
#include "ulp/app/model_io/adapter.h"
#include "ulp/app/model_io/exchange_file.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/app/prune/prune.h"
#include "ulp/app/train/checkpointed.h"
#include "ulp/app/train/prunes_while_training.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/distributed/init.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/report/format.h"
#include "ulp/train/checkpointing.h"
#include "ulp/train/fp8_task.h"
#include "ulp/train/int8_task.h"
#include "ulp/train/learning.h"
#include "ulp/train/trainer.h"
#include "ulp/train/watch_observer.h"

namespace ulp::cli {

namespace {

/// What a run did.
struct Outcome {
  double last_loss = 0, seconds = 0;
  int64_t first_step = 0, skipped_steps = 0;
};

/// What --memory-budget chose.
struct Budgeted {
  app::BudgetChoice choice = {};
  int64_t data_bytes = 0;  ///< of the data set, which were there before
  int64_t peak_bytes = 0;  ///< measured in the end, the data among them
};

/// The network for the data where none is named.
std::string default_model(const app::ModelSpec& spec) {
  if (spec.kind == app::NetworkKind::language) return "gpt2";
  if (spec.kind == app::NetworkKind::text) return "bert";
  return spec.image_size == 1 ? "mlp" : "resnet14";
}

bool can_take(const std::string& model, const app::ModelSpec& spec) {
  const std::vector<std::string> text = models::text_model_names();
  const bool over_text = std::find(text.begin(), text.end(), model) != text.end();
  if (spec.kind == app::NetworkKind::image) return !over_text && (spec.image_size > 1 || model == "mlp");
  if (!over_text) return false;
  const auto tasks = models::text_model_tasks(model);
  const auto task = spec.kind == app::NetworkKind::text ? models::TextTask::classification
                                                        : models::TextTask::language_modelling;
  return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

std::string choose_model(const TrainFlags& flags, const app::TaskData& data) {
  if (flags.model.empty()) return default_model(data.spec);
  if (!models::is_classifier(flags.model))
    throw CLI::ValidationError("--model " + flags.model + " gives a class for each pixel, and --data " +
                               flags.data + " has a label for each " + data.unit + "; " +
                               default_model(data.spec) + " takes it");
  if (can_take(flags.model, data.spec)) return flags.model;
  throw CLI::ValidationError("--model " + flags.model + " does not take the " + data.unit + "s of --data " +
                             flags.data + "; " + default_model(data.spec) + " does");
}

/// A network from elsewhere is called as its file is.
std::string path_stem(const std::string& path) {
  return report::clean_line(std::filesystem::path(path).stem().string());
}

/// What --init's file says that it holds; nothing without --init.
std::optional<app::ModelSpec> initial_spec(const TrainFlags& flags) {
  if (flags.init.empty()) return std::nullopt;
  auto spec = app::read_model_spec(flags.init);
  const bool published = app::is_pretrained_file(flags.init, flags.model);
  if (!spec && (published || app::is_exchange_file(flags.init) || app::is_zip_file(flags.init)))
    return std::nullopt;  // what the data is decides
  if (!spec)
    fail_file(
        "cli.train",
        "expected a file of `ulp train`, a TorchScript, ONNX or .pt2 file or published weights for --init, "
        "got '",
        flags.init, "'");
  if (!flags.model.empty() && flags.model != spec->name) {
    throw CLI::ValidationError("--init " + flags.init + " holds " + spec->name + ", not --model " +
                               flags.model);
  }
  if (published) spec->max_length = std::min(spec->max_length, flags.length);
  return spec;
}

std::string bytes_text(int64_t bytes) {
  return report::format_bytes(static_cast<double>(bytes));
}

nlohmann::json to_json(const Budgeted& budgeted, int64_t budget) {
  const app::BudgetChoice& choice = budgeted.choice;
  return {{"budget_bytes", budget},
          {"asked_bytes", choice.asked_bytes + budgeted.data_bytes},
          {"predicted_bytes", choice.predicted_bytes + budgeted.data_bytes},
          {"peak_bytes", budgeted.peak_bytes},
          {"data_bytes", budgeted.data_bytes},
          {"batch", choice.options.batch},
          {"accumulate", choice.options.accumulate},
          {"changes", choice.changes}};
}

std::vector<report::Fact> settings(const TrainFlags& flags, const std::string& model) {
  const train::TrainOptions& options = flags.options;
  std::vector<report::Fact> facts = {{"network", model},
                                     {"data", flags.data},
                                     {"precision", options.precision.name()},
                                     {"loss scaling", options.used_scaler().text()},
                                     {"optimizer", enum_name(options.optimizer)},
                                     {"batch", std::to_string(options.batch * options.accumulate)},
                                     {"seed", std::to_string(options.seed)}};
  if (options.masters) facts.push_back({"masters", enum_name(*options.masters)});
  if (options.moments != amp::MomentFormat::fp32) facts.push_back({"moments", enum_name(options.moments)});
  return facts;
}

/// What --watch shows while a run goes, and what --report keeps of it.
class Watching {
 public:
  Watching(const TrainFlags& flags, train::Trainer& trainer, torch::nn::Module& model)
      : trainer_(trainer), observer_(model, flags.watching) {
    trainer_.observe(&observer_);
  }
  ~Watching() { trainer_.observe(nullptr); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  void show_news(report::Progress& progress) {
    if (const auto news = observer_.news()) progress.print(*news);
  }
  /// After a step that threw.
  void explain(report::Progress& progress) {
    if (const std::string text = observer_.explanation(); !text.empty()) progress.print(text);
  }
  void write(const TrainFlags& flags, const std::string& model) const {
    if (!flags.report.empty())
      observer_.report("Training " + model + " in " + flags.options.precision.name(), settings(flags, model))
          .write_html(flags.report);
  }

 private:
  train::Trainer& trainer_;
  train::WatchObserver observer_;
};

/// Trains to the end; on Ctrl-C saves the checkpoint, if one was asked for, and throws Interrupted.
void run_steps(const TrainFlags& flags, train::Trainer& trainer, report::Progress& progress,
               Watching* watching, Outcome& outcome) {
  train::run_to_end(trainer, flags.saving(), [&](const train::StepInfo& info) {
    outcome.last_loss = info.loss;
    outcome.skipped_steps += amp::is_skipped(info.result);
    char note[96];
    const int length = std::snprintf(note, sizeof note, "epoch %lld, loss %.3f",
                                     static_cast<long long>(info.epoch + 1), info.loss);
    const auto* threads = amp::AdaptiveThreads::current();
    if (threads != nullptr && threads->threads() < threads->most())
      std::snprintf(note + length, sizeof note - static_cast<size_t>(length), ", %d of %d threads",
                    threads->threads(), threads->most());
    if (watching != nullptr) watching->show_news(progress);
    progress.update(trainer.next_step(), note);
  });
}

/// As run_steps(), watched; what was seen is shown and kept however the run ends.
void run_watched(const TrainFlags& flags, train::Trainer& trainer, report::Progress& progress,
                 const app::Network& network, const std::string& model, Outcome& outcome) {
  Watching watching(flags, trainer, *network.module);
  try {
    run_steps(flags, trainer, progress, &watching, outcome);
  } catch (const std::exception& reason) {
    if (dynamic_cast<const Interrupted*>(&reason) == nullptr) watching.explain(progress);
    try {
      watching.write(flags, model);
    } catch (const std::exception& error) {  // must not hide why the run ended
      progress.print(error.what());
    }
    throw;
  }
  watching.write(flags, model);
}

Outcome train_network(const TrainFlags& flags, train::Trainer& trainer, const app::Network& network,
                      const std::string& model) {
  train::resume_from(trainer, flags.saving());
  Outcome outcome{.first_step = trainer.next_step()};
  const auto begin = std::chrono::steady_clock::now();
  report::Progress progress("train " + flags.options.precision.name(), trainer.total_steps(),
                            {.unit = "step", .silent = !flags.shows});
  if (flags.watch)
    run_watched(flags, trainer, progress, network, model, outcome);
  else
    run_steps(flags, trainer, progress, nullptr, outcome);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

constexpr int64_t kTestBatch = 250;

train::Accuracy test(const app::Network& network, const app::TaskData& data, int64_t batch) {
  app::to_float(*network.module);
  network.module->eval();
  const auto batches = data.stream(io::Split::test, {.batch = batch});
  report::Progress progress("evaluate", batches->samples(), {.unit = data.unit});
  const train::Accuracy accuracy =
      train::evaluate(network.forward, *batches, [&](int64_t done) { progress.update(done); });
  progress.finish();
  return accuracy;
}

/// In which 8-bit numbers layers compute.
std::string kind_of(const graph::PassReport& report) {
  return report.pass == "to_int8" ? "int8" : "fp8";
}

/// "fp8: 18 layers; as they are: conv1 (it is the first layer), fc (it is the last layer)"
void show_layers(const graph::PassReport& report) {
  if (report.changes.empty()) return;
  std::cout << kind_of(report) << ": " << report.changes.size() << " layers\n";
  for (const std::string& line : report.near_misses) std::cout << "  " << line << '\n';
}

void show(const TrainFlags& flags, const app::ModelSpec& spec, const char* unit,
          const train::Trainer& trainer, const Outcome& outcome, const train::Accuracy& accuracy,
          const std::optional<Budgeted>& budgeted, const graph::PassReport& eight_bits,
          const amp::AdaptiveThreads* threads, const lora::LoraModel* adapters) {
  const int64_t steps = trainer.total_steps() - outcome.first_step;
  const double epoch_seconds = steps > 0 ? outcome.seconds / static_cast<double>(steps) *
                                               static_cast<double>(trainer.steps_per_epoch())
                                         : 0;
  if (flags.json) {
    nlohmann::json json = {{"model", spec.name},
                           {"precision", flags.options.precision.name()},
                           {"steps", trainer.total_steps()},
                           {"first_step", outcome.first_step},
                           {"skipped_steps", outcome.skipped_steps},
                           {"last_loss", outcome.last_loss},
                           {"accuracy_percent", accuracy.percent()},
                           {"test_loss", accuracy.loss},
                           {"seconds", outcome.seconds},
                           {"seconds_per_epoch", epoch_seconds},
                           {"out", flags.out}};
    if (flags.options.compile) json["compiled"] = true;
    if (!eight_bits.changes.empty()) {
      json[kind_of(eight_bits) + "_layers"] = eight_bits.changes.size();
      json[kind_of(eight_bits) + "_near_misses"] = eight_bits.near_misses;
    }
    if (budgeted) json["memory"] = to_json(*budgeted, *flags.budget);
    if (adapters != nullptr) json["adapters"] = figures_of(*adapters);
    if (threads != nullptr && threads->others())
      json["threads"] = {{"most", threads->most()},
                         {"mean", threads->mean_threads()},
                         {"others_percent", 100 * *threads->others()}};
    return print_json(json);
  }
  std::cout << spec.name << ' ' << flags.options.precision << (flags.options.compile ? ", compiled: " : ": ")
            << describe(accuracy, spec, unit) << ", " << epoch_seconds << " s per epoch\n";
  if (budgeted) {
    std::cout << "memory: " << bytes_text(budgeted->peak_bytes) << " at the peak, "
              << bytes_text(budgeted->choice.predicted_bytes + budgeted->data_bytes) << " predicted, "
              << bytes_text(*flags.budget) << " allowed\n";
  }
  show_layers(eight_bits);
  if (adapters != nullptr) std::cout << text_of(*adapters) << '\n';
  if (const std::string busy = describe(threads); !busy.empty()) std::cout << busy << '\n';
  if (outcome.skipped_steps > 0) std::cout << outcome.skipped_steps << " steps skipped by loss scaling\n";
  for (const std::string& file : {flags.out, flags.report}) {
    if (!file.empty()) std::cout << "wrote " << file << '\n';
  }
}

/// The network as a graph with masks of its zeros.
void keep_zeros(app::Network& network, const app::ModelSpec& spec) {
  network = app::captured(network, spec);
  prune::mask_zeros(static_cast<graph::GraphModule&>(*network.module));
}

/// The network that a run starts from, before it is pruned.
app::Network start_network(const TrainFlags& flags, const app::ModelSpec& spec) {
  const bool adapts = flags.lora.trains();  // what starts new would stay as it is
  app::Network network = flags.init.empty() ? app::make_network(spec)
                                            : app::load_network(flags.init, spec,
                                                                adapts ? app::PretrainedFit::exact
                                                                       : app::PretrainedFit::partial);
  if (flags.keep_zeros) keep_zeros(network, spec);
  return adapts ? app::with_adapters(network, spec, flags.lora.asked_for()) : network;
}

std::unique_ptr<train::BatchStream> training_stream(const TrainFlags& flags, const app::TaskData& data,
                                                    int64_t batch,
                                                    const distributed::ProcessGroup* group = nullptr) {
  return data.stream(
      io::Split::train,
      train::StreamOptions::training(batch, flags.options.seed, flags.options.augment).among(group));
}

/// Makes tasks as the run trains them.
app::MakeTask task_maker(const TrainFlags& flags, const app::ModelSpec& spec, const app::TaskData& data,
                         const std::optional<amp::Fp8Recipe>& fp8) {
  return [&flags, &spec, &data, &fp8](memory::RunSize size) {
    app::Network network = start_network(flags, spec);
    train::Task task{.model = network.module,
                     .forward = std::move(network.forward),
                     .batches = training_stream(flags, data, size.batch)};
    return fp8 ? train::fp8_task(std::move(task), *fp8) : std::move(task);
  };
}

/// What the network computes again so that it keeps that share of its activations; nothing where it cannot.
std::optional<app::CheckpointChoice> choose_checkpoints(const TrainFlags& flags, const app::MakeTask& make,
                                                        double share) {
  try {
    return app::CheckpointChoice(make, flags.options, {.batch = flags.options.batch}, flags.plan, share);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error&) {  // a network that cannot be captured, or that has no such plan
    return std::nullopt;
  }
}

/// The program under a plan.
app::TrainingProgram planned(app::TrainingProgram program, const app::CheckpointChoice& choice) {
  program.make = [make = std::move(program.make), choice](memory::RunSize size) {
    train::Task task = make(size);
    choice.apply(task);
    return task;
  };
  return program;
}

/// Changes the options so that the run fits, and says how. `choice` is that of the run, and becomes the one
/// that fits.
Budgeted fit_to_budget(TrainFlags& flags, const app::ModelSpec& spec, const app::TaskData& data,
                       int64_t data_bytes, const std::optional<amp::Fp8Recipe>& fp8,
                       app::CheckpointChoice& choice) {
  report::Progress progress("memory", 0, {.unit = "small run", .leave = false});
  const app::TrainingProgram bare{.make = task_maker(flags, spec, data, fp8),
                                  .after = [&](const train::Task& task, memory::RunSize size) {
                                    app::to_float(*task.model);
                                    task.model->eval();
                                    const auto batches = app::first_samples(
                                        data.stream(io::Split::test, {.batch = size.batch}), size.batch);
                                    train::evaluate(task.forward, *batches);
                                  }};
  std::map<double, app::CheckpointChoice> choices;  // of the programs, by the share they keep
  const auto checkpointed = [&](double share) -> std::optional<app::TrainingProgram> {
    const auto found = choose_checkpoints(flags, bare.make, share);
    if (!found) return std::nullopt;
    choices.emplace(share, *found);
    return planned(bare, *found);
  };
  const bool chosen_already = flags.plan.checkpoint_activations != app::CheckpointRule{};
  Budgeted budgeted{.data_bytes = data_bytes};
  app::BudgetJob job{.program = planned(bare, choice),
                     .options = flags.options,
                     .budget = *flags.budget,
                     .taken = data_bytes,
                     .keep_masters = flags.masters_given,
                     .keep_moments = flags.moments_given,
                     .batch_norm = app::has_batch_norm(*start_network(flags, spec).module),
                     .progress = [&] { progress.advance(); }};
  if (!chosen_already) job.checkpointed = checkpointed;
  budgeted.choice = app::fit_to_budget(job);
  progress.finish();
  flags.options = budgeted.choice.options;
  const auto chosen = choices.find(budgeted.choice.kept_share);
  if (chosen != choices.end()) choice = chosen->second;
  if (flags.json) return budgeted;
  std::cout << "memory: " << bytes_text(budgeted.choice.asked_bytes + data_bytes) << " as asked, "
            << bytes_text(budgeted.choice.predicted_bytes + data_bytes) << " predicted, "
            << bytes_text(*flags.budget) << " allowed\n";
  for (const std::string& change : budgeted.choice.changes) std::cout << "  " << change << '\n';
  return budgeted;
}

/// What --prune asks for; the network becomes a graph with masks then.
std::optional<prune::Pruner> make_pruner(const TrainFlags& flags, const app::ModelSpec& spec,
                                         app::Network& network) {
  if (flags.prune.empty()) return std::nullopt;
  const app::PruneRecipe read = read_recipe<app::PruneRecipe>(flags.prune);
  const auto* recipe = std::get_if<prune::Recipe>(&read.recipe);
  if (recipe == nullptr) {
    fail_file("cli.train", "expected a recipe of single weights for --prune, got '", flags.prune,
              "', one of channels; `ulp prune` takes it");
  }
  const prune::ScoreSource source = prune::source_of(recipe->score);
  if (source == prune::ScoreSource::loss || source == prune::ScoreSource::inputs) {
    fail("cli.train", "expected a score of the weights or of training for --prune, got ",
         enum_name(recipe->score), "; `ulp prune --finetune` takes it");
  }
  network = app::captured(network, spec);
  return prune::Pruner(std::static_pointer_cast<graph::GraphModule>(network.module), *recipe);
}

/// The processes of `ulp launch` or torchrun; null for this one alone. The first one shows and writes.
std::shared_ptr<distributed::ProcessGroup> meet(TrainFlags& flags) {
  distributed::InitOptions meeting = distributed::InitOptions::from_environment();
  meeting.transport = distributed::Transport::gloo;
  if (meeting.world_size == 1) return nullptr;
  flags.shows = meeting.rank == 0;
  if (!flags.shows) {
    flags.watch = false;
    flags.out.clear();
    flags.report.clear();
  }
  return distributed::init_process_group(meeting);
}

/// The network, or a graph of its own tensors for parameters that processes share.
app::Network form_to_train(const app::Network& network, const app::ModelSpec& spec, const TrainFlags& flags,
                           const distributed::ProcessGroup* group) {
  const bool shares = group != nullptr && flags.parallel.zero == distributed::ZeroStage::parameters;
  if (!shares) return network;
  app::Network form = app::captured(network, spec);
  if (auto* graph = dynamic_cast<graph::GraphModule*>(form.module.get());
      graph && !graph->graph().free.empty()) {
    // Units of the network are gathered for inputs of one size.
    const std::vector<int64_t> sizes(graph->graph().free.size(), spec.max_length);
    graph->graph().fix_free(sizes);
    graph->recompile();
  }
  return form;
}

void run(TrainFlags flags) {
  amp::prepare_training_memory();
  amp::prepare_training_products();
  apply(flags);
  const auto threads = adaptive_threads(flags);
  flags.watch |= !flags.report.empty();
  flags.check();
  const std::optional<amp::Fp8Recipe> fp8 = read_fp8_recipe(flags.fp8_recipe, flags.options.precision);
  const std::shared_ptr<distributed::ProcessGroup> group = meet(flags);
  if (!group && flags.sharing.parallel != train::Parallel::data)
    throw CLI::ValidationError("--parallel",
                               "is for several processes (ulp launch -n 2 ulp train ...), and this is one");
  if (group && flags.budget) throw CLI::ValidationError("--memory-budget is for a run of one process");
  std::optional<app::ModelSpec> stored = initial_spec(flags);
  // A classifier on published layers without one has the classes of the data.
  const bool new_classifier = stored && stored->kind == app::NetworkKind::text &&
                              app::is_pretrained_file(flags.init) && !app::pretrained_classifier(flags.init);
  if (new_classifier) {
    stored->num_classes = std::numeric_limits<int64_t>::max();
    stored->class_names.clear();
  }
  std::optional<measure::MemoryMeter> meter;
  if (flags.budget) meter.emplace();
  std::shared_ptr<const io::Tokenizer> tokenizer;
  if (!flags.tokenizer.empty())
    tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::load(flags.tokenizer));
  app::TaskData data = app::load_data(flags.data, flags.length, stored ? &*stored : nullptr, tokenizer);
  app::ModelSpec spec = stored ? *stored : data.spec;
  if (!stored && !flags.init.empty()) {
    spec = app::spec_for_file(flags.init, spec);
    if (spec.rows) data = app::load_data(flags.data, flags.length, &spec, tokenizer);
  }
  if (new_classifier) {
    spec.num_classes = data.spec.num_classes;
    spec.class_names = data.spec.class_names;
  }
  if (!flags.optimizer_given && spec.kind != app::NetworkKind::image) {
    flags.options.optimizer = train::Optimizer::adamw;
  }
  if (!stored) spec.name = flags.init.empty() ? choose_model(flags, data) : path_stem(flags.init);
  spec.network = flags.model;
  std::optional<Budgeted> budgeted;
  app::CheckpointChoice kept(task_maker(flags, spec, data, fp8), flags.options,
                             {.batch = flags.options.batch}, flags.plan);
  if (flags.budget) {
    const int64_t data_bytes = meter->live_bytes();
    meter.reset();
    budgeted = fit_to_budget(flags, spec, data, data_bytes, fp8, kept);
    meter.emplace();
  }
  torch::manual_seed(flags.options.seed);
  app::Network network = start_network(flags, spec);
  if (flags.shows && !network.note.empty())
    std::cerr << "note: '" << printable(flags.init) << "', " << printable(network.note)
              << "; what is missing or does not fit starts new\n";
  const std::shared_ptr<lora::LoraModel> adapters = app::adapters_of(network);
  std::optional<prune::Pruner> pruner = make_pruner(flags, spec, network);
  const app::Network trained = form_to_train(network, spec, flags, group.get());
  const bool shares_batches = flags.sharing.parallel == train::Parallel::data;
  train::Task task{
      .model = trained.module,
      .forward = trained.forward,
      .batches = training_stream(flags, data, flags.options.batch, shares_batches ? group.get() : nullptr),
      .description = spec.to_json() + (pruner ? pruner->recipe().to_json() : "") +
                     (adapters ? app::describe_run(*adapters) : "") + flags.plan.to_json(),
      .group = group,
      .parallel = flags.parallel};
  graph::PassReport eight_bits;
  if (group) {
    graph::PassReport parts;
    task =
        train::sharded_task(std::move(task), flags.sharing, flags.options, &parts, flags.saving().resumed());
    if (flags.shows && !flags.json)
      for (const std::string& line : parts.changes) std::cout << line << '\n';
  }
  if (fp8) {
    task = train::fp8_task(std::move(task), *fp8, &eight_bits);
    task.description += fp8->to_json();
  }
  if (flags.options.precision->int8) {
    const auto recipe = amp::Int8Recipe::named(flags.options.precision.name());
    task = train::int8_task(std::move(task), recipe, &eight_bits);
  }
  kept.apply(task);
  train::Trainer trainer(std::move(task), flags.options);
  std::optional<app::PrunesWhileTraining> prunes;
  if (pruner) trainer.observe(&prunes.emplace(*pruner, trainer));
  const Outcome outcome = train_network(flags, trainer, network, spec.name);
  trainer.unshard();
  if (!flags.shows) return;
  const train::Accuracy accuracy =
      test(network, data, budgeted ? std::min(kTestBatch, flags.options.batch) : kTestBatch);
  if (adapters && !flags.out.empty()) {
    app::save_adapters(flags.out, *adapters, flags.init);
  } else if (!flags.out.empty()) {
    const auto graph = std::dynamic_pointer_cast<graph::GraphModule>(network.module);
    app::save_model_file(flags.out, pruner || flags.keep_zeros ? *prune::bake(*graph) : *network.module,
                         spec);
  }
  if (budgeted) budgeted->peak_bytes = meter->peak_bytes() + budgeted->data_bytes;
  show(flags, spec, data.unit, trainer, outcome, accuracy, budgeted, eight_bits, threads.get(),
       adapters.get());
}

void add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = add_command(
      app, "train", "Train a reference network on images, arrays or text, in any precision",
      "  ulp train --precision bf16 --out model.safetensors\n"
      "  ulp train --epochs 30 --checkpoint run.ckpt --resume --out model.safetensors\n"
      "  ulp train --precision O2 --scaler apex --clip 1 --accumulate 4\n"
      "  ulp train --data book.txt --model gpt2 --precision bf16 --masters split\n"
      "  ulp train --data book.txt --model gpt2 --tokenizer tokenizer.json\n"
      "  ulp train --init llama --data book.txt --lora 16 --lora-alpha 32 --lora-targets q_proj,v_proj "
      "--lora-base nf4 --precision bf16 --out adapter\n"
      "  ulp train --precision fp8:delayed --watch --report fp8.html\n"
      "  ulp train --data book.txt --model gpt2 --precision int8\n"
      "  ulp train --data book.txt --checkpoint-activations sqrt --offload-optimizer file\n"
      "  ulp train --memory-budget 200MiB --activations int8 --activation-masks\n"
      "  ulp launch -n 2 ulp train --data book.txt --parallel pipeline --micro-batches 8\n"
      "  ulp train --precision fp32 --watch --watch-every 64 --report watch.html\n",
      *flags);
  say_threads_follow(*command);
  add_train_flags(*command, *flags);
  command->callback([flags] { run(*flags); });
}

const Command kTrainCommand("train", add_train);

}  // namespace

}  // namespace ulp::cli
