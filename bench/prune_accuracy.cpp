// What pruning costs in accuracy on Fashion-MNIST: rounds with rewinding, and Deep Compression. Prints Markdown rows.
//
//   prune_accuracy rounds network=lenet300 rewind=learning_rate rounds=10 epochs=8 seeds=3
//   prune_accuracy deep epochs=8 seeds=3
//
// Other words of `rounds`: step=K (rewind=weights), images=N (the first N training images), optimizer, lr, batch, schedule,
// scope=layer|global, share (of what remains, each round), folder=F (keeps the rounds; a run that ended goes on).
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "bench/words.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/io/dataset.h"
#include "ulp/models/mlp.h"
#include "ulp/models/registry.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/prune/storage/deep_compression.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/tickets.h"

namespace {

using namespace ulp;
namespace fs = std::filesystem;
using bench::Given;

template <typename E>
E word_in(const std::string& word) {
  for (const auto& one : ulp::EnumNames<E>::list) {
    if (word == one.text) return one.value;
  }
  fail("prune_accuracy", "expected a known word, got ", word);
}

struct Data {
  io::ImageDataset train = io::load_fashion_mnist(io::Split::train),
                   test = io::load_fashion_mnist(io::Split::test);
};

std::shared_ptr<graph::GraphModule> make_network(const std::string& name, int64_t seed) {
  torch::manual_seed(seed);
  const auto model = name == "lenet300" ? models::make_mlp({.hidden = {300, 100}})
                                        : models::make_model(name, {.in_channels = 1, .image_size = 28});
  models::to_channels_last(*model);
  return capture(model, {torch::zeros({2, 1, 28, 28})});
}

/// Percent right of the test images, and the mean loss.
train::Accuracy accuracy_of(graph::GraphModule& model, const io::ImageDataset& test) {
  model.eval();
  const torch::NoGradGuard no_grad;
  return train::evaluate([&](const at::Tensor& images) { return model.forward(images); }, test, 500);
}

struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  for (const double value : values) spread.mean += value / static_cast<double>(values.size());
  for (const double value : values) spread.deviation += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1)
    spread.deviation = std::sqrt(spread.deviation / static_cast<double>(values.size() - 1));
  return spread;
}

train::TrainOptions training(Given& words, const std::string& optimizer, double rate) {
  train::TrainOptions options;
  options.optimizer = word_in<train::Optimizer>(words.text("optimizer", optimizer));
  options.epochs = words.integer("epochs", 8);
  options.batch = words.integer("batch", 100);
  options.learning_rate = words.number("lr", rate);
  options.weight_decay = words.number("decay", optimizer == "adam" ? 0 : 5e-4);
  options.schedule = word_in<amp::Schedule>(words.text("schedule", "triangle"));
  options.augment = words.integer("augment", 0) != 0;
  return options;
}

void run_rounds(Given& words) {
  const std::string network = words.text("network", "lenet300"),
                    rewind = words.text("rewind", "learning_rate");
  const bool dense = network == "lenet300";
  train::TicketOptions options{.rounds = words.integer("rounds", 10),
                               .rewind = word_in<train::Rewind>(rewind),
                               .step = words.integer("step", 0),
                               .fine_tune_rate = words.number("fine_tune_rate", 0.001),
                               .training = training(words, dense ? "adam" : "sgd", dense ? 1.2e-3 : 0.1)};
  options.recipe.amount = prune::Amount::share(words.number("share", 0.2));
  options.recipe.scope = word_in<prune::Scope>(words.text("scope", "global"));
  if (options.recipe.scope == prune::Scope::layer &&
      dense)  // the output at half the rate, as Frankle and Carbin
    options.recipe.overrides = {{"fc3", prune::Amount::share(words.number("share", 0.2) / 2)}};
  const int64_t seeds = words.integer("seeds", 3), images = words.integer("images", 60000);
  const std::string folder = words.text("folder", "");
  words.expect_all_used();
  Data data;
  data.train = io::slice(data.train, 0, std::min(images, data.train.size()));
  std::vector<std::vector<double>> scores(static_cast<size_t>(options.rounds) + 1);
  std::vector<double> kept(scores.size());
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    options.training.seed = static_cast<uint64_t>(seed);
    const fs::path place =
        (folder.empty() ? fs::temp_directory_path() / "ulp_prune_accuracy" : fs::path(folder)) /
        (network + "_" + rewind + "_" + std::to_string(seed));
    if (folder.empty()) fs::remove_all(place);
    const train::TicketTask task{
        .model = make_network(network, seed),
        .batches =
            [&](uint64_t order) {
              return train::image_stream(
                  data.train,
                  train::StreamOptions::training(options.training.batch, order, options.training.augment));
            },
        .evaluate = [&](graph::GraphModule& model) { return accuracy_of(model, data.test).percent(); },
        .description = network + " on " + std::to_string(data.train.size()) + " images",
        .reinitialize =
            [&](graph::GraphModule& model) {
              const auto fresh = make_network(network, 1000 + seed);
              const torch::NoGradGuard no_grad;
              const auto from = fresh->named_parameters();
              for (auto& one : model.named_parameters()) one.value().copy_(from[one.key()]);
            }};
    for (const train::TicketRound& round : train::find_tickets(task, options, place)) {
      scores[static_cast<size_t>(round.round)].push_back(round.score);
      kept[static_cast<size_t>(round.round)] = round.kept;
      std::cerr << network << " seed " << seed << " round " << round.round << ": " << 100 * round.kept
                << " % kept, " << round.score << " %\n";
    }
    if (folder.empty()) fs::remove_all(place);
  }
  std::printf(
      "%s, %s, %lld epochs, %lld images, %lld seeds\n\n| round | kept | smaller | accuracy | against dense "
      "|\n|---:|---:|---:|---:|---:|\n",
      network.c_str(), rewind.c_str(), static_cast<long long>(options.training.epochs),
      static_cast<long long>(data.train.size()), static_cast<long long>(seeds));
  const double first = spread_of(scores[0]).mean;
  for (size_t r = 0; r < scores.size(); ++r) {
    const Spread spread = spread_of(scores[r]);
    std::printf("| %zu | %.1f %% | %.2fx | %.2f +- %.2f | %+.2f |\n", r, 100 * kept[r], 1 / kept[r],
                spread.mean, spread.deviation, spread.mean - first);
  }
}

/// Trains a graph for as long as the options say.
void train_graph(const std::shared_ptr<graph::GraphModule>& model, const io::ImageDataset& data,
                 const train::TrainOptions& options) {
  train::Trainer trainer(
      {.model = model,
       .forward = [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); },
       .batches = train::image_stream(
           data, train::StreamOptions::training(options.batch, options.seed, options.augment))},
      options);
  while (!trainer.done()) trainer.step();
  model->eval();
}

void run_deep(Given& words) {
  train::TrainOptions options = training(words, "adam", 1.2e-3);
  const int64_t seeds = words.integer("seeds", 3), rounds = words.integer("rounds", 6);
  words.expect_all_used();
  Data data;
  std::vector<double> dense, pruned, shared, ratios;
  const prune::DeepCompression recipe = prune::DeepCompression::lenet_300_100({"fc1", "fc2", "fc3"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    options.seed = static_cast<uint64_t>(seed);
    auto model = make_network("lenet300", seed);
    train_graph(model, data.train, options);
    dense.push_back(accuracy_of(*model, data.test).percent());
    // What the recipe keeps of each layer is reached by equal factors, with training in between.
    for (int64_t round = 1; round <= rounds; ++round) {
      const double way = static_cast<double>(round) / static_cast<double>(rounds);
      prune::Recipe masks{.scope = prune::Scope::layer};
      for (const std::string& name : masks.parameters_in(model->graph())) {
        const double left = 1 - recipe.amount_of(name, 2);
        masks.overrides.push_back(
            {name, prune::Amount::share(1 - std::pow(left, way), prune::AmountOf::all)});
      }
      prune::prune(*model, masks);
      train_graph(model, data.train, options);
    }
    model = prune::bake(*model);
    model->eval();
    pruned.push_back(accuracy_of(*model, data.test).percent());
    const fs::path file = fs::temp_directory_path() / "ulp_deep_compression.safetensors";
    train::TrainOptions tuning = options;
    tuning.epochs = 2;
    tuning.learning_rate = 1e-4;
    const prune::CompressedModel made =
        prune::deep_compress(model, recipe, file, [&](graph::GraphModule& clustered) {
          train_graph(std::static_pointer_cast<graph::GraphModule>(clustered.shared_from_this()), data.train,
                      tuning);
        });
    const prune::Accounting& account = made.accounting;
    // What the file holds, not what was in memory.
    const prune::CompressedFile loaded = prune::load_compressed(file);
    const torch::NoGradGuard no_grad;
    auto parameters = model->named_parameters();
    for (auto& one : parameters) one.value().copy_(*loaded.find(one.key()));
    shared.push_back(accuracy_of(*model, data.test).percent());
    ratios.push_back(account.ratio());
    if (seed == 1) {
      for (const std::vector<std::string>& row : account.rows()) {
        std::printf("|");
        for (const std::string& cell : row) std::printf(" %s |", cell.c_str());
        std::printf("\n");
      }
    }
    fs::remove(file);
  }
  const Spread a = spread_of(dense), b = spread_of(pruned), c = spread_of(shared), r = spread_of(ratios);
  std::printf(
      "\n| dense | pruned | shared and coded | against dense | smaller |\n|---:|---:|---:|---:|---:|\n| %.2f "
      "+- %.2f | %.2f +- %.2f | %.2f +- %.2f | %+.2f | %.1fx |\n",
      a.mean, a.deviation, b.mean, b.deviation, c.mean, c.deviation, c.mean - a.mean, r.mean);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    Given words("prune_accuracy", argc, argv);
    amp::prepare_training_memory();
    if (what == "rounds") return run_rounds(words), 0;
    if (what == "deep") return run_deep(words), 0;
    std::cerr << "usage: prune_accuracy rounds|deep [name=value ...]\n";
  } catch (const std::exception& error) {
    std::cerr << "prune_accuracy: " << error.what() << '\n';
  }
  return 2;
}
