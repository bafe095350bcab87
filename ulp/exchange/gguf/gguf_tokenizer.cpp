#include "ulp/exchange/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"
#include "ulp/io/tokenizer/tokenizer.h"

namespace ulp::exchange {

namespace {

using gguf::Header;
using nlohmann::json;

constexpr const char* kTokenizerOutWhere = "exchange.export_gguf";
constexpr const char* kWordsWhere = "exchange.read_gguf_vocabulary";
constexpr uintmax_t kMostConfigBytes = uintmax_t{1} << 24;

/// What llama.cpp's files say of a token.
enum class GgmlToken : int32_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

/// Each pair of pieces, as "a b"; tokenizer.json has it so, or as a list of two.
std::vector<std::string> merges_of(const json& tokenizer) {
  std::vector<std::string> merges;
  for (const json& merge : tokenizer.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + ' ' + merge.at(1).get<std::string>());
  }
  return merges;
}

/// The added tokens of tokenizer.json, which may have null in the place of a list.
json added_of(const json& tokenizer) {
  const auto found = tokenizer.find("added_tokens");
  return found == tokenizer.end() || !found->is_array() ? json::array() : *found;
}

/// A flag of an object; `missing` where it has none.
bool flag_in(const json& object, const char* key, bool missing) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_boolean()) return missing;
  return object[key].get<bool>();
}

/// GGUF names a way to cut texts into words ("gpt-2"); options of tokenizer.json that change it have no key
/// that readers heed: llama.cpp and transformers add no space before texts of byte pairs, whatever
/// "add_space_prefix" says.
void expect_plain(const json& tokenizer) {
  const auto expect = [](const json& part, const char* key, bool wanted, bool missing) {
    if (flag_in(part, key, missing) != wanted)
      fail(kTokenizerOutWhere, "expected a tokenizer with ", key, " ", wanted ? "true" : "false",
           ", since readers of GGUF know no other, got ", wanted ? "false" : "true");
  };
  const json splitter = tokenizer.value("pre_tokenizer", json());
  expect(splitter, "add_prefix_space", /*wanted=*/false, /*missing=*/true);
  expect(splitter, "use_regex", /*wanted=*/true, /*missing=*/true);
  expect(tokenizer.at("model"), "ignore_merges", /*wanted=*/false, /*missing=*/false);
  for (const json& added : added_of(tokenizer)) {
    for (const char* const key : {"lstrip", "rstrip", "single_word"}) {
      if (flag_in(added, key, false))
        fail(kTokenizerOutWhere, "expected added tokens without ", key, ", for which GGUF has no word, got '",
             added.at("content").get<std::string>(), "'");
    }
  }
}

/// What the tokenizer's template puts before and behind a text.
struct Around {
  std::vector<int64_t> before, behind;
};
Around around_of(const io::Tokenizer& tokenizer) {
  std::string text;
  constexpr char kFirstPrintable = '!', kLastPrintable = '~';
  for (char c = kFirstPrintable; c <= kLastPrintable; ++c) {
    text = c;
    if (!tokenizer.encode(text, /*special=*/false).ids.empty()) break;
  }
  const std::vector<int64_t> own = tokenizer.encode(text, /*special=*/false).ids;
  const std::vector<int64_t> whole = tokenizer.encode(text).ids;
  const auto found = std::search(whole.begin(), whole.end(), own.begin(), own.end());
  return {{whole.begin(), found}, {found + std::ssize(own), whole.end()}};
}

/// The id of a token that the words name; nothing where they name none.
std::optional<int64_t> named(const io::Tokenizer& tokenizer, const std::string& token, const char* what) {
  if (token.empty()) return std::nullopt;
  const std::optional<int64_t> id = tokenizer.id_of(token);
  if (!id)
    fail(kTokenizerOutWhere, "expected the ", what, " among the tokenizer's tokens, got '", token, "'");
  return id;
}

/// Whether readers are to add the token at one end, and its id.
struct End {
  std::optional<int64_t> id;
  bool added = false;
};
End end_of(const std::vector<int64_t>& of_template, std::optional<int64_t> id, std::optional<bool> added,
           const char* what) {
  if (of_template.size() > 1)
    fail(kTokenizerOutWhere, "expected a template with at most one ", what, ", got ", of_template.size());
  if (!id && !of_template.empty()) id = of_template[0];
  const bool adds = added.value_or(!of_template.empty());
  if (adds && (!id || (!of_template.empty() && of_template[0] != *id)))
    fail(kTokenizerOutWhere, "expected a known ", what, " that the template adds, got ",
         id ? std::to_string(*id) + " beside the template's " + std::to_string(of_template[0]) : "none");
  if (!adds && !of_template.empty())
    fail(kTokenizerOutWhere, "expected a ", what, " that is added as the tokenizer's template adds ",
         of_template[0], ", got a word that it is not");
  return {id, adds};
}

void write_ends(Header& header, const io::Tokenizer& tokenizer, const GgufVocabulary& words) {
  // Without a word about any of them, GPT-2's.
  const bool silent = words.bos.empty() && words.eos.empty() && !words.add_bos && !words.add_eos;
  const std::optional<int64_t> usual = silent ? tokenizer.id_of("<|endoftext|>") : std::nullopt;
  const auto first = named(tokenizer, words.bos, "first token of texts");
  const auto last = named(tokenizer, words.eos, "last token of texts");
  const Around around = around_of(tokenizer);
  const bool by_template = !around.before.empty() || !around.behind.empty();
  const End begin = end_of(around.before,
                           first         ? first
                           : by_template ? std::nullopt
                                         : usual,
                           words.add_bos, "first token");
  const End end = end_of(around.behind,
                         last          ? last
                         : by_template ? std::nullopt
                                       : usual,
                         words.add_eos, "last token");
  if (begin.id) header.pair("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*begin.id));
  if (end.id) header.pair("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(*end.id));
  header.pair("tokenizer.ggml.add_bos_token", begin.added);
  header.pair("tokenizer.ggml.add_eos_token", end.added);
}

/// "default" has a key of its own, others one with their name in letters, digits and underscores.
void write_templates(Header& header, const std::map<std::string, std::string>& templates) {
  std::vector<std::string> others;
  std::map<std::string, std::string> names;  // of the keys
  for (const auto& [name, text] : templates) {
    if (name == "default") {
      header.pair("tokenizer.chat_template", text);
      continue;
    }
    std::string plain = name;
    for (char& c : plain) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!letter) c = '_';
    }
    const auto [taken, first] = names.emplace(plain, name);
    if (!first)
      fail(kTokenizerOutWhere, "expected templates whose names differ in letters and digits, got '", name,
           "' beside '", taken->second, "', which have one key");
    header.pair("tokenizer.chat_template." + plain, text);
    others.push_back(plain);
  }
  if (!others.empty()) header.pair("tokenizer.chat_templates", others);
}

/// A token as these files have it: a text, or an object with its "content".
std::string token_in(const json& file, const std::string& key) {
  const auto found = file.find(key);
  if (found == file.end()) return {};
  const json& token = found->is_object() ? found->value("content", json()) : *found;
  return token.is_string() ? token.get<std::string>() : std::string();
}

/// The JSON object of a file; an empty one where there is no such file.
json object_of(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return json::object();
  json made = parse_json_or_discarded(read_file(kWordsWhere, path, kMostConfigBytes));
  if (!made.is_object()) fail_file(kWordsWhere, "expected an object in JSON in '", path.string(), "'");
  return made;
}

void read_templates(const json& value, const std::string& source, GgufVocabulary& words) {
  if (value.is_null()) return;
  if (value.is_string()) {
    words.chat_templates["default"] = value.get<std::string>();
    return;
  }
  const auto is_template = [](const json& one) {
    return one.is_object() && one.contains("name") && one["name"].is_string() && one.contains("template") &&
           one["template"].is_string();
  };
  if (!value.is_array() || !std::ranges::all_of(value, is_template))
    fail_file(kWordsWhere, "expected a text, or a list of names and texts, as chat_template in '", source,
              "'");
  for (const json& one : value) words.chat_templates[one["name"]] = one["template"].get<std::string>();
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  const json config = object_of(path), map = object_of(folder / "special_tokens_map.json");
  GgufVocabulary words;
  for (const auto& [key, token] :
       {std::pair("bos_token", &GgufVocabulary::bos), std::pair("eos_token", &GgufVocabulary::eos),
        std::pair("unk_token", &GgufVocabulary::unknown), std::pair("pad_token", &GgufVocabulary::padding)}) {
    words.*token = token_in(config, key);
    if ((words.*token).empty()) words.*token = token_in(map, key);
  }
  for (const auto& [key, flag] : {std::pair("add_bos_token", &GgufVocabulary::add_bos),
                                  std::pair("add_eos_token", &GgufVocabulary::add_eos)}) {
    if (const auto found = config.find(key); found != config.end() && found->is_boolean())
      words.*flag = found->get<bool>();
  }
  read_templates(config.value("chat_template", json()), path.string(), words);
  if (words.chat_templates.empty() && std::filesystem::exists(jinja))
    words.chat_templates["default"] = read_file(kWordsWhere, jinja, kMostConfigBytes);
  return words;
}

void gguf::write_tokenizer(Header& header, const io::Tokenizer& tokenizer, const GgufVocabulary& words,
                           int64_t rows) {
  if (tokenizer.kind() != io::TokenizerKind::byte_level_bpe || tokenizer.vocab_size() > rows)
    fail(kTokenizerOutWhere, "expected a tokenizer of byte pairs with at most ", rows, " tokens, got ",
         tokenizer.vocab_size(), tokenizer.kind() == io::TokenizerKind::wordpiece ? " of WordPiece" : "");
  const auto file = json::parse(tokenizer.to_json());
  expect_plain(file);
  std::vector<std::string> tokens;
  std::vector<GgmlToken> kinds;
  for (int64_t id = 0; id < rows; ++id) {
    const std::optional<std::string> token = tokenizer.token_of(id);
    tokens.push_back(token.value_or("[PAD" + std::to_string(id) + "]"));
    kinds.push_back(token ? GgmlToken::normal : GgmlToken::unused);
  }
  for (const json& added : added_of(file)) {
    const auto id = added.at("id").get<size_t>();
    if (id < kinds.size())
      kinds[id] = flag_in(added, "special", false) ? GgmlToken::control : GgmlToken::user_defined;
  }
  // The pre_tokenizer of every tokenizer of byte pairs that io::Tokenizer reads.
  header.pair("tokenizer.ggml.model", std::string("gpt2"));
  header.pair("tokenizer.ggml.pre", std::string("gpt-2"));
  header.pair("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> numbers;
  for (const GgmlToken kind : kinds) numbers.push_back(static_cast<int32_t>(kind));
  header.pair("tokenizer.ggml.token_type", numbers);
  header.pair("tokenizer.ggml.merges", merges_of(file));
  write_ends(header, tokenizer, words);
  const json& unknown = file.at("model").value("unk_token", json());
  const std::string own = unknown.is_string() ? unknown.get<std::string>() : std::string();
  if (const auto id = named(tokenizer, words.unknown.empty() ? own : words.unknown, "unknown token"))
    header.pair("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*id));
  std::optional<int64_t> filling = named(tokenizer, words.padding, "padding token");
  if (const json& padding = file.value("padding", json()); !filling && padding.is_object())
    filling = tokenizer.padding();
  if (filling) header.pair("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(*filling));
  write_templates(header, words.chat_templates);
}

}  // namespace ulp::exchange
