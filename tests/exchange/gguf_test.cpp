// GGUF files: those of the Python package `gguf` in, GPT-2 out and in again, and files of strangers.
#include "ulp/exchange/gguf.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "file_bytes.h"
#include "temporary_folder.h"
#include "ulp/formats/ggml_block.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using namespace ulp::exchange;

const std::string& types_file() {
  static const std::string bytes = file_bytes(ULP_SOURCE_DIR "/tests/golden/gguf/types.gguf");
  return bytes;
}

std::shared_ptr<models::TextModel> gguf_gpt2() {
  torch::manual_seed(3);
  const auto model =
      models::make_gpt2({.vocab_size = 40, .max_length = 8, .width = 32, .layers = 2, .heads = 4});
  for (at::Tensor& parameter : model->parameters()) parameter.data().normal_(0, 0.3);
  return model;
}

/// Each tensor of the file is the model's as its type stores it.
void expect_rounded_once(const GgufModel& file, const models::TextModel& model) {
  const auto parameters = model.named_parameters();
  const auto names = gpt2_tensors(file);
  ASSERT_EQ(names.size(), parameters.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const GgufTensor& tensor = file.tensors[i];
    const bool turned = names[i].first.starts_with("h.") && tensor.values.dim() == 2;
    const at::Tensor own = parameters[names[i].first].detach();
    at::Tensor expected = (turned ? own.t() : own).contiguous();
    if (tensor.type != "F32") {
      const auto& type = *formats::find_ggml_type(tensor.type.c_str());
      const std::span<float> values(expected.mutable_data_ptr<float>(), static_cast<size_t>(own.numel()));
      if (!turned) expected = expected.clone();
      std::vector<std::byte> bytes(values.size() / static_cast<size_t>(type.elements) *
                                   static_cast<size_t>(type.bytes));
      const at::Tensor decoded = torch::empty_like(expected);
      formats::encode_ggml(type, values, bytes);
      formats::decode_ggml(type, bytes, {decoded.mutable_data_ptr<float>(), values.size()});
      expected = decoded;
    }
    EXPECT_TRUE(torch::equal(tensor.values, expected)) << names[i].first;
  }
}

TEST(Gguf, EveryTypeHasTheNumbersOfGguf) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/gguf.json")).at("decoded");
  const GgufModel file = import_gguf(types_file(), "types.gguf");
  ASSERT_EQ(file.tensors.size(), golden.size());
  ASSERT_EQ(file.tensors.size(), 16U);
  for (const auto& [name, expected] : golden.items()) {
    const GgufTensor* tensor = file.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->type, expected.at("type").get<std::string>());
    EXPECT_EQ(tensor->values.sizes().vec(), expected.at("shape").get<std::vector<int64_t>>());
    const auto bits = expected.at("bits").get<std::vector<uint32_t>>();
    const at::Tensor flat = tensor->values.contiguous();
    EXPECT_EQ(std::memcmp(flat.const_data_ptr(), bits.data(), bits.size() * 4), 0) << name;
  }
  const auto metadata = nlohmann::json::parse(file.metadata);
  EXPECT_EQ(metadata.at("gpt2.context_length"), 7);
  EXPECT_EQ(metadata.at("test.words"), (nlohmann::json{"one", "tw\xC3\xB6"}));
  EXPECT_EQ(metadata.at("test.flag"), true);
}

TEST(Gguf, CodesAreWeightOnlyConstantsOfTheSameBits) {
  const GgufModel file = import_gguf(types_file(), "types.gguf");
  for (const auto& [name, size] : {std::pair("q4_0", 32), {"q8_0", 32}, {"q4_k", 32}, {"q6_k", 16}}) {
    const GgufTensor& tensor = *file.find(name);
    ASSERT_TRUE(tensor.codes) << name;
    const quant::StoredQuantizedWeight& codes = *tensor.codes;
    EXPECT_EQ(codes.scale.size(1) * size, tensor.values.size(1)) << name;
    EXPECT_TRUE(torch::equal(quant::dequantize_weight(codes), tensor.values)) << name;
    EXPECT_EQ(codes.minimum.has_value(), name == std::string("q4_k"));
  }
  for (const char* const name : {"f32", "f16", "bf16"}) EXPECT_FALSE(file.find(name)->codes) << name;
}

TEST(Gguf, TheTokenizerIsWrittenAsLlamaCppDoes) {
  const std::string json =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3},
    "merges": ["a b"]}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 3, "content": "<|endoftext|>", "special": true, "single_word": false,
                      "lstrip": false, "rstrip": false, "normalized": false}]})";
  const TemporaryFolder folder;
  const auto tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::from_json(json));
  export_gguf(*gguf_gpt2(), folder / "m.gguf", {.heads = 4, .tokenizer = tokenizer});
  const auto metadata = nlohmann::json::parse(import_gguf(folder / "m.gguf").metadata);
  ASSERT_EQ(metadata.at("tokenizer.ggml.tokens").size(), 40U);
  EXPECT_EQ(metadata["tokenizer.ggml.tokens"][2], "ab");
  EXPECT_EQ(metadata["tokenizer.ggml.tokens"][39], "[PAD39]");
  const auto& kinds = metadata.at("tokenizer.ggml.token_type");
  EXPECT_EQ((std::vector<int>{kinds[2], kinds[3], kinds[39]}), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(metadata.at("tokenizer.ggml.merges"), nlohmann::json::array({"a b"}));
  EXPECT_EQ(metadata.at("tokenizer.ggml.eos_token_id"), 3);
  EXPECT_EQ(metadata.at("gpt2.context_length"), 8);
}

/// tokenizer.json of byte pairs of "a" and "b", with changes.
std::shared_ptr<const io::Tokenizer> pairs_of_ab(const nlohmann::json& changes) {
  auto json = nlohmann::json::parse(R"({"model": {"type": "BPE",
    "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4, "<pad>": 5}, "merges": ["a b"]},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true},
                     {"id": 5, "content": "<pad>", "special": true}]})");
  if (!changes.is_null()) json.merge_patch(changes);
  return std::make_shared<const io::Tokenizer>(io::Tokenizer::from_json(json.dump()));
}

nlohmann::json keys_of(const std::shared_ptr<const io::Tokenizer>& tokenizer, const GgufVocabulary& words) {
  const TemporaryFolder folder;
  export_gguf(*gguf_gpt2(), folder / "m.gguf", {.heads = 4, .tokenizer = tokenizer, .words = words});
  return nlohmann::json::parse(import_gguf(folder / "m.gguf").metadata);
}

TEST(Gguf, TokenizersThatGgufCannotSayAreRefused) {
  using nlohmann::json;
  const auto refusal = [](const json& changes, const GgufVocabulary& words = {}) {
    return error_of([&] { keys_of(pairs_of_ab(changes), words); });
  };
  EXPECT_SAYS(refusal({{"pre_tokenizer", {{"add_prefix_space", true}}}}), "add_prefix_space false");
  EXPECT_SAYS(refusal({{"pre_tokenizer", {{"add_prefix_space", nullptr}}}}), "add_prefix_space false");
  EXPECT_SAYS(refusal({{"pre_tokenizer", {{"use_regex", false}}}}), "use_regex true");
  EXPECT_SAYS(refusal({{"model", {{"ignore_merges", true}}}}), "ignore_merges false");
  const json left = json::array({{{"id", 3}, {"content", "<s>"}, {"special", true}, {"lstrip", true}}});
  EXPECT_SAYS(refusal({{"added_tokens", left}}), "without lstrip, for which GGUF has no word, got '<s>'");
  EXPECT_SAYS(refusal({}, {.bos = "<start>"}),
              "first token of texts among the tokenizer's tokens, got '<start>'");
  EXPECT_SAYS(refusal({}, {.add_bos = true}), "a known first token that the template adds, got none");
  const json twice = json::parse(R"({"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [3, 3]}},
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})");
  EXPECT_SAYS(refusal({{"post_processor", twice}}), "at most one first token, got 2");
  const json once = json::parse(R"({"type": "TemplateProcessing", "special_tokens": {"<s>": {"ids": [3]}},
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]})");
  EXPECT_SAYS(refusal({{"post_processor", once}}, {.add_bos = false}),
              "a first token that is added as the tokenizer's template adds 3");
  EXPECT_SAYS(refusal({}, {.chat_templates = {{"tool use", "a"}, {"tool-use", "b"}}}),
              "got 'tool-use' beside 'tool use', which have one key");
}

TEST(Gguf, FirstAndLastTokensAreThoseOfTheConfigurationOrTheTemplate) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "add_bos_token": true})";
  std::ofstream(folder / "special_tokens_map.json")
      << R"({"pad_token": "<pad>", "unk_token": {"content": "<s>"}, "eos_token": "<pad>"})";
  std::ofstream(folder / "chat_template.jinja") << "{{ messages }}";
  nlohmann::json keys = keys_of(pairs_of_ab({}), read_gguf_vocabulary(folder.path()));
  EXPECT_EQ(keys.at("general.type"), "model");
  EXPECT_EQ(keys.at("tokenizer.ggml.bos_token_id"), 3);
  EXPECT_EQ(keys.at("tokenizer.ggml.eos_token_id"), 4);
  EXPECT_EQ(keys.at("tokenizer.ggml.unknown_token_id"), 3);
  EXPECT_EQ(keys.at("tokenizer.ggml.padding_token_id"), 5);
  EXPECT_EQ(keys.at("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(keys.at("tokenizer.ggml.add_eos_token"), false);
  EXPECT_EQ(keys.at("tokenizer.chat_template"), "{{ messages }}");
  const nlohmann::json ends = nlohmann::json::parse(R"({"type": "RobertaProcessing", "cls": ["<s>", 3],
    "sep": ["</s>", 4], "add_prefix_space": false})");
  keys = keys_of(pairs_of_ab({{"post_processor", ends}}), {});
  EXPECT_EQ(keys.at("tokenizer.ggml.bos_token_id"), 3);
  EXPECT_EQ(keys.at("tokenizer.ggml.eos_token_id"), 4);
  EXPECT_EQ(keys.at("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(keys.at("tokenizer.ggml.add_eos_token"), true);
  EXPECT_FALSE(keys.contains("tokenizer.chat_template"));
  EXPECT_FALSE(keys.contains("tokenizer.ggml.padding_token_id"));
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool use", "template": "t"}]})";
  keys = keys_of(pairs_of_ab({}), read_gguf_vocabulary(folder.path()));
  EXPECT_EQ(keys.at("tokenizer.chat_template"), "d");
  EXPECT_EQ(keys.at("tokenizer.chat_template.tool_use"), "t");
  EXPECT_EQ(keys.at("tokenizer.chat_templates"), nlohmann::json::array({"tool_use"}));
  std::ofstream(folder / "tokenizer_config.json") << "[";
  EXPECT_SAYS(error_of([&] { read_gguf_vocabulary(folder.path()); }), "tokenizer_config.json");
}

/// Values, codes in a graph, and an engine that reads the codes: the same numbers.
TEST(Gguf, Gpt2ReadsTheCodesOfAFile) {
  const TemporaryFolder folder;
  const torch::NoGradGuard no_grad;
  const at::Tensor tokens = torch::randint(0, 40, {2, 8}, at::kLong);
  for (const auto type : {GgufType::q8_0, GgufType::q4_0}) {
    const auto path = folder.path() / "gpt2.gguf";
    export_gguf(*gguf_gpt2(), path, {.type = type, .heads = 4});
    const GgufModel file = import_gguf(path);
    const auto model = gguf_gpt2();
    io::assign_pretrained(*model, gpt2_tensors(file), true, path.string());
    model->eval();
    const auto captured = capture(*model, {tokens});
    graph::PassReport report;
    const auto coded = quant::read_quantized_weights(captured, gpt2_quantized_weights(file), &report);
    EXPECT_EQ(report.changes.size(), 2U * 4 + 2) << "layers, the words, and the words as the last layer";
    EXPECT_FALSE(coded->named_parameters().contains("h.0.attn.c_attn.weight"));
    EXPECT_TRUE(torch::equal(coded->forward(tokens), captured->forward(tokens)));
    const runtime::Plan plan = lower(*coded);
    EXPECT_EQ(
        plan.constants.at("wte.weight." + std::string(type == GgufType::q8_0 ? "int8" : "int4")).shape.size(),
        3U);
    runtime::Engine engine(plan);
    const at::Tensor result = torch::empty({2, 8, 40});
    const void* const inputs[] = {tokens.const_data_ptr()};
    void* const outputs[] = {result.mutable_data_ptr()};
    engine.run(2, inputs, outputs);
    EXPECT_TRUE(torch::allclose(result, captured->forward(tokens), 1e-4, 1e-4));
    auto codes = gpt2_quantized_weights(file);
    codes.emplace("wpe.weight", codes.at("wte.weight"));
    EXPECT_ERROR(quant::read_quantized_weights(captured, codes), "got 'wpe.weight'");
    codes.erase("wpe.weight");
    codes.at("wte.weight").columns = 16;
    EXPECT_ERROR(quant::read_quantized_weights(captured, codes),
                 "expected codes of [40, 32] for 'wte.weight'");
  }
}

/// A file of Q4_K has codes with minima: a network that reads them has the bits of one with their values, and
/// its engine the same numbers within rounding.
TEST(Gguf, Gpt2ReadsCodesWithMinima) {
  const torch::NoGradGuard no_grad;
  const auto model = gguf_gpt2();
  model->eval();
  const at::Tensor tokens = torch::randint(0, 40, {2, 8}, at::kLong);
  const auto captured = capture(*model, {tokens});
  std::map<std::string, quant::StoredQuantizedWeight> codes;
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    const bool turned = name.starts_with("h.") && item.value().dim() == 2;
    if (!turned && name != "wte.weight") continue;
    const int64_t rows = item.value().size(turned ? 1 : 0), columns = item.value().size(turned ? 0 : 1);
    const int64_t groups = columns / 32;
    codes[name] = {.codes = torch::randint(0, 256, {rows, groups, 16}, at::kByte),
                   .scale = torch::rand({rows, groups}) * 0.1 + 0.01,
                   .columns = columns,
                   .minimum = torch::rand({rows, groups})};
    codes[name].scale.view({-1})[0] = 0;
    const at::Tensor values = quant::dequantize_weight(codes[name]);
    item.value().data().copy_(turned ? values.t() : values);
  }
  const auto coded = quant::read_quantized_weights(captured, codes);
  const at::Tensor right = coded->forward(tokens);
  EXPECT_TRUE(torch::equal(right, model->forward(tokens)));
  const runtime::Plan plan = lower(*coded);
  EXPECT_EQ(plan.constants.at("wte.weight.minimum").shape, (std::vector<int64_t>{40, 1}));
  runtime::Engine engine(plan);
  const at::Tensor result = torch::empty({2, 8, 40});
  const void* const inputs[] = {tokens.const_data_ptr()};
  void* const outputs[] = {result.mutable_data_ptr()};
  engine.run(2, inputs, outputs);
  EXPECT_TRUE(torch::allclose(result, right, 1e-4, 1e-4 * right.abs().max().item<double>()));
}

TEST(Gguf, Gpt2ComesBack) {
  const TemporaryFolder folder;
  const auto model = gguf_gpt2(), other = gguf_gpt2();
  const at::Tensor tokens = torch::randint(0, 40, {2, 8}, at::kLong);
  model->eval();
  const at::Tensor right = model->forward(tokens);
  for (const auto type : {GgufType::f32, GgufType::q8_0, GgufType::q4_0}) {
    const auto path = folder.path() / "gpt2.gguf";
    export_gguf(*model, path, {.type = type, .heads = 4});
    const GgufModel file = import_gguf(path);
    const auto metadata = nlohmann::json::parse(file.metadata);
    EXPECT_EQ(metadata.at("gpt2.block_count"), 2);
    EXPECT_EQ(metadata.at("gpt2.feed_forward_length"), 128);
    const GgufTensor& qkv = *file.find("blk.1.attn_qkv.weight");
    EXPECT_EQ(qkv.values.sizes(), (std::vector<int64_t>{96, 32})) << "(out, in)";
    EXPECT_EQ(qkv.type, type == GgufType::f32 ? "F32" : type == GgufType::q8_0 ? "Q8_0" : "Q4_0");
    EXPECT_EQ(file.find("position_embd.weight")->type, "F32");
    for (at::Tensor& parameter : other->parameters()) parameter.data().zero_();
    EXPECT_TRUE(io::assign_pretrained(*other, gpt2_tensors(file), true, path.string()).differences.ok());
    other->eval();
    const at::Tensor again = other->forward(tokens);
    EXPECT_EQ(torch::equal(again, right), type == GgufType::f32);
    expect_rounded_once(file, *model);
  }
}

TEST(Gguf, WritesNothingOfOtherModels) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "out.gguf";
  EXPECT_ERROR(export_gguf(*models::make_bert(models::BertConfig::tiny()), path, {.heads = 2}),
               "GPT-2's parameters");
  EXPECT_ERROR(export_gguf(*gguf_gpt2(), path, {}), "heads that divide the width 32, got 0");
  EXPECT_ERROR(export_gguf(*gguf_gpt2(), path, {.heads = 5}), "got 5");
  const auto model = gguf_gpt2();
  model->parameters()[0].data()[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(export_gguf(*model, path, {.heads = 4}), "'wte.weight'");
  const auto endless = gguf_gpt2();
  endless->named_parameters()["ln_f.bias"].data()[3] = std::numeric_limits<float>::infinity();
  EXPECT_ERROR(export_gguf(*endless, path, {.heads = 4}),
               "expected finite values, got others in 'ln_f.bias'");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_ERROR(gpt2_tensors(import_gguf(types_file(), "types.gguf")), "tensors of GPT-2");
}

/// The file with these bytes at a place.
std::string with(std::string bytes, size_t at, const std::string& others) {
  return bytes.replace(at, others.size(), others);
}

TEST(GgufFiles, RefuseDamage) {
  const std::string& good = types_file();
  const auto refusal = [](const std::string& bytes) {
    return error_of([&] { import_gguf(bytes, "strange.gguf"); });
  };
  EXPECT_SAYS(refusal(""), "strange.gguf");
  EXPECT_SAYS(refusal("GGML"), "a GGUF file");
  EXPECT_SAYS(refusal(with(good, 4, std::string("\1\0\0\0", 4))), "version 2 or 3");
  EXPECT_SAYS(refusal(with(good, 4, std::string("\0\0\0\3", 4))), "little-endian");
  EXPECT_SAYS(refusal(with(good, 8, std::string(8, '\xff'))), "numbers of tensors");
  EXPECT_SAYS(refusal(with(good, 16, std::string(8, '\xff'))), "numbers of tensors");
  EXPECT_SAYS(refusal(with(good, 24, std::string(8, '\xff'))), "more bytes");
  const size_t name = good.find("q4_0");
  ASSERT_NE(name, std::string::npos);
  const size_t dimensions = name + 4, type = dimensions + 4 + 16, offset = type + 4;
  EXPECT_SAYS(refusal(with(good, dimensions, "\x9")), "at most 4 dimensions of 'q4_0'");
  EXPECT_SAYS(refusal(with(good, dimensions + 4, std::string(8, '\xff'))), "'q4_0'");
  EXPECT_SAYS(refusal(with(good, dimensions + 4, std::string("\x21", 1))), "whole blocks of 32");
  EXPECT_SAYS(refusal(with(good, dimensions + 12, std::string("\0\0\0\0\0\0\0\x3f", 8))), "fewer");
  EXPECT_SAYS(refusal(with(good, type, "\x13")), "F32, F16, Q4_0");
  EXPECT_SAYS(refusal(with(good, type, "\x13")), "got IQ1_S");
  EXPECT_SAYS(refusal(with(good, offset, "\x1")), "within the");
  EXPECT_SAYS(refusal(with(good, offset, std::string(7, '\x7f'))), "within the");
  EXPECT_SAYS(refusal(with(good, name, "bf16")), "each tensor once");
  EXPECT_ERROR(import_gguf(std::filesystem::path("nowhere.gguf")), "nowhere.gguf");
}

/// A file of tensors of f32 that all begin at the same byte, with `data` bytes of them.
std::string of_floats(const std::vector<std::pair<std::string, std::vector<uint64_t>>>& tensors, size_t data,
                      uint32_t type = 0) {
  std::string bytes = "GGUF";
  const auto number = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  number(uint32_t{3});
  number(uint64_t{tensors.size()});
  number(uint64_t{0});
  for (const auto& [name, sizes] : tensors) {
    number(uint64_t{name.size()});
    bytes += name;
    number(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) number(size);
    number(type);
    number(uint64_t{0});
  }
  bytes.resize((bytes.size() + 31) / 32 * 32 + data);
  return bytes;
}

TEST(GgufFiles, TensorsHaveBytesOfTheirOwn) {
  const auto refusal = [](const std::string& bytes) {
    return error_of([&] { import_gguf(bytes, "strange.gguf"); });
  };
  EXPECT_EQ(import_gguf(of_floats({{"a", {8}}}, 32), "a.gguf").tensors.size(), 1U);
  EXPECT_SAYS(refusal(of_floats({{"a", {8}}, {"b", {8}}, {"c", {8}}}, 64)),
              "bytes of their own, got more than all 64 bytes with 'c'");
  const uint64_t large = uint64_t{1} << 40;
  EXPECT_SAYS(refusal(of_floats({{"a", {large, large, 0}}}, 32)), "expected fewer elements in 'a'");
  EXPECT_EQ(import_gguf(of_floats({{"a", {4, 0}}}, 0), "a.gguf").tensors[0].values.sizes(),
            (std::vector<int64_t>{0, 4}));
}

TEST(GgufFiles, NamesInMessagesArePlainAndShort) {
  const auto refusal = [](const std::string& name) {
    return error_of([&] { import_gguf(of_floats({{name, {8}}}, 32, /*type=*/3), "strange.gguf"); });
  };
  EXPECT_SAYS(refusal("a\033[2J"), "a name in UTF-8 without control characters");
  EXPECT_SAYS(refusal("\xff"), "a name in UTF-8 without control characters");
  EXPECT_SAYS(refusal(std::string(5000, 'n')), "'" + std::string(100, 'n') + "'");
}

TEST(GgufFiles, EveryBeginningIsRefused) {
  const std::string& good = types_file();
  for (size_t size = 0; size < good.size(); size += size < 900 ? 1 : 37) {
    try {
      import_gguf(std::string_view(good).substr(0, size), "cut.gguf");
      EXPECT_GT(size + 32, good.size()) << "only padding may be missing";
    } catch (const FileError& error) {
      EXPECT_SAYS(error.what(), "cut.gguf");
    }
  }
}

}  // namespace

}  // namespace ulp::test
