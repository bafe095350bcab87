#include "ulp/io/tokenizer/train_tokenizer.h"

#include <map>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"
#include "ulp/io/tokenizer/bert_words.h"
#include "ulp/io/tokenizer/byte_words.h"
#include "ulp/io/tokenizer/lines.h"
#include "ulp/io/tokenizer/pair_trainer.h"

namespace ulp::io {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kByteTokens = 256;
/// A file of so many tokens, each with a merge of two, or of twice as many characters, is one that can be read.
constexpr int64_t kMostVocabulary = 128000;
static_assert(4 * kMostVocabulary < static_cast<int64_t>(kMaxJsonValues));
const std::vector<std::string> kBertTokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
const std::vector<std::string> kGptTokens = {"<|endoftext|>"};

BertNormalizer normalizer_of(const TokenizerTraining& options) {
  return {.strip_accents = options.lowercase, .lowercase = options.lowercase};
}

/// The words of the text, line by line.
std::map<std::string, int64_t> count_words(std::string_view text, const TokenizerTraining& options) {
  const bool bert = options.kind == TokenizerKind::wordpiece;
  std::map<std::string, int64_t> counts;
  for_each_line(text, [&](std::string_view bytes) {
    Characters line = characters_of(kTrainTokenizerWhere, bytes);
    if (bert) line = normalizer_of(options).apply(line);
    for (const auto word : bert ? bert_words(line) : byte_level_words(line))
      ++counts[bert ? utf8_of(word) : byte_characters(utf8_of(word))];
  });
  return counts;
}

OrderedJson added_tokens(const std::vector<std::string>& tokens) {
  OrderedJson added = OrderedJson::array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

OrderedJson vocabulary_of(const std::vector<std::string>& tokens) {
  OrderedJson vocabulary = OrderedJson::object();
  auto& members = vocabulary.get_ref<OrderedJson::object_t&>();
  // The tokens differ; operator[] would compare each with all before it.
  for (size_t i = 0; i < tokens.size(); ++i) members.push_back({tokens[i], i});
  return vocabulary;
}

OrderedJson bert_file(const LearnedPairs& learned, const TokenizerTraining& options) {
  const BertNormalizer normalizer = normalizer_of(options);
  const auto special = [](const char* token) {
    return OrderedJson{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  };
  const OrderedJson text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const OrderedJson second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const OrderedJson last = {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 1}}}};
  const auto token = [](const char* name, int64_t id) {
    return OrderedJson{
        {"id", name}, {"ids", OrderedJson::array({id})}, {"tokens", OrderedJson::array({name})}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(kBertTokens)},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", normalizer.clean_text},
            {"handle_chinese_chars", normalizer.handle_chinese_chars},
            {"strip_accents", normalizer.strip_accents},
            {"lowercase", normalizer.lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", OrderedJson::array({special("[CLS]"), text, special("[SEP]")})},
            {"pair", OrderedJson::array({special("[CLS]"), text, special("[SEP]"), second, last})},
            {"special_tokens", {{"[CLS]", token("[CLS]", 2)}, {"[SEP]", token("[SEP]", 3)}}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocabulary_of(learned.tokens)}}}};
}

OrderedJson byte_file(const LearnedPairs& learned) {
  OrderedJson merges = OrderedJson::array();
  for (const auto& [left, right] : learned.merges)
    merges.push_back({learned.tokens[static_cast<size_t>(left)], learned.tokens[static_cast<size_t>(right)]});
  const auto byte_level = [] {
    return OrderedJson{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(kGptTokens)},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level()},
          {"post_processor", byte_level()},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary_of(learned.tokens)},
            {"merges", std::move(merges)}}}};
}

}  // namespace

void TokenizerTraining::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "kind", .help = "How texts are cut"}, kind);
  visitor(
      {.name = "vocab_size",
       .help = "Tokens at which merging ends; special tokens and single characters are tokens in any case",
       .min = 2,
       .max = kMostVocabulary},
      vocab_size);
  visitor(
      {.name = "min_frequency", .help = "How often a pair of tokens must be seen to become one", .min = 1},
      min_frequency);
  visitor({.name = "alphabet",
           .help = "wordpiece: so many characters, the most frequent ones",
           .min = 1,
           .max = kMostVocabulary},
          alphabet);
  visitor({.name = "lowercase", .help = "wordpiece: in lower case and without accents"}, lowercase);
}

void TokenizerTraining::validate() const {
  check_limits(kTrainTokenizerWhere, *this);
  if (kind == TokenizerKind::byte_level_bpe && vocab_size <= kByteTokens)
    fail(kTrainTokenizerWhere, "expected vocab_size above ", kByteTokens, ", which are the bytes, got ",
         vocab_size);
}

Tokenizer train_tokenizer(std::string_view text, const TokenizerTraining& options) {
  options.validate();
  const bool bert = options.kind == TokenizerKind::wordpiece;
  const std::map<std::string, int64_t> words = count_words(text, options);
  if (words.empty())
    fail(kTrainTokenizerWhere, "expected a text with words, got ", text.size(), " bytes without one");
  PairTraining training{.vocab_size = options.vocab_size, .min_frequency = options.min_frequency};
  training.special = bert ? kBertTokens : kGptTokens;
  if (bert) {
    training.most_characters = options.alphabet;
    training.prefix = "##";
  } else {
    for (int byte = 0; byte < kByteTokens; ++byte)
      training.alphabet.push_back(character_of_byte(static_cast<uint8_t>(byte)));
  }
  const LearnedPairs learned = learn_pairs(words, training);
  return Tokenizer::from_json((bert ? bert_file(learned, options) : byte_file(learned)).dump(),
                              kTrainTokenizerWhere);
}

Tokenizer train_tokenizer_on(const std::filesystem::path& path, const TokenizerTraining& options) {
  const std::string text = read_file(kTrainTokenizerWhere, path);
  try {
    return train_tokenizer(text, options);
  } catch (const FileError&) {
    throw;
  } catch (const Error& failed) {
    throw FileError(std::string(failed.what()) + " in '" + path.string() + "'", failed.info());
  }
}

}  // namespace ulp::io
