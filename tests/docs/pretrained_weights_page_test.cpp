// The sample of docs/pretrained-weights.md: published layers under a new classifier.
#include <gtest/gtest.h>

#include <iostream>

#include "in_temporary_folder.h"
#include "pretrained-weights/load.includes.h"

namespace {

TEST(PublishedWeightsPage, ANewClassifierStandsOnPublishedLayers) {
  const ulp::docs::InTemporaryFolder here;
  const ulp::models::BertConfig config{
      .vocab_size = 20, .max_length = 8, .width = 8, .layers = 1, .heads = 2, .intermediate = 8};
  const auto published = ulp::models::make_bert(config);
  ulp::io::NamedTensors trunk = ulp::io::named_state(*published);
  std::erase_if(trunk, [](const auto& one) { return one.first.starts_with("classifier"); });
  ulp::io::save_tensors("model.safetensors", trunk);
#include "pretrained-weights/load.inc"
  EXPECT_EQ(report.differences.missing.size(), 2U);
  EXPECT_TRUE(report.differences.unexpected.empty());
}

}  // namespace
