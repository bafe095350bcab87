// Trained on text for a few seconds, networks lose little when their layers quantize as they run.
#include "text_proof.h"

#include <gtest/gtest.h>

#include "ulp/models/bert.h"
#include "ulp/models/lstm.h"

namespace ulp::test {
namespace {

/// What quantization may cost: float engines give LibTorch's score to rounding, int8 ones one near it.
void expect_near(const TextProof& proof, double loss, double accuracy) {
  const auto record = [](const std::string& name, const TextScore& score) {
    testing::Test::RecordProperty(name,
                                  std::to_string(score.loss) + " nats, " + std::to_string(score.accuracy));
  };
  record("libtorch", proof.libtorch);
  record("dynamic", proof.dynamic);
  EXPECT_NEAR(proof.engine.loss, proof.libtorch.loss, 1e-4);
  EXPECT_NEAR(proof.engine.accuracy, proof.libtorch.accuracy, 1e-3);
  EXPECT_NEAR(proof.dynamic.loss, proof.engine.loss, loss);
  EXPECT_NE(proof.dynamic.loss, proof.engine.loss) << "it is quantized";
  EXPECT_NEAR(proof.dynamic.accuracy, proof.engine.accuracy, accuracy);
}

TEST(TextProof, AnLstmPredictsBytesAsWellInInt8) {
  torch::manual_seed(1);
  const auto model = models::make_lstm({.embedding = 24, .hidden = 64});
  train_text(*model, running_text(2000, 40, 1), 120, 1e-2);
  const TextProof proof = prove_text(model, running_text(100, 40, 2));
  EXPECT_LT(proof.libtorch.loss, 1.2) << "it has learned";
  expect_near(proof, 0.01, 0.005);
}

TEST(TextProof, AnLstmNamesTopicsAsWellInInt8) {
  torch::manual_seed(3);
  const auto model = models::make_lstm(
      {.embedding = 24, .hidden = 48, .num_classes = Grammar::kTopics, .padding_token = io::kTextPadding});
  train_text(*model, labelled_sentences(2000, 48, 3), 120, 1e-2);
  const TextProof proof = prove_text(model, labelled_sentences(400, 48, 4));
  EXPECT_GT(proof.libtorch.accuracy, 0.5) << "it has learned";
  expect_near(proof, 0.02, 0.015);
}

TEST(TextProof, ABertNamesTopicsAsWellInInt8) {
  torch::manual_seed(2);
  models::BertConfig config = models::BertConfig::tiny();
  config.num_classes = Grammar::kTopics;
  config.padding_token = io::kTextPadding;
  config.width = 32;
  config.heads = 2;
  config.intermediate = 64;
  const auto model = models::make_bert(config);
  train_text(*model, labelled_sentences(2000, 32, 3), 250, 4e-3);
  const TextProof proof = prove_text(model, labelled_sentences(400, 32, 4));
  EXPECT_GT(proof.libtorch.accuracy, 0.5) << "it has learned";
  expect_near(proof, 0.02, 0.015);
}

}  // namespace
}  // namespace ulp::test
