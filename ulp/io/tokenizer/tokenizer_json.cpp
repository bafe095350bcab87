// Reading of tokenizer.json. What changes ids and is not known here is refused by name.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"
#include "ulp/io/tokenizer/tokenizer_state.h"

namespace ulp::io {

namespace {

using Json = nlohmann::json;

constexpr const char* kTokenizerWhere = "io.Tokenizer";
/// Of a file: room for kMaxJsonValues values, tokens and merges, of 128 bytes each.
constexpr uintmax_t kMostBytes = 128 * uintmax_t{kMaxJsonValues};
/// An id beyond it would make an embedding of a table that nobody trains.
constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr int64_t kMostRowsPerToken = 4, kFreeRows = int64_t{1} << 18;
constexpr size_t kLongestAdded = 1024;  ///< bytes of an added token
constexpr size_t kMostTemplateIds = 1024;
/// In characters: cutting a word takes time in proportion to its cube. Published files have 100.
constexpr int64_t kLongestWord = 1024;

/// Reads the parts of a file; errors name the file and the part.
class TokenizerReader {
 public:
  TokenizerReader(const Json& file, const std::string& source, TokenizerState& state)
      : file_(file), source_(source), state_(state) {}

  void read();

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file(kTokenizerWhere, parts..., " in '", source_, "'");
  }

  /// The member of an object; null for one that is missing.
  static const Json& member(const Json& object, const char* key) {
    static const Json none;
    if (!object.is_object()) return none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  }
  std::string type_of(const Json& part, const char* what) const {
    const Json& type = member(part, "type");
    if (!type.is_string()) refuse("expected a ", what, " with a type");
    return type.get<std::string>();
  }
  bool flag(const Json& object, const char* key, bool missing) const {
    const Json& value = member(object, key);
    if (value.is_null()) return missing;
    if (!value.is_boolean()) refuse("expected true or false for '", key, "', got ", shown(value));
    return value.get<bool>();
  }
  std::string text(const Json& object, const char* key, const char* what) const {
    const Json& value = member(object, key);
    if (!value.is_string()) refuse("expected a text for '", key, "' of ", what, ", got ", shown(value));
    return value.get<std::string>();
  }
  static std::string shown(const Json& value) {
    std::string dumped = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (dumped.size() > 60) dumped = valid_utf8(std::string_view(dumped).substr(0, 57)) + "...";
    return dumped;
  }
  int64_t id(const Json& value, const std::string& what) const {
    const bool fits =
        value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMostTokens);
    if (!fits) refuse("expected an id in [0, ", kMostTokens, ") for ", what, ", got ", shown(value));
    return value.get<int64_t>();
  }
  /// Refuses an option that has another value than the ones which change nothing.
  void expect_unset(const Json& object, const char* key, const Json& harmless, const char* what) const {
    const Json& value = member(object, key);
    if (!value.is_null() && value != harmless)
      refuse("expected ", what, " without '", key, "', got ", shown(value));
  }

  void read_vocabulary(const Json& model);
  void read_word_piece(const Json& model);
  void read_byte_pairs(const Json& model);
  Merges read_merges(const Json& merges) const;
  void read_added(const Json& added);
  void read_normalizer(const Json& normalizer);
  void read_splitter(const Json& splitter);
  void read_template(const Json& processor, int depth = 0);
  void read_decoder(const Json& decoder);
  void read_padding();
  void name(int64_t id, const std::string& token) {
    state_.names[id] = token;
    state_.vocab_size = std::max(state_.vocab_size, id + 1);
  }

  const Json& file_;
  const std::string& source_;
  TokenizerState& state_;
};

void TokenizerReader::read_vocabulary(const Json& model) {
  const Json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty())
    refuse("expected a model with a 'vocab' of tokens and ids, got ", shown(vocabulary));
  state_.vocabulary.reserve(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    const int64_t number = id(value, "the token '" + token.substr(0, 60) + "'");
    state_.vocabulary.emplace(token, number);
    if (state_.names.contains(number))
      refuse("expected one token for each id, got '", state_.names.at(number), "' and '", token, "' for ",
             number);
    name(number, token);
  }
}

void TokenizerReader::read_word_piece(const Json& model) {
  state_.kind = TokenizerKind::wordpiece;
  read_vocabulary(model);
  WordPiece::Options options;
  options.prefix = text(model, "continuing_subword_prefix", "the model");
  const std::string unknown = text(model, "unk_token", "the model");
  const auto found = find_id(state_.vocabulary, unknown);
  if (!found) refuse("expected the unk_token '", unknown, "' in the vocabulary, got none");
  options.unknown = *found;
  const Json& longest = member(model, "max_input_chars_per_word");
  if (!longest.is_null()) {
    if (!longest.is_number_unsigned() || longest.get<uint64_t>() > static_cast<uint64_t>(kLongestWord))
      refuse("expected max_input_chars_per_word in 0..", kLongestWord, ", got ", shown(longest));
    options.longest_word = longest.get<int64_t>();
  }
  state_.model.emplace(std::in_place_type<WordPiece>, state_.vocabulary, options);
}

Merges TokenizerReader::read_merges(const Json& merges) const {
  if (!merges.is_array()) refuse("expected a list of merges, got ", shown(merges));
  Merges made;
  made.reserve(merges.size());
  uint32_t rank = 0;
  for (const Json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {  // the older form
      const std::string both = merge.get<std::string>();
      const size_t space = both.find(' ');
      if (space != std::string::npos && both.find(' ', space + 1) == std::string::npos) {
        left = both.substr(0, space);
        right = both.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    const auto from = find_id(state_.vocabulary, left), with = find_id(state_.vocabulary, right),
               to = find_id(state_.vocabulary, left + right);
    if (!from || !with || !to)
      refuse("expected two tokens whose joint is a token for merge ", rank, ", got ", shown(merge));
    made[pair_of(*from, *with)] = {rank++, *to};
  }
  return made;
}

void TokenizerReader::read_byte_pairs(const Json& model) {
  state_.kind = TokenizerKind::byte_level_bpe;
  read_vocabulary(model);
  expect_unset(model, "dropout", 0, "a model");
  expect_unset(model, "continuing_subword_prefix", "", "a byte-level model");
  expect_unset(model, "end_of_word_suffix", "", "a byte-level model");
  expect_unset(model, "byte_fallback", false, "a byte-level model");
  BytePairs::Options options{.fuse_unknown = flag(model, "fuse_unk", false),
                             .whole_words = flag(model, "ignore_merges", false)};
  if (!member(model, "unk_token").is_null()) {
    const std::string unknown = text(model, "unk_token", "the model");
    options.unknown = find_id(state_.vocabulary, unknown);
    if (!options.unknown) refuse("expected the unk_token '", unknown, "' in the vocabulary, got none");
  }
  state_.model.emplace(std::in_place_type<BytePairs>, state_.vocabulary, read_merges(member(model, "merges")),
                       options);
}

void TokenizerReader::read_added(const Json& added) {
  if (added.is_null()) return;
  if (!added.is_array()) refuse("expected a list of added_tokens, got ", shown(added));
  for (const Json& one : added) {
    AddedToken token{.content = text(one, "content", "an added token")};
    const std::string what = "the added token '" + token.content.substr(0, 60) + "'";
    token.id = id(member(one, "id"), what);
    if (token.content.empty() || token.content.size() > kLongestAdded)
      refuse("expected added tokens of 1 to ", kLongestAdded, " bytes, got ", token.content.size());
    const auto own = find_id(state_.vocabulary, token.content);
    if (own && *own != token.id)
      refuse("expected the id ", *own, " of the vocabulary for ", what, ", got ", token.id);
    const auto other = state_.names.find(token.id);
    if (other != state_.names.end() && other->second != token.content)
      refuse("expected one token for each id, got '", other->second, "' and '", token.content, "' for ",
             token.id);
    token.single_word = flag(one, "single_word", false);
    token.lstrip = flag(one, "lstrip", false);
    token.rstrip = flag(one, "rstrip", false);
    token.special = flag(one, "special", false);
    token.normalized = flag(one, "normalized", !token.special);
    // Hugging Face's decoder gives back what the token looks like when normalized.
    name(token.id, token.normalized ? utf8_of(state_.normalize(characters_of(kTokenizerWhere, token.content)))
                                    : token.content);
    state_.added.push_back(std::move(token));
    state_.by_id[state_.added.back().id] = &state_.added.back();
  }
  // Special ones first: of two tokens that look the same when normalized the first counts.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : state_.added) {
      if (token.special != special) continue;
      const Characters content = characters_of(kTokenizerWhere, token.content);
      if (token.normalized)
        state_.normalized.add(state_.normalize(content), token);
      else
        state_.raw.add(content, token);
    }
  }
}

void TokenizerReader::read_normalizer(const Json& normalizer) {
  if (normalizer.is_null()) return;
  const std::string type = type_of(normalizer, "normalizer");
  if (type != "BertNormalizer" || state_.kind != TokenizerKind::wordpiece)
    refuse("expected the normalizer BertNormalizer before WordPiece, or none, got ", type);
  BertNormalizer made;
  made.clean_text = flag(normalizer, "clean_text", true);
  made.handle_chinese_chars = flag(normalizer, "handle_chinese_chars", true);
  made.lowercase = flag(normalizer, "lowercase", true);
  made.strip_accents = flag(normalizer, "strip_accents", made.lowercase);
  state_.normalizer = made;
}

void TokenizerReader::read_splitter(const Json& splitter) {
  const bool bert = state_.kind == TokenizerKind::wordpiece;
  const char* const wanted = bert ? "BertPreTokenizer" : "ByteLevel";
  const std::string type = splitter.is_null() ? "none" : type_of(splitter, "pre_tokenizer");
  if (type != wanted)
    refuse("expected the pre_tokenizer ", wanted, " before ", bert ? "WordPiece" : "BPE", ", got ", type);
  if (bert) return;
  state_.add_prefix_space = flag(splitter, "add_prefix_space", true);
  state_.splits_words = flag(splitter, "use_regex", true);
}

void TokenizerReader::read_template(const Json& processor, int depth) {
  if (processor.is_null()) return;
  const std::string type = type_of(processor, "post_processor");
  if (type == "ByteLevel") return;  // moves offsets only
  if (type == "Sequence") {
    const Json& parts = member(processor, "processors");
    if (!parts.is_array() || depth > 0) refuse("expected a list of post_processors, got ", shown(processor));
    int templates = 0;
    for (const Json& part : parts) {
      if (type_of(part, "post_processor") != "ByteLevel" && ++templates > 1)
        refuse("expected one template among the post_processors, got another ", shown(part));
      read_template(part, depth + 1);
    }
    return;
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto edge = [&](const char* key) {
      const Json& pair = member(processor, key);
      if (!pair.is_array() || pair.size() != 2)
        refuse("expected a token and its id for '", key, "', got ", shown(pair));
      return TemplatePart{.ids = {id(pair[1], std::string("'") + key + "'")}};
    };
    state_.pattern = {edge("cls"), {.text = true}, edge("sep")};
    return;
  }
  if (type != "TemplateProcessing")
    refuse(
        "expected the post_processor TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or a "
        "Sequence of them, got ",
        type);
  const Json &single = member(processor, "single"), &tokens = member(processor, "special_tokens");
  if (!single.is_array() || single.size() > kMostTemplateIds)
    refuse("expected a list 'single' of up to ", kMostTemplateIds, " parts, got ", shown(single));
  state_.pattern.clear();
  size_t total = 0, texts = 0;
  for (const Json& part : single) {
    if (part.is_object() && part.contains("Sequence")) {
      state_.pattern.push_back({.text = true});
      ++texts;
      continue;
    }
    const std::string called = text(member(part, "SpecialToken"), "id", "a template");
    const Json& ids = member(member(tokens, called.c_str()), "ids");
    if (!ids.is_array()) refuse("expected ids of the template's token '", called, "', got ", shown(ids));
    TemplatePart made;
    for (const Json& one : ids) made.ids.push_back(id(one, "'" + called + "'"));
    total += made.ids.size();
    if (total > kMostTemplateIds) refuse("expected a template of up to ", kMostTemplateIds, " ids, got more");
    state_.pattern.push_back(std::move(made));
  }
  if (texts != 1) refuse("expected a template with one text, got ", texts);
}

void TokenizerReader::read_decoder(const Json& decoder) {
  if (decoder.is_null()) return;
  const std::string type = type_of(decoder, "decoder");
  if (type == "ByteLevel") {
    state_.decoder.kind = TokenDecoder::Kind::byte_level;
  } else if (type == "WordPiece") {
    state_.decoder = {.kind = TokenDecoder::Kind::wordpiece,
                      .prefix = text(decoder, "prefix", "the decoder"),
                      .cleanup = flag(decoder, "cleanup", true)};
  } else {
    refuse("expected the decoder ByteLevel or WordPiece, or none, got ", type);
  }
}

void TokenizerReader::read_padding() {
  const Json& padding = member(file_, "padding");
  if (padding.is_object() && padding.contains("pad_id")) {
    const int64_t own = id(padding.at("pad_id"), "the padding");
    if (!state_.names.contains(own)) refuse("expected a known token for the padding, got the id ", own);
    state_.padding = own;
    return;
  }
  for (const char* const token : {"[PAD]", "<pad>", "<|endoftext|>"}) {
    for (const auto& [number, content] : state_.by_id)
      if (content->content == token) state_.padding = number;
    if (!state_.padding) state_.padding = find_id(state_.vocabulary, token);
    if (state_.padding) return;
  }
}

void TokenizerReader::read() {
  if (!file_.is_object() || !file_.contains("model"))
    refuse("expected a tokenizer.json with a 'model', got ", shown(file_));
  const Json& model = file_.at("model");
  std::string type;
  if (member(model, "type").is_string()) {
    type = member(model, "type").get<std::string>();
  } else {  // files of before 2020 have none
    type = model.is_object() && model.contains("merges") ? "BPE" : "WordPiece";
  }
  if (type == "WordPiece") {
    read_word_piece(model);
  } else if (type == "BPE") {
    read_byte_pairs(model);
  } else {
    refuse("expected a model WordPiece or BPE, got ", type);
  }
  read_normalizer(member(file_, "normalizer"));
  read_splitter(member(file_, "pre_tokenizer"));
  read_added(member(file_, "added_tokens"));
  // A table of a network has a row for each id, used or not.
  const auto tokens = static_cast<int64_t>(state_.names.size());
  if (state_.vocab_size > kMostRowsPerToken * tokens + kFreeRows)
    refuse("expected ids near the number of tokens, ", tokens, ", got the id ", state_.vocab_size - 1);
  read_template(member(file_, "post_processor"));
  for (const TemplatePart& part : state_.pattern)
    for (const int64_t one : part.ids)
      if (!state_.names.contains(one)) refuse("expected a template of known tokens, got the id ", one);
  read_decoder(member(file_, "decoder"));
  read_padding();
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return from_json(read_file(kTokenizerWhere, path, kMostBytes), path.string());
}

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& source) {
  Json file;
  try {
    file = parse_json(text);
  } catch (const Json::exception& error) {
    fail_file(kTokenizerWhere, "expected a tokenizer in JSON in '", source, "': ", error.what());
  }
  const auto state = std::make_shared<TokenizerState>();
  state->json = text;
  TokenizerReader(file, source, *state).read();
  return Tokenizer(state);
}

}  // namespace ulp::io
