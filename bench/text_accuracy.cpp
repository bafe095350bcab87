// Trains small networks on generated text and prints what dynamic and static int8 cost them, as Markdown. `static`: the second
// table alone.
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstring>

#include "tests/train/text_proof.h"
#include "ulp/models/bert.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"

namespace {

using namespace ulp;
using namespace ulp::test;

void print_row(const char* network, const TextProof& proof) {
  std::printf("| %s | %.4f, %.2f %% | %.4f, %.2f %% | %.4f, %.2f %% | %.2f |\n", network, proof.libtorch.loss,
              100 * proof.libtorch.accuracy, proof.engine.loss, 100 * proof.engine.accuracy,
              proof.dynamic.loss, 100 * proof.dynamic.accuracy, proof.file_int8 / proof.file_f32);
  std::fflush(stdout);
}

void lstm_language_model(int64_t layers) {
  torch::manual_seed(1);
  const auto model = models::make_lstm({.embedding = 64, .hidden = 128, .layers = layers});
  train_text(*model, running_text(20000, 64, 1), 600, 5e-3);
  print_row(layers == 1 ? "lstm, next byte" : "lstm of 2 layers, next byte",
            prove_text(model, running_text(1000, 64, 2)));
}

void lstm_classifier() {
  torch::manual_seed(3);
  const auto model = models::make_lstm(
      {.embedding = 64, .hidden = 128, .num_classes = Grammar::kTopics, .padding_token = io::kTextPadding});
  train_text(*model, labelled_sentences(20000, 64, 3), 400, 5e-3);
  print_row("lstm, topic", prove_text(model, labelled_sentences(2000, 64, 4)));
}

/// A tiny network that tells the topic of a sentence.
template <typename Config>
Config tiny_classifier() {
  Config config = Config::tiny();
  config.num_classes = Grammar::kTopics;
  config.padding_token = io::kTextPadding;
  return config;
}

void bert_classifier() {
  torch::manual_seed(2);
  const auto model = models::make_bert(tiny_classifier<models::BertConfig>());
  train_text(*model, labelled_sentences(20000, 64, 3), 400, 1e-3);
  print_row("bert (tiny), topic", prove_text(model, labelled_sentences(2000, 64, 4)));
}

/// Statically: with attention on codes, as x86_int8 has it, and with attention in f32.
void print_static_row(const char* network, const std::shared_ptr<models::TextModel>& model,
                      const io::TextDataset& seen, const io::TextDataset& test) {
  const torch::NoGradGuard no_grad;
  const auto captured = capture(model, {test.gather(std::vector<int64_t>{0, 1}).tokens});
  captured->eval();
  const quant::Recipe codes = quant::Recipe::x86_int8();
  quant::Recipe floats = codes;
  std::erase(floats.ops, "scaled_dot_product_attention");
  runtime::Engine engine(lower(*captured), {.threads = 1});
  const TextScore f32 =
      score_text([&](const at::Tensor& tokens) { return run_engine(engine, tokens, 64); }, test);
  const TextScore with = score_static(captured, codes, seen, test);
  const TextScore without = score_static(captured, floats, seen, test);
  std::printf("| %s | %.4f, %.2f %% | %.4f, %.2f %% | %.4f, %.2f %% |\n", network, f32.loss,
              100 * f32.accuracy, without.loss, 100 * without.accuracy, with.loss, 100 * with.accuracy);
  std::fflush(stdout);
}

/// `make` gives the network for a seed; three seeds each.
template <typename Make>
void static_rows(const char* network, Make make, const io::TextDataset& seen, const io::TextDataset& test,
                 int64_t steps) {
  for (const uint64_t seed : {1, 2, 3}) {
    torch::manual_seed(seed);
    const std::shared_ptr<models::TextModel> model = make();
    train_text(*model, seen, steps, 1e-3);
    print_static_row((network + std::string(", seed ") + std::to_string(seed)).c_str(), model, seen, test);
  }
}

void static_table() {
  std::printf(
      "\n| network and task | engine fp32 | static int8, attention in f32 | static int8, attention on codes "
      "|\n");
  std::printf("|---|---|---|---|\n");
  const auto sentences = labelled_sentences(20000, 64, 3), tests = labelled_sentences(2000, 64, 4);
  static_rows(
      "bert (tiny), topic", [] { return models::make_bert(tiny_classifier<models::BertConfig>()); },
      sentences, tests, 400);
  static_rows(
      "distilbert (tiny), topic",
      [] { return models::make_distilbert(tiny_classifier<models::DistilBertConfig>()); }, sentences, tests,
      400);
  static_rows(
      "gpt2 (tiny), next byte", [] { return models::make_gpt2(models::Gpt2Config::tiny()); },
      running_text(20000, 64, 1), running_text(1000, 64, 2), 600);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (argc == 2 && std::strcmp(argv[1], "static") == 0) {
    static_table();
    return 0;
  }
  std::printf(
      "| network and task | LibTorch fp32: loss, accuracy | engine fp32 | engine dynamic int8 | weights, "
      "int8 / fp32 |\n");
  std::printf("|---|---|---|---|---|\n");
  lstm_language_model(1);
  lstm_language_model(2);
  lstm_classifier();
  bert_classifier();
  static_table();
}
