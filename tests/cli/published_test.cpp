// Published weights in the tool: folders of transformers with config.json, and weights of networks that are named.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"
#include "ulp/base/safetensors.h"

namespace {

using nlohmann::json;
using ulp::SafetensorsFile;
using ulp::TensorEntry;
using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::WithLeNet5;
using ulp::test::Workshop;
using ulp::test::write_file;

/// The tensors of a file without what this library says of them, as others publish theirs, changed.
template <typename Change>
void republish(const std::filesystem::path& from, const std::filesystem::path& to, const Change& change) {
  const SafetensorsFile file(from);
  std::vector<TensorEntry> tensors = file.tensors();
  change(tensors);
  ulp::write_safetensors(to, tensors, {{"format", "pt"}});
}
void republish(const std::filesystem::path& from, const std::filesystem::path& to) {
  republish(from, to, [](const auto&) {});
}

/// Networks of `ulp train` as folders of transformers; made once.
class PublishedTool : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shop_ = new Workshop;
    std::string lines, book;
    for (int i = 0; i < 60; ++i) {
      lines += i % 2 == 0 ? "good\ta fine day\n" : "bad\tan awful hour\n";
      book += "a fine day, an awful hour\n";
    }
    write_file(*shop_ / "lines.tsv", lines);
    write_file(*shop_ / "book.txt", book);
    good("tokenizer lines.tsv --kind wordpiece --vocab-size 60 --out wordpiece.json");
    good("tokenizer book.txt --kind bpe --vocab-size 270 --out bpe.json");
    const json labels = {{"0", "bad"}, {"1", "good"}};
    make("bert", "wordpiece.json",
         {{"architectures", {"BertForSequenceClassification"}},
          {"hidden_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"intermediate_size", 512},
          {"max_position_embeddings", 12},
          {"layer_norm_eps", 1e-12},
          {"id2label", labels}});
    make("distilbert", "wordpiece.json",
         {{"architectures", {"DistilBertForSequenceClassification"}},
          {"dim", 128},
          {"n_layers", 2},
          {"n_heads", 2},
          {"hidden_dim", 512},
          {"max_position_embeddings", 12},
          {"id2label", labels}});
    make("gpt2", "bpe.json",
         {{"n_embd", 128},
          {"n_layer", 2},
          {"n_head", 2},
          {"n_positions", 12},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"}});
    make("llama", "bpe.json",
         {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", 352},
          {"max_position_embeddings", 12},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"rope_scaling", nullptr},
          {"hidden_act", "silu"}});
  }
  static void TearDownTestSuite() { delete std::exchange(shop_, nullptr); }

  static std::string data_of(const std::string& name) {
    return name == "gpt2" || name == "llama" ? "book.txt" : "lines.tsv";
  }
  static void make(const std::string& name, const std::string& tokenizer, json config) {
    const std::string data = data_of(name);
    good("train --model " + name + " --data " + data + " --tokenizer " + tokenizer +
         " --length 12 --batch 8 --max-steps 8 --lr 0.001 --threads 1 --out " + name + ".st");
    std::filesystem::create_directories(*shop_ / name);
    republish(*shop_ / (name + ".st"), *shop_ / (name + "/model.safetensors"));
    std::filesystem::copy_file(*shop_ / tokenizer, *shop_ / (name + "/tokenizer.json"));
    const json tokens = json::parse(ulp::test::read_file(*shop_ / tokenizer));
    config["model_type"] = name;
    config["vocab_size"] = tokens["model"]["vocab"].size();
    write_file(*shop_ / (name + "/config.json"), config.dump());
  }
  /// A copy of the folder with another value of one setting.
  static void copy_with(const std::string& from, const std::string& to, const std::string& key,
                        const json& value) {
    std::filesystem::remove_all(*shop_ / to);
    std::filesystem::copy(*shop_ / from, *shop_ / to);
    json config = json::parse(ulp::test::read_file(*shop_ / (to + "/config.json")));
    config[key] = value;
    write_file(*shop_ / (to + "/config.json"), config.dump());
  }
  static Outcome good(const std::string& args) {
    const Outcome outcome = shop_->ulp(args);
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome;
  }
  static json json_of(const std::string& args) { return json::parse(good(args + " --json").out); }

  static Workshop* shop_;
};

Workshop* PublishedTool::shop_ = nullptr;

TEST_F(PublishedTool, AFolderIsTheNetworkThatItWasMadeOf) {
  for (const std::string name : {"bert", "distilbert", "gpt2", "llama"}) {
    const std::string data = " --data " + data_of(name);
    const json own = json_of("eval " + name + ".st" + data), folder = json_of("eval " + name + data),
               file = json_of("eval " + name + "/model.safetensors" + data);
    EXPECT_NEAR(own["loss"].get<double>(), folder["loss"].get<double>(), 1e-5) << name;
    EXPECT_EQ(own["correct"], folder["correct"]) << name;
    EXPECT_EQ(folder["loss"], file["loss"]) << name;
  }
}

TEST_F(PublishedTool, EveryCommandTakesAFolder) {
  for (const std::string name : {"bert", "distilbert"}) {
    EXPECT_NE(good("eval " + name + " --data lines.tsv").out.find("test line"), std::string::npos);
    good("quantize " + name + " --mode dynamic --data lines.tsv --out q.ulp");
    good("export " + name + " --out m.onnx");
    good("prune " + name + " --data lines.tsv --samples 16 --threads 1 --no-latency --out p.safetensors");
    good("inspect " + name + " --graph");
    good("memory " + name + " --batch 2");
  }
  for (const std::string name : {"gpt2", "llama"}) {
    EXPECT_NE(good("eval " + name + " --data book.txt").out.find("bits a token"), std::string::npos);
    good("lower " + name + " --continued time --out text.ulp");
    good("generate text.ulp --prompt 'a fine' --count 3");
    good("quantize " + name + " --mode weight-only --continued time --data book.txt --out q.ulp");
  }
  good("generate q.ulp --prompt 'a fine' --count 3");
  good(
      "distill bert --student distilbert --data lines.tsv --batch 8 --max-steps 2 --threads 1 --no-latency "
      "--no-alone --out s.safetensors");
}

TEST_F(PublishedTool, TrainingContinuesFromAFolder) {
  const std::string train = "train --batch 8 --max-steps 60 --threads 1 --length 8 --data ";
  const Outcome trained = good(train + "lines.tsv --init bert --out tuned.safetensors");
  EXPECT_EQ(trained.err.find("note:"), std::string::npos) << trained.err;
  const json quality = json::parse(good("eval tuned.safetensors --data lines.tsv --json").out);
  EXPECT_GT(quality["accuracy_percent"].get<double>(), 90);
  good(train + "book.txt --init gpt2 --out tuned_gpt2.safetensors");
  good("lower tuned_gpt2.safetensors --out tuned.ulp");
}

TEST_F(PublishedTool, LayersWithoutAClassifierGetOneOfTheData) {
  copy_with("bert", "layers", "architectures", {"BertForMaskedLM"});
  republish(*shop_ / "bert.st", *shop_ / "layers/model.safetensors", [](std::vector<TensorEntry>& tensors) {
    for (TensorEntry& tensor : tensors)
      if (tensor.name.starts_with("classifier")) tensor.name.replace(0, 10, "cls");
  });
  const std::string differences = "missing: classifier.weight, classifier.bias; unexpected: cls.";
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += "abc"[i % 3] + std::string("\ta fine day\n");
  write_file(*shop_ / "three.tsv", lines);
  const Outcome trained = good(
      "train --init layers --data three.tsv --batch 8 --max-steps 2 --threads 1 --length 8 --out three.st");
  EXPECT_NE(trained.err.find(differences), std::string::npos) << trained.err;
  good("eval three.st --data three.tsv");
  expect_error(shop_->ulp("eval layers --data lines.tsv"), 3, differences);
  const json shown = json_of("inspect layers");
  EXPECT_EQ(shown["kind"], "published weights of bert");
  EXPECT_EQ(shown["metadata"]["missing"], "classifier.weight, classifier.bias");
  EXPECT_EQ(shown["metadata"].count("does not fit"), 0U);
}

TEST_F(PublishedTool, RefusesWhatItDoesNotHave) {
  const auto refused = [&](const std::string& says) {
    expect_error(shop_->ulp("lower other --out x.ulp"), 3, says);
    EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.ulp"));
  };
  const auto with = [&](const std::string& key, const json& value, const std::string& says) {
    copy_with("bert", "other", key, value);
    refused(says);
  };
  with("model_type", "roberta", "or \"stablelm\", got \"roberta\"");
  with("hidden_act", "relu", "expected hidden_act \"gelu\", got \"relu\"");
  with("layer_norm_eps", 1e-5, "layer_norm_eps");
  with("num_attention_heads", 3, "heads that divide the width 128");
  with("vocab_size", 0, "vocab_size in 1..");
  with("vocab_size", "many", "vocab_size in 1..");
  with("vocab_size", 1 << 24, "as config.json says");
  with("vocab_size", 20, "at most the 20 tokens of config.json");
  with("hidden_dropout_prob", 1, "hidden_dropout_prob in [0, 1)");
  copy_with("bert", "other", "num_hidden_layers", 40);
  expect_error(shop_->ulp("inspect other"), 3, "the weights of most of the layers");
  with("id2label", {{"1", "x"}}, "a name of class 0");
  with("intermediate_size", 13, "does not fit: bert.encoder.layer.0.intermediate.dense.weight");
  write_file(*shop_ / "other/config.json", "[");
  refused("expected JSON in 'other/config.json'");
  copy_with("bert", "other", "hidden_act", "gelu");
  std::filesystem::remove(*shop_ / "other/model.safetensors");
  refused("got neither");
  write_file(*shop_ / "other/pytorch_model.bin", std::string("\x80\x02}q\x00.", 6));
  refused("Convert it in Python");
  expect_error(shop_->ulp("eval other/pytorch_model.bin --data lines.tsv"), 3, "safetensors.torch.save_file");
}

TEST_F(PublishedTool, RefusesDecodersThatComputeSomethingElse) {
  const auto with = [&](const std::string& key, const json& value, const std::string& says) {
    copy_with("llama", "other", key, value);
    expect_error(shop_->ulp("lower other --out x.ulp"), 3, says);
  };
  with("model_type", "mixtral", "or \"stablelm\", got \"mixtral\"");
  with("hidden_act", "relu", "expected hidden_act \"silu\"");
  with("rope_scaling", {{"rope_type", "axial"}, {"factor", 4.0}}, "or \"longrope\", got \"axial\"");
  with("rope_scaling", {{"rope_type", "yarn"}}, "expected factor");
  with("rope_scaling", {{"rope_type", "longrope"}}, "expected short_factor");
  with("rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1.0, 0}}, {"long_factor", {1.0}}},
       "expected numbers above 0 as short_factor");
  with("rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}},
       "expected rotary divisors of the ");
  with("rope_scaling", {{"type", "linear"}}, "expected factor");
  with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}, "expected low_freq_factor");
  with("rope_scaling", "linear", "expected an object as rope_scaling");
  with("rope_theta", -1, "expected rope_theta above 0");
  with("partial_rotary_factor", 0.5, "expected partial_rotary_factor 1.0, got 0.5");
  with("attention_bias", "yes", "expected attention_bias true or false");
  with("attention_bias", true, "missing: model.layers.0.self_attn.q_proj.bias");
  with("num_key_value_heads", 3, "kv_heads that divide the 4 heads of 'llama', got 3");
  with("num_attention_heads", 3, "num_attention_heads that divide hidden_size 128, got 3");
  with("hidden_size", nullptr, "expected hidden_size in");
  with("is_causal", false, "expected is_causal true, got false");
  with("is_causal", nullptr, "expected is_causal true, got null");
  with("per_layer_config", {{"1", {{"head_dim", 8}}}}, "expected layers that are alike");
  with("quantization_config", {{"bits", 4}}, "got a quantization_config");
  with("tie_word_embeddings", true, "unexpected: lm_head.weight");
  with("vocab_size", 1 << 24, "as config.json says");
  copy_with("llama", "other", "hidden_act", "silu");
  write_file(*shop_ / "other/adapter_config.json", "{}");
  expect_error(shop_->ulp("lower other --out x.ulp"), 3, "--adapter merges it");
  std::filesystem::remove(*shop_ / "other/adapter_config.json");
  expect_error(shop_->ulp("lower llama --size time=13 --out x.ulp"), 3, "texts of at most the 12 tokens");
  expect_error(shop_->ulp("lower llama --size length=8 --out x.ulp"), 3,
               "a size of 'time', the dimension of");
  expect_error(shop_->ulp("lower gpt2 --size time=8 --out x.ulp"), 3, "expected no --size beside 'gpt2'");
  expect_error(
      shop_->ulp("lower llama --network resnet18 --out x.ulp"), 1,
      "expected no --network beside 'llama', which says itself which network it is, got --network resnet18");
  good("lower llama --size time=8 --continued time --out short.ulp");
  expect_error(shop_->ulp("generate short.ulp --prompt 'a fine day, an awful hour and more'"), 1,
               "at most 8 tokens");
}

class PublishedImages : public WithLeNet5 {};

TEST_F(PublishedImages, WeightsOfANamedNetwork) {
  republish(*shop_ / "m.safetensors", *shop_ / "weights.safetensors");
  const auto loss = [&](const std::string& model) {
    const Outcome outcome = shop_->ulp("eval " + model + " --data data --json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out)["loss"].get<double>();
  };
  const std::string named = "weights.safetensors --network lenet5";
  EXPECT_NEAR(loss(named), loss("m.safetensors"), 1e-6);
  const auto good = [&](const std::string& args) {
    const Outcome outcome = shop_->ulp(args);
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome;
  };
  good("lower " + named + " --out published.ulp");
  good("quantize " + named + " --data data --out published.int8.ulp");
  good("prune " + named + " --data data --samples 64 --threads 1 --no-latency --out pruned.st");
  good("train --model lenet5 --init weights.safetensors --data data --max-steps 2 --threads 1");
  good(
      "distill m.safetensors --student weights.safetensors --network lenet5 --data data --batch 16 "
      "--max-steps 2 --threads 1 --no-latency --no-alone --out student.st");
  EXPECT_EQ(json::parse(good("inspect " + named + " --json").out)["metadata"].count("missing"), 0U);
  expect_error(shop_->ulp("lower weights.safetensors --out x.ulp"), 3, "or --network");
  for (const char* const command :
       {"lower", "export", "quantize --data data", "eval --data data", "inspect"}) {
    const std::string out =
        std::string(command).find("eval") == 0 || std::string(command) == "inspect"
            ? ""
            : std::string(" --out x.") + (std::string(command) == "export" ? "onnx" : "ulp");
    expect_error(shop_->ulp(std::string(command) + " m.safetensors --network lenet5" + out), 1,
                 "expected no --network beside 'm.safetensors', which says itself which network it is");
  }
  expect_error(shop_->ulp("distill m.safetensors --student lenet5 --network lenet5 --data data --out x.st"),
               1, "expected --network beside published weights without a config.json, got --network lenet5");
  expect_error(shop_->ulp("lower weights.safetensors --network lenet6 --out x.ulp"), 3, "lenet5, ");
  expect_error(shop_->ulp("lower weights.safetensors --network mlp --out x.ulp"), 3,
               "does not fit the model");
}

}  // namespace
