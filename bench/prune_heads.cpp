// What half of the attention heads of a small BERT are worth, on generated text. Prints Markdown.
//
//   prune_heads [seeds] [steps of training] [steps of training on]
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/train/text_proof.h"
#include "ulp/models/bert.h"
#include "ulp/prune/structured/importance.h"
#include "ulp/prune/structured/remove_units.h"
#include "ulp/prune/structured/select.h"

namespace {

using namespace ulp;
using namespace ulp::test;

constexpr int64_t kLength = 64;

/// Gradients of the mean loss over 512 sentences.
void compute_gradients(graph::GraphModule& module, const io::TextDataset& data) {
  module.zero_grad();
  for (int64_t i = 0; i < 16; ++i) {
    std::vector<int64_t> index(32);
    for (int64_t k = 0; k < 32; ++k) index[static_cast<size_t>(k)] = 32 * i + k;
    const io::TextBatch batch = data.gather(index);
    (torch::nn::functional::cross_entropy(module.forward(batch.tokens), batch.targets.flatten()) / 16)
        .backward();
  }
}

/// Half of the heads of each layer: those with the least |w g|.
prune::Removals half_of_the_heads(const graph::GraphModule& module, const prune::Groups& groups) {
  prune::Importance scores = prune::importance(module, groups, {.criterion = prune::Criterion::taylor});
  prune::Removals removals;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    std::vector<int64_t>& gone = removals.units.emplace_back();
    if (groups.groups[g].name().find("attention.self") == std::string::npos) continue;
    for (int64_t u = 0; u < groups.groups[g].units; ++u) gone.push_back(u);
    std::ranges::stable_sort(gone, {}, [&](int64_t u) { return scores[g][static_cast<size_t>(u)]; });
    gone.resize(gone.size() / 2);
  }
  return removals;
}

double percent(graph::GraphModule& module, const io::TextDataset& test) {
  module.eval();
  return 100 * score_text([&](const at::Tensor& tokens) { return module.forward(tokens); }, test).accuracy;
}

/// Least of 9 rounds of the fp32 engine, milliseconds for one sentence.
double milliseconds(graph::GraphModule& module) {
  runtime::Engine engine(lower(module), {.threads = 1});
  const at::Tensor tokens = torch::randint(1, 255, {1, kLength});
  double least = 1e9;
  for (int round = 0; round < 9; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) run_engine(engine, tokens, 1);
    least = std::min(
        least,
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / 50);
  }
  return least;
}

struct Row {
  double dense = 0, cut = 0, tuned = 0, dense_ms = 0, cut_ms = 0;
};

Row run(int64_t seed, int64_t steps, int64_t more) {
  torch::manual_seed(seed);
  models::BertConfig config = models::BertConfig::tiny();
  config.heads = 4;
  config.num_classes = Grammar::kTopics;
  config.padding_token = io::kTextPadding;
  const io::TextDataset data = labelled_sentences(20000, kLength, 3),
                        test = labelled_sentences(4000, kLength, 4);
  const auto model = models::make_bert(config);
  const auto module = capture(*model, {data.gather(std::vector<int64_t>{0, 1}).tokens});
  train_text(*module, data, steps, 1e-3);
  Row row{.dense = percent(*module, test), .dense_ms = milliseconds(*module)};
  compute_gradients(*module, data);
  const prune::Groups groups = prune::groups(module->graph());
  const auto small = prune::remove_units(*module, groups, half_of_the_heads(*module, groups)).module;
  small->zero_grad();
  row.cut = percent(*small, test);
  train_text(*small, data, more, 3e-4);
  row.tuned = percent(*small, test);
  row.cut_ms = milliseconds(*small);
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const auto word = [&](int i, int64_t otherwise) { return argc > i ? std::stoll(argv[i]) : otherwise; };
  const int64_t seeds = word(1, 3), steps = word(2, 400), more = word(3, 100);
  std::printf(
      "| seed | dense | half of the heads | trained on | against dense | latency, ms | cut, ms |\n"
      "|---:|---:|---:|---:|---:|---:|---:|\n");
  double sum = 0;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const Row row = run(seed, steps, more);
    sum += row.tuned - row.dense;
    std::printf("| %lld | %.2f %% | %.2f %% | %.2f %% | %+.2f | %.3f | %.3f |\n",
                static_cast<long long>(seed), row.dense, row.cut, row.tuned, row.tuned - row.dense,
                row.dense_ms, row.cut_ms);
    std::fflush(stdout);
  }
  std::printf("| mean | | | | %+.2f | | |\n", sum / static_cast<double>(seeds));
}
