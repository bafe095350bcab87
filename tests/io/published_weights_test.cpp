// Published names: prefixes, older conventions, tied and turned matrices, shards, and what is refused.
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "temp_folder.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/models/bert.h"
#include "ulp/models/decoder.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/registry.h"

namespace {

using namespace ulp::io;
namespace models = ulp::models;

class Published : public TempFolder {};

std::shared_ptr<models::TextModel> small_bert() {
  return models::make_bert(
      {.vocab_size = 20, .max_length = 8, .width = 8, .layers = 2, .heads = 2, .intermediate = 12});
}
std::shared_ptr<models::TextModel> small_distilbert() {
  return models::make_distilbert(
      {.vocab_size = 20, .max_length = 8, .width = 8, .layers = 2, .heads = 2, .intermediate = 12});
}
std::shared_ptr<models::TextModel> small_gpt2() {
  return models::make_gpt2({.vocab_size = 20, .max_length = 8, .width = 8, .layers = 2, .heads = 2});
}

std::shared_ptr<models::TextModel> small_llama(bool tied) {
  return models::make_decoder({.vocab_size = 20,
                               .max_length = 8,
                               .width = 8,
                               .layers = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_size = 4,
                               .intermediate = 12,
                               .tied_embeddings = tied});
}

/// Random values under the model's names.
NamedTensors random_state(const torch::nn::Module& model) {
  NamedTensors state;
  for (const auto& [name, tensor] : named_state(model))
    state.emplace_back(name, torch::randn(tensor.sizes()));
  return state;
}

void expect_state(const torch::nn::Module& model, const NamedTensors& expected) {
  const NamedTensors state = named_state(model);
  ASSERT_EQ(state.size(), expected.size());
  for (size_t i = 0; i < state.size(); ++i)
    EXPECT_TRUE(torch::equal(state[i].second, expected[i].second)) << state[i].first;
}

NamedTensors renamed(const NamedTensors& tensors, const std::function<std::string(std::string)>& name) {
  NamedTensors made;
  for (const auto& [own, tensor] : tensors) made.emplace_back(name(own), tensor);
  return made;
}

std::string without(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

TEST_F(Published, BertWithOldLayerNormsAndWithoutPrefix) {
  torch::manual_seed(1);
  const auto model = small_bert();
  const NamedTensors state = random_state(*model);
  NamedTensors file = renamed(state, [](std::string name) {
    name = without("bert.", name);
    if (name.ends_with("LayerNorm.weight")) return name.substr(0, name.size() - 6) + "gamma";
    if (name.ends_with("LayerNorm.bias")) return name.substr(0, name.size() - 4) + "beta";
    return name;
  });
  file.emplace_back("embeddings.position_ids", torch::arange(8).unsqueeze(0));
  file.emplace_back("fit_dense.weight", torch::ones({8, 8}));
  file.emplace_back("fit_denses.0.bias", torch::ones({8}));
  save_tensors(at("bert.safetensors"), file);
  const PretrainedReport report = load_pretrained(at("bert.safetensors"), *model);
  EXPECT_EQ(report.ignored,
            (std::vector<std::string>{"embeddings.position_ids", "fit_dense.weight", "fit_denses.0.bias"}));
  EXPECT_TRUE(report.differences.ok()) << report.text();
  EXPECT_FALSE(report.transposed);
  EXPECT_EQ(std::count(report.renamed.begin(), report.renamed.end(),
                       "embeddings.LayerNorm.gamma -> bert.embeddings.LayerNorm.weight"),
            1);
  expect_state(*model, state);
}

TEST_F(Published, ANewClassifierOnPublishedLayersIsReported) {
  torch::manual_seed(2);
  const auto model = small_bert();
  NamedTensors file = random_state(*model);
  std::erase_if(file, [](const auto& one) { return one.first.starts_with("classifier"); });
  file.emplace_back("cls.predictions.bias", torch::zeros({20}));
  file[0].second = torch::zeros({21, 8});
  save_tensors(at("bert.safetensors"), file);
  const at::Tensor before = named_state(*model)[0].second.clone();
  expect_file_error("missing: classifier.weight, classifier.bias; unexpected: cls.predictions.bias",
                    [&] { load_pretrained(at("bert.safetensors"), *model); });
  EXPECT_TRUE(torch::equal(named_state(*model)[0].second, before)) << "a refused file changed the model";
  const PretrainedReport report = load_pretrained(at("bert.safetensors"), *model, /*strict=*/false);
  EXPECT_EQ(report.differences.missing, (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_EQ(report.differences.unexpected, std::vector<std::string>{"cls.predictions.bias"});
  ASSERT_EQ(report.differences.mismatched.size(), 1U);
  EXPECT_NE(report.differences.mismatched[0].find("(20, 8)"), std::string::npos);
  EXPECT_NE(report.differences.mismatched[0].find("got (21, 8)"), std::string::npos);
  EXPECT_TRUE(torch::equal(named_state(*model)[1].second, file[1].second)) << "what fits is copied";
}

TEST_F(Published, DistilBertWithEitherSpelling) {
  torch::manual_seed(3);
  for (const std::string prefix : {"", "distilbert.", "module.distilbert."}) {
    const auto model = small_distilbert();
    const NamedTensors state = random_state(*model);
    save_tensors(at("distilbert.safetensors"), renamed(state, [&](std::string name) {
                   const std::string bare = without("distilbert.", name);
                   return bare == name ? name : prefix + bare;
                 }));
    EXPECT_TRUE(load_pretrained(at("distilbert.safetensors"), *model).differences.ok());
    expect_state(*model, state);
  }
}

TEST_F(Published, Gpt2WithPrefixMasksAndTiedHead) {
  torch::manual_seed(4);
  const auto model = small_gpt2();
  const NamedTensors state = random_state(*model);
  for (const std::string of : {"", "module."}) {  // of DataParallel
    NamedTensors file = renamed(state, [&](std::string name) { return of + "transformer." + name; });
    file.emplace_back(of + "lm_head.weight", file[0].second.clone());
    file.emplace_back(of + "transformer.h.0.attn.bias", torch::ones({1, 1, 8, 8}));
    file.emplace_back(of + "transformer.h.0.attn.masked_bias", torch::tensor(-1e4));
    save_tensors(at("gpt2.safetensors"), file);
    const PretrainedReport report = load_pretrained(at("gpt2.safetensors"), *model);
    EXPECT_EQ(report.ignored.size(), 3U);
    expect_state(*model, state);
    file[file.size() - 3].second[0][0] = 100;  // a head of its own
    save_tensors(at("untied.safetensors"), file);
    expect_file_error("unexpected: " + of + "lm_head.weight",
                      [&] { load_pretrained(at("untied.safetensors"), *model); });
  }
}

TEST_F(Published, DecodersWithAndWithoutPrefixAndHead) {
  torch::manual_seed(4);
  const auto tied = small_llama(true), apart = small_llama(false);
  NamedTensors state = random_state(*tied),
               file = renamed(state, [](const std::string&name) { return without("model.", name); });
  file.emplace_back("layers.0.self_attn.rotary_emb.inv_freq", torch::ones({2}));
  save_tensors(at("base.safetensors"), file, {});
  EXPECT_EQ(load_pretrained(at("base.safetensors"), *tied).ignored.size(), 1U);
  expect_state(*tied, state);
  expect_file_error("missing: lm_head.weight", [&] { load_pretrained(at("base.safetensors"), *apart); });
  // A head that repeats the table, and one of its own.
  file.emplace_back("lm_head.weight", file.front().second.clone());
  save_tensors(at("copy.safetensors"), file, {});
  EXPECT_EQ(load_pretrained(at("copy.safetensors"), *tied).ignored.size(), 2U);
  EXPECT_TRUE(load_pretrained(at("copy.safetensors"), *apart).differences.ok());
  file.back().second = torch::randn({20, 8});
  save_tensors(at("own.safetensors"), file, {});
  expect_file_error("unexpected: lm_head.weight", [&] { load_pretrained(at("own.safetensors"), *tied); });
  // Files in bf16 keep their values.
  for (auto& [name, tensor] : state) tensor = tensor.to(torch::kBFloat16);
  save_tensors(at("half.safetensors"), state, {});
  EXPECT_TRUE(load_pretrained(at("half.safetensors"), *tied).differences.ok());
  for (auto& [name, tensor] : state) tensor = tensor.to(torch::kFloat);
  expect_state(*tied, state);
}

TEST_F(Published, Gpt2WhoseMatricesAreThoseOfLinearLayers) {
  torch::manual_seed(5);
  const auto model = small_gpt2();
  const NamedTensors state = random_state(*model);
  NamedTensors file = state;
  for (auto& [name, tensor] : file)
    if (name.find(".c_") != std::string::npos && tensor.dim() == 2) tensor = tensor.t().contiguous();
  save_tensors(at("linear.safetensors"), file);
  EXPECT_TRUE(load_pretrained(at("linear.safetensors"), *model).transposed);
  expect_state(*model, state);  // the square ones, too
}

TEST_F(Published, CountersOfBatchNormsMayBeMissing) {
  torch::manual_seed(6);
  const auto model = models::make_model("resnet18", {.in_channels = 3, .num_classes = 4, .image_size = 64});
  NamedTensors file;
  for (const auto& [name, tensor] : named_state(*model))
    if (!name.ends_with("num_batches_tracked")) file.emplace_back(name, torch::randn(tensor.sizes()));
  save_tensors(at("resnet.safetensors"), file);
  EXPECT_TRUE(load_pretrained(at("resnet.safetensors"), *model).differences.ok());
  EXPECT_TRUE(torch::equal(named_state(*model)[0].second, file[0].second));
}

TEST_F(Published, ShardsStandInTheFolderOfTheirIndex) {
  torch::manual_seed(7);
  const auto model = small_bert();
  const NamedTensors state = random_state(*model);
  const auto half = state.begin() + static_cast<std::ptrdiff_t>(state.size() / 2);
  save_tensors(at("a.safetensors"), {state.begin(), half});
  save_tensors(at("b.safetensors"), {half, state.end()});
  nlohmann::json index{{"metadata", {{"total_size", 1}}}, {"weight_map", nlohmann::json::object()}};
  for (size_t i = 0; i < state.size(); ++i)
    index["weight_map"][state[i].first] = i < state.size() / 2 ? "a.safetensors" : "b.safetensors";
  write("model.safetensors.index.json", index.dump());
  EXPECT_TRUE(load_pretrained(folder_, *model).differences.ok());
  expect_state(*model, state);
  const auto refuse = [&](const std::string& what, const nlohmann::json& changed) {
    write("model.safetensors.index.json", changed.dump());
    expect_file_error(what, [&] { load_pretrained_tensors(at("model.safetensors.index.json")); });
  };
  for (const char* const path :
       {"../a.safetensors", "/etc/passwd", "..", "", "x/a.safetensors", "x\\a.safetensors"})
    refuse("shards beside", {{"weight_map", {{"w", path}}}});
  refuse("a file", {{"weight_map", {{"w", "none.safetensors"}}}});
  refuse("the tensor 'w' in the shard", {{"weight_map", {{"w", "a.safetensors"}}}});
  refuse("index of shards", {{"weight_map", {{"w", 3}}}});
  refuse("index of shards", nlohmann::json::array());
  refuse("index of shards", {{"metadata", 1}});
}

TEST_F(Published, TwoNamesOfOneTensorAreRefused) {
  const auto model = small_gpt2();
  NamedTensors file = random_state(*model);
  file.emplace_back("transformer.wte.weight", torch::zeros({20, 8}));
  save_tensors(at("twice.safetensors"), file);
  expect_file_error("'wte.weight' and 'transformer.wte.weight'",
                    [&] { load_pretrained(at("twice.safetensors"), *model); });
}

TEST_F(Published, PickledWeightsAreRefusedWithTheWayToConvertThem) {
  const auto model = small_gpt2();
  for (const std::string& start : {std::string("PK\x03\x04rest"), std::string("\x80\x02}q\x00", 5)}) {
    write("pytorch_model.bin", start);
    expect_file_error("safetensors.torch.save_file",
                      [&] { load_pretrained(at("pytorch_model.bin"), *model); });
    expect_file_error("safetensors.torch.save_file", [&] { load_pretrained(folder_, *model); });
  }
  expect_file_error("expected a file", [&] { load_pretrained(at("nowhere"), *model); });
  std::filesystem::remove(at("pytorch_model.bin"));
  expect_file_error("got neither", [&] { load_pretrained(folder_, *model); });
}

TEST_F(Published, WhatIsWrittenIsReadAgain) {
  torch::manual_seed(8);
  const auto model = small_gpt2(), other = small_gpt2();
  save_pretrained(at("out.safetensors"), *model);
  EXPECT_EQ(load_metadata(at("out.safetensors")).at("format"), "pt");
  EXPECT_TRUE(load_pretrained(at("out.safetensors"), *other).differences.ok());
  expect_state(*other, named_state(*model));
}

}  // namespace
