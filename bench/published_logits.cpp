// What bench/peers/published_check.py compares with transformers: a small network of published names on published weights.
//   published_logits bert|distilbert|gpt2 WEIGHTS TOKENS.safetensors OUT.safetensors [WEIGHTS-AS-WRITTEN.safetensors]
// TOKENS holds "tokens" (int64), OUT gets "logits".
#include <torch/torch.h>

#include <iostream>

#include "ulp/base/error.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/models/bert.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"

namespace {

using namespace ulp::models;

/// The sizes are those of the script.
template <typename Config>
Config small_encoder() {
  return {.vocab_size = 99,
          .max_length = 40,
          .width = 24,
          .layers = 3,
          .heads = 4,
          .intermediate = 50,
          .num_classes = 3,
          .padding_token = 0};
}

std::shared_ptr<TextModel> make(const std::string& name) {
  if (name == "bert") return make_bert(small_encoder<BertConfig>());
  if (name == "distilbert") return make_distilbert(small_encoder<DistilBertConfig>());
  if (name == "gpt2")
    return make_gpt2({.vocab_size = 99, .max_length = 40, .width = 24, .layers = 3, .heads = 4});
  ulp::fail("published_logits", "expected bert, distilbert or gpt2, got '", name, "'");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) {
    std::cerr << "usage: published_logits bert|distilbert|gpt2 WEIGHTS TOKENS OUT [WRITTEN]\n";
    return 2;
  }
  const auto model = make(argv[1]);
  const auto report = ulp::io::load_pretrained(argv[2], *model);
  std::cout << report.renamed.size() << " renamed, " << report.ignored.size() << " ignored"
            << (report.transposed ? ", turned" : "") << '\n';
  model->eval();
  const torch::NoGradGuard no_grad;
  ulp::io::save_tensors(argv[4],
                        {{"logits", model->forward(*ulp::io::load_tensors(argv[3]).find("tokens"))}});
  if (argc > 5) ulp::io::save_pretrained(argv[5], *model);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
