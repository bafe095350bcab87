// Trains small networks on generated text and prints what dynamic int8 costs them, as Markdown.
#include <ATen/Parallel.h>

#include <cstdio>

#include "tests/train/text_proof.h"
#include "ulp/models/bert.h"
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

void bert_classifier() {
  torch::manual_seed(2);
  models::BertConfig config = models::BertConfig::tiny();
  config.num_classes = Grammar::kTopics;
  config.padding_token = io::kTextPadding;
  const auto model = models::make_bert(config);
  train_text(*model, labelled_sentences(20000, 64, 3), 400, 1e-3);
  print_row("bert (tiny), topic", prove_text(model, labelled_sentences(2000, 64, 4)));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  std::printf(
      "| network and task | LibTorch fp32: loss, accuracy | engine fp32 | engine dynamic int8 | weights, "
      "int8 / fp32 |\n");
  std::printf("|---|---|---|---|---|\n");
  lstm_language_model(1);
  lstm_language_model(2);
  lstm_classifier();
  bert_classifier();
}
