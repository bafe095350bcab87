// Tokenizers: what Hugging Face's `tokenizers` said of the same texts (tests/golden/make_tokenizers.py), training, and files of strangers.
#include "ulp/io/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "temp_folder.h"
#include "ulp/io/tokenizer/train_tokenizer.h"

namespace {

using namespace ulp::io;
using Json = nlohmann::json;

const Json& golden() {
  static const Json read = Json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/tokenizers.json"));
  return read;
}

TEST(Tokenizer, EqualsHuggingFaceOnEveryLine) {
  int lines = 0;
  for (const Json& one : golden().at("cases")) {
    const auto tokenizer = Tokenizer::from_json(one.at("tokenizer").get<std::string>());
    for (const Json& line : one.at("lines")) {
      const auto text = line.at("text").get<std::string>();
      const Encoding encoded = tokenizer.encode(text);
      EXPECT_EQ(encoded.ids, line.at("ids").get<std::vector<int64_t>>()) << one.at("name") << ": " << text;
      EXPECT_EQ(encoded.ranges.size(), encoded.ids.size());
      EXPECT_EQ(tokenizer.decode(encoded.ids), line.at("decoded").get<std::string>()) << text;
      ++lines;
    }
  }
  EXPECT_GT(lines, 100);
}

TEST(Tokenizer, LearnsTheMergesOfHuggingFace) {
  const auto tokenizer =
      train_tokenizer(golden().at("training_text").get<std::string>(), {.vocab_size = 500});
  const Json model = Json::parse(tokenizer.to_json()).at("model");
  EXPECT_EQ(model.at("vocab"), golden().at("bpe_vocab"));
  EXPECT_EQ(model.at("merges"), golden().at("bpe_merges"));
}

TEST(Tokenizer, LearnsWordPieces) {
  const TokenizerTraining options{.kind = TokenizerKind::wordpiece, .vocab_size = 40};
  const auto tokenizer = train_tokenizer("the cat\nThe cats, the Cat!\nc\xC3\xA0t the hat\n", options);
  EXPECT_EQ(tokenizer.to_json(),
            train_tokenizer("the cat\nThe cats, the Cat!\nc\xC3\xA0t the hat\n", options).to_json());
  EXPECT_EQ(tokenizer.id_of("[PAD]"), 0);
  EXPECT_EQ(tokenizer.padding(), 0);
  EXPECT_EQ(tokenizer.kind(), TokenizerKind::wordpiece);
  const Encoding cats = tokenizer.encode("CATS the q");
  std::vector<std::string> tokens;
  for (const int64_t id : cats.ids) tokens.push_back(*tokenizer.token_of(id));
  EXPECT_EQ(tokens, (std::vector<std::string>{"[CLS]", "cat", "##s", "the", "[UNK]", "[SEP]"}));
  EXPECT_EQ(tokenizer.decode(cats.ids), "cats the");
  EXPECT_EQ(tokenizer.decode(cats.ids, /*special=*/true), "[CLS] cats the [UNK] [SEP]");
}

TEST(Tokenizer, BytePairsKnowEveryText) {
  const auto tokenizer = train_tokenizer("low lower lowest\n", {.vocab_size = 300, .min_frequency = 1});
  for (const std::string& text :
       {std::string("low \xF0\x9F\x99\x82\t?"), std::string("\0x", 2), std::string()})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text);
  EXPECT_EQ(tokenizer.decode(std::vector<int64_t>{*tokenizer.id_of("\xC3\xB0")}), "\xEF\xBF\xBD");
}

/// Each of the 256 characters of bytes, and some that stand for none.
TEST(Tokenizer, EveryByteComesBack) {
  const auto tokenizer = train_tokenizer("a b\n", {.vocab_size = 257});
  Json file = Json::parse(tokenizer.to_json());
  for (const std::string other : {"\xC4\x80\xC5\x84", "\xC4\x80\xD0\x80", "\x7F"})  // U+0144, U+0400, U+007F
    file["model"]["vocab"][other] = file["model"]["vocab"].size();
  const auto more = Tokenizer::from_json(file.dump());
  EXPECT_EQ(more.decode(std::vector<int64_t>{257, 258, 259}), "\xC4\x80\xC5\x84\xC4\x80\xD0\x80\x7F");
  for (int byte = 0; byte < 0x80; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text) << byte;
  }
  for (int code = 0x80; code < 0x800; ++code) {
    const std::string text = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text) << code;
  }
}

TEST(Tokenizer, SaysWhereTokensComeFrom) {
  const auto tokenizer =
      train_tokenizer("na\xC3\xAFve caf\xC3\xA9 na\xC3\xAFve caf\xC3\xA9\n",
                      {.kind = TokenizerKind::wordpiece, .vocab_size = 60, .min_frequency = 1});
  const std::string text = " na\xC3\xAFve  caf\xC3\xA9";
  const Encoding encoded = tokenizer.encode(text, /*special=*/false);
  ASSERT_EQ(encoded.ids.size(), 2U);
  EXPECT_EQ(encoded.ranges[0], (TextRange{1, 7}));
  EXPECT_EQ(encoded.ranges[1], (TextRange{9, 14}));
}

TEST(Tokenizer, CutsTheTextAndKeepsTheTemplate) {
  const auto tokenizer = Tokenizer::from_json(golden().at("cases")[0].at("tokenizer").get<std::string>());
  const auto whole = tokenizer.encode("the of and to in").ids,
             cut = tokenizer.encode("the of and to in", true, 4).ids;
  ASSERT_GT(whole.size(), 4U);
  EXPECT_EQ(cut, (std::vector<int64_t>{whole[0], whole[1], whole[2], whole.back()}));
  EXPECT_EQ(tokenizer.encode("the of and", true, 100).ids, tokenizer.encode("the of and").ids);
  EXPECT_THROW(tokenizer.encode("the", true, 1), ulp::Error);
}

TEST(Tokenizer, RefusesTextsThatAreNoUtf8) {
  const auto tokenizer = train_tokenizer("a b\n", {.vocab_size = 260});
  for (const char* const text : {"ab\xFF", "ab\xC3", "ab\xED\xA0\x80", "ab\xC0\x80", "ab\xF4\x90\x80\x80"}) {
    try {
      tokenizer.encode(text);
      ADD_FAILURE() << "accepted";
    } catch (const ulp::Error& error) {
      EXPECT_NE(std::string(error.what()).find("at byte 2"), std::string::npos) << error.what();
    }
  }
  try {
    encode_lines(tokenizer, "fine\nbad\xFF\n");
    ADD_FAILURE() << "accepted";
  } catch (const ulp::Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
  }
}

class TokenizerFiles : public TempFolder {};

TEST_F(TokenizerFiles, ComeBackAsTheyWere) {
  const auto tokenizer = train_tokenizer("one two one two\n", {.vocab_size = 270, .min_frequency = 1});
  tokenizer.save(at("tokenizer.json"));
  EXPECT_EQ(Tokenizer::load(at("tokenizer.json")).to_json(), tokenizer.to_json());
  expect_file_error("nowhere", [&] { Tokenizer::load(at("nowhere")); });
  expect_file_error("expected a file", [&] { train_tokenizer_on(folder_); });
  write("bad", "x\n\xFF\n");
  expect_file_error("line 2", [&] { train_tokenizer_on(at("bad")); });
  write("empty", "");
  expect_file_error("a text with words", [&] { train_tokenizer_on(at("empty")); });
  EXPECT_THROW(train_tokenizer("a", {.vocab_size = 256}), ulp::Error);
}

/// All strings of bytes in order of their length, each a merge of the one without its last byte and that byte.
TEST(TokenizerLimits, FilesOfTheMostTokensThatAreLearnedAreRead) {
  TokenizerTraining options{.vocab_size = 128000};
  EXPECT_NO_THROW(options.validate());
  Json file = Json::parse(train_tokenizer("a b\n", {.vocab_size = 257}).to_json());
  std::vector<std::string> tokens;
  for (const auto& [token, id] : file["model"]["vocab"].items())
    if (token != "<|endoftext|>") tokens.push_back(token);
  ASSERT_EQ(tokens.size(), 256U);
  Json merges = Json::array();
  for (size_t i = 0; static_cast<int64_t>(tokens.size()) + 1 < options.vocab_size; ++i) {
    const std::string &left = tokens[i / 256], &right = tokens[i % 256];
    merges.push_back({left, right});
    tokens.push_back(left + right);
    file["model"]["vocab"][tokens.back()] = tokens.size();
  }
  file["model"]["merges"] = merges;
  EXPECT_EQ(Tokenizer::from_json(file.dump()).vocab_size(), options.vocab_size);
  options.vocab_size = 128001;
  EXPECT_THROW(options.validate(), ulp::Error);
  options = {.kind = TokenizerKind::wordpiece, .alphabet = 128001};
  EXPECT_THROW(options.validate(), ulp::Error);
}

/// The tokenizer of these changes to a small one is refused with these words.
void expect_refusal(const std::string& what, const std::function<void(Json&)>& change, size_t which = 1) {
  Json file = Json::parse(golden().at("cases")[which].at("tokenizer").get<std::string>());
  change(file);
  expect_file_error(what, [&] { Tokenizer::from_json(file.dump(), "strange.json"); });
  expect_file_error("strange.json", [&] { Tokenizer::from_json(file.dump(), "strange.json"); });
}

TEST(TokenizerJson, RefusesWhatItDoesNotKnowByName) {
  expect_refusal("'model'", [](Json& file) { file.erase("model"); });
  expect_refusal("got Unigram", [](Json& file) { file["model"]["type"] = "Unigram"; });
  expect_refusal("got NFKC", [](Json& file) { file["normalizer"] = {{"type", "NFKC"}}; });
  expect_refusal("got Metaspace", [](Json& file) { file["pre_tokenizer"] = {{"type", "Metaspace"}}; });
  expect_refusal("got none", [](Json& file) { file["pre_tokenizer"] = nullptr; });
  expect_refusal("got Fuse", [](Json& file) { file["decoder"] = {{"type", "Fuse"}}; });
  expect_refusal("'dropout'", [](Json& file) { file["model"]["dropout"] = 0.1; });
  expect_refusal("'byte_fallback'", [](Json& file) { file["model"]["byte_fallback"] = true; });
  expect_refusal(
      "got NFC",
      [](Json& file) {
        file["normalizer"] = {{"type", "NFC"}};
      },
      0);
}

TEST(TokenizerJson, RefusesDamagedParts) {
  expect_refusal("an id in", [](Json& file) { file["model"]["vocab"]["x"] = -1; });
  expect_refusal("an id in", [](Json& file) { file["model"]["vocab"]["x"] = 1LL << 40; });
  expect_refusal("near the number of tokens", [](Json& file) { file["model"]["vocab"]["x"] = 1LL << 23; });
  expect_refusal("one token for each id", [](Json& file) { file["model"]["vocab"]["strange"] = 7; });
  expect_refusal("merge 0", [](Json& file) { file["model"]["merges"][0] = {"a"}; });
  expect_refusal("merge 0", [](Json& file) { file["model"]["merges"][0] = "no such"; });
  expect_refusal("a list of merges", [](Json& file) { file["model"].erase("merges"); });
  expect_refusal("'vocab'", [](Json& file) { file["model"]["vocab"] = Json::object(); });
  expect_refusal("1 to 1024 bytes",
                 [](Json& file) { file["added_tokens"][0]["content"] = std::string(2000, 'x'); });
  expect_refusal("added token", [](Json& file) { file["added_tokens"][0]["id"] = 12; });
  expect_refusal("true or false", [](Json& file) { file["added_tokens"][0]["lstrip"] = 1; });
  expect_refusal(
      "unk_token", [](Json& file) { file["model"]["unk_token"] = "nowhere"; }, 0);
  expect_refusal(
      "one text", [](Json& file) { file["post_processor"]["single"] = Json::array(); }, 0);
  expect_refusal(
      "known tokens", [](Json& file) { file["post_processor"]["special_tokens"]["[CLS]"]["ids"] = {99999}; },
      0);
  expect_refusal("known token for the padding", [](Json& file) { file["padding"] = {{"pad_id", 99999}}; });
  expect_refusal(
      "in 0..1024", [](Json& file) { file["model"]["max_input_chars_per_word"] = 1025; }, 0);
  expect_file_error("JSON", [] { Tokenizer::from_json("{"); });
  expect_file_error("deeper", [] { Tokenizer::from_json(std::string(200, '[')); });
}

TEST(TokenizerJson, TakesOlderForms) {
  Json file = Json::parse(golden().at("cases")[1].at("tokenizer").get<std::string>());
  const auto now = Tokenizer::from_json(file.dump());
  for (Json& merge : file["model"]["merges"])
    merge = merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
  file["model"].erase("type");
  const auto then = Tokenizer::from_json(file.dump());
  EXPECT_EQ(then.encode("the word look").ids, now.encode("the word look").ids);
}

}  // namespace
