// ulp distill: a trained teacher and data -> a small network that learned from it, and what that gained.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/distill_flags.h"
#include "cli/recipe_file.h"
#include "cli/stage_bars.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/app/data/data.h"
#include "ulp/app/model_io/checksum.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/pretrained_file.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::cli {

namespace {

bool is_reference(const std::string& name) {
  const auto among = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return among(models::model_names()) || among(models::text_model_names());
}

/// --recipe or --loss, else the usual one; flags of the training over it.
app::DistillRecipe make_recipe(const DistillFlags& flags) {
  app::DistillRecipe recipe;
  if (!flags.recipe.empty()) {
    recipe = read_recipe<app::DistillRecipe>(flags.recipe);
  } else if (flags.scheme() == app::DistillScheme::offline) {
    const std::vector<std::string> usual = {"kd:T=4,alpha=0.1"};
    recipe.recipe =
        as_usage([&] { return distill::Recipe::from_terms(flags.losses.empty() ? usual : flags.losses); });
  } else {
    recipe.recipe.terms.clear();
  }
  put_over(flags.fields.given("distill"), recipe);
  as_usage([&] { recipe.validate(); });
  return recipe;
}

/// --network names the network of those teachers and students that do not say it.
app::ModelSpec asked_of(const std::string& file, app::ModelSpec spec) {
  if (!app::is_pretrained_file(file, spec.network) || app::says_its_network(file)) spec.network.clear();
  return spec;
}

/// Throws ulp::Error where --network names the network of no file.
void expect_nameless_file(const DistillFlags& flags) {
  const std::string& network = flags.shape.network;
  if (network.empty()) return;
  std::vector<std::string> files = flags.teachers;
  files.push_back(flags.student);
  files.insert(files.end(), flags.assistants.begin(), flags.assistants.end());
  files.insert(files.end(), flags.peers.begin(), flags.peers.end());
  const auto is_nameless = [&](const std::string& file) {
    return app::is_pretrained_file(file, network) && !app::says_its_network(file);
  };
  if (std::ranges::none_of(files, is_nameless))
    fail("cli.distill", "expected --network beside published weights without a config.json, got --network ",
         network, " beside files and networks that say themselves which they are");
}

/// The network of a TorchScript file, which trains as a graph.
app::StudentSource script_source(const std::string& name, const app::ModelSpec& spec, uint64_t seed) {
  if (spec.kind != app::NetworkKind::image)
    fail_file("cli.distill", "expected a file of `ulp train` for a text, got '", name, "'");
  const app::LoadedModel model = app::load_model_file(name, asked_of(name, spec));
  const int64_t classes = model.forward(at::zeros(model.spec.batch_sizes(2))).size(-1);
  if (classes != spec.num_classes)
    fail_file("cli.distill", "expected a network of ", spec.num_classes, " classes for this data, got '",
              name, "' of ", classes);
  return {model.spec.name, [name, spec, seed] {
            torch::manual_seed(seed);
            const std::shared_ptr<graph::GraphModule> graph =
                app::load_model_file(name, asked_of(name, spec)).graph;
            return app::Network{
                graph, [graph](const train::TaskBatch& batch) { return graph->forward(batch.inputs); }};
          }};
}

/// A reference network from the seed, or a network of a file as it is there.
app::StudentSource source_of(const std::string& name, app::ModelSpec spec, uint64_t seed) {
  if (is_reference(name)) {
    if (!models::is_classifier(name))
      throw CLI::ValidationError(name +
                                 " gives a class for each pixel, and the data has a label for each image");
    spec.name = name;
    return {name, [spec, seed] {
              torch::manual_seed(seed);
              return app::make_network(spec);
            }};
  }
  if (!std::filesystem::exists(name)) {
    std::string known;
    for (const std::string& one :
         spec.kind == app::NetworkKind::image ? models::model_names() : models::text_model_names())
      known += one + ", ";
    fail("cli.distill", "expected one of ", known, "or a file, got '", name, "'");
  }
  const auto stored = app::read_model_spec(name);
  if (!stored) return script_source(name, spec, seed);
  if (stored->num_classes != spec.num_classes || stored->kind != spec.kind)
    fail_file("cli.distill", "expected a network of ", spec.num_classes, " classes for this data, got '",
              name, "' of ", stored->num_classes);
  if (stored->mean != spec.mean || stored->std != spec.std)
    fail_file("cli.distill", "expected a network of the teacher's normalisation of the data, got '", name,
              "' with another one");
  if (!app::same_tokens(*stored, spec))
    fail_file("cli.distill", "expected a network of the tokens of the data, got '", name,
              "' with another tokenizer");
  return {stored->name, [name, seed] {
            torch::manual_seed(seed);
            return app::load_network(name);
          }};
}

/// Teachers, and data prepared for them.
struct DistillJob {
  std::vector<app::InferenceModel> teachers;
  app::TaskData data;
  app::ModelSpec spec;
};

app::InferenceModel open_teacher(const DistillFlags& flags, const std::string& file) {
  const auto stored = app::is_engine_file(file) ? std::nullopt : app::read_model_spec(file);
  if (!stored || stored->kind == app::NetworkKind::image)
    return app::load_inference_model(file, asked_of(file, flags.shape.spec()), {.threads = flags.threads});
  app::LoadedModel model = app::load_any_model_file(file, asked_of(file, flags.shape.spec()));
  return {"LibTorch", model.spec, model.forward, nullptr, model.graph};
}

DistillJob open(const DistillFlags& flags) {
  DistillJob job;
  for (const std::string& file : flags.teachers) job.teachers.push_back(open_teacher(flags, file));
  expect_nameless_file(flags);
  const app::ModelSpec* like = job.teachers.empty() ? nullptr : &job.teachers.front().spec;
  job.data = app::load_data(flags.data, flags.length, like);
  job.spec = like != nullptr ? *like : job.data.spec;
  job.spec.name = flags.student;
  job.spec.network = flags.shape.network;
  return job;
}

app::DistillRun distill(const DistillFlags& flags, DistillJob& job, const app::DistillRecipe& recipe) {
  StageBars bars;
  const uint64_t seed = recipe.training.options.seed;
  const auto sources = [&](const std::vector<std::string>& names) {
    std::vector<app::StudentSource> all;
    for (const std::string& name : names) all.push_back(source_of(name, job.spec, seed + 1 + all.size()));
    return all;
  };
  app::DistillRequest request;
  request.scheme = flags.scheme();
  request.teachers = job.teachers;
  request.teacher_weights = flags.teacher_weights;
  request.teacher_precision = as_usage([&] { return amp::PrecisionName(flags.teacher_precision); });
  request.teacher_cache = flags.cache;
  for (const std::string& file : flags.teachers)
    request.teacher_marks += std::to_string(app::checksum_of(file)) + " ";
  request.teacher_marks += flags.data + " " + flags.unlabelled;
  request.student = source_of(flags.student, job.spec, seed);
  request.spec = job.spec;
  request.assistants = sources(flags.assistants);
  request.generations = flags.generations;
  request.peers = sources(flags.peers);
  request.peer_weight = flags.peer_weight;
  request.exits = flags.exits;
  request.exit_features = flags.exit_features;
  request.init = flags.init;
  request.init_layers = flags.init_layers;
  request.recipe = recipe;
  request.train_batches = [&](const train::StreamOptions& options) {
    return job.data.stream(io::Split::train, options);
  };
  std::optional<app::TaskData> unlabelled;
  if (!flags.unlabelled.empty()) {
    unlabelled = app::load_unlabelled(flags.unlabelled, job.spec);
    request.unlabelled_batches = [&](const train::StreamOptions& options) {
      return unlabelled->stream(io::Split::train, options);
    };
  }
  if (flags.test > 0) {
    request.test_batches = [&] {
      const int64_t batch = job.spec.kind == app::NetworkKind::image ? 250 : 64;
      return app::first_samples(job.data.stream(io::Split::test, {.batch = batch}), flags.test);
    };
  }
  request.unit = job.data.unit;
  request.labelled = flags.labels;
  if (flags.hard_labels > 0) request.hard_labels = flags.hard_labels;
  request.top = flags.top;
  request.input_noise = flags.noise;
  request.alone = !flags.no_alone;
  request.latency = !flags.no_latency;
  request.threads = flags.threads;
  request.saving = flags.checkpointing.saving();
  request.progress = [&](const app::Stage& stage) { bars.show(stage); };
  job.spec.name = request.student.name;  // of what is written
  return app::run_distill(request);
}

void write_files(const DistillFlags& flags, const DistillJob& job, const app::DistillRecipe& recipe,
                 app::DistillRun& run) {
  if (!flags.out.empty()) app::save_model_file(flags.out, *run.student.module, job.spec);
  write_text(flags.save_recipe, recipe.to_json());
  if (flags.report.empty()) return;
  const nlohmann::json fields = nlohmann::json::parse(recipe.to_json());
  for (const auto& [name, value] : fields.at(app::kTrainingField.name).items())
    run.outcome.settings.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  const report::Report report = app::distill_report(run.outcome);
  report.write_json(std::filesystem::path(flags.report) / "report.json");
  report.write_html(std::filesystem::path(flags.report) / "report.html");
}

void show(const DistillFlags& flags, const app::DistillRun& run) {
  const report::Table table = app::learners_table(run.outcome);
  if (flags.json) {
    nlohmann::json json{{"networks", to_json(table)}, {"notes", run.outcome.notes}};
    if (!flags.out.empty()) json["file"] = flags.out;
    return print_json(json);
  }
  print_table(table);
  for (const std::string& note : run.outcome.notes) std::cout << printable(note) << '\n';
  if (!flags.out.empty()) std::cout << "wrote " << flags.out << ": " << file_bytes(flags.out) << " bytes\n";
}

void run(const DistillFlags& flags) {
  flags.check();
  const app::DistillRecipe recipe = make_recipe(flags);
  amp::prepare_training_memory();
  amp::prepare_training_products();
  apply(flags);
  const auto threads = adaptive_threads(flags);
  DistillJob job = open(flags);
  app::DistillRun made = distill(flags, job, recipe);
  write_files(flags, job, recipe, made);
  show(flags, made);
}

void add_distill(CLI::App& app) {
  auto flags = std::make_shared<DistillFlags>();
  CLI::App* command = add_command(
      app, "distill", "Train a small network by a large one, by its peers or by itself",
      "  ulp distill teacher.safetensors --student lenet5 --out student.safetensors\n"
      "  ulp distill teacher.safetensors --student resnet8 --loss kd:T=4,alpha=0.1 --loss at:1000@layer2 "
      "--report .\n"
      "  ulp distill teacher.ulp --student lenet5 --labels 0.1 --hard-labels 0.9 --out student.safetensors\n"
      "  ulp distill --student resnet8 --peer resnet14 --out student.safetensors\n",
      *flags);
  say_threads_follow(*command);
  add_distill_flags(*command, *flags);
  command->callback([flags] { run(*flags); });
}

const Command kDistillCommand("distill", add_distill);

}  // namespace

}  // namespace ulp::cli
