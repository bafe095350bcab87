#include "ulp/io/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/io/tokenizer/byte_words.h"
#include "ulp/io/tokenizer/lines.h"
#include "ulp/io/tokenizer/tokenizer_state.h"

namespace ulp::io {

namespace {

constexpr const char* kEncode = "io.Tokenizer.encode";

std::string replace_all(const std::string& text, std::string_view from, std::string_view to) {
  std::string made;
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos; done = at + from.size())
    made.append(text, done, at - done).append(to);
  return made.append(text, done);
}

/// What Hugging Face's decoder takes away of spaces, in its order.
void clean_up(std::string& token) {
  constexpr std::array<std::pair<const char*, const char*>, 11> kRules = {{{" .", "."},
                                                                           {" ?", "?"},
                                                                           {" !", "!"},
                                                                           {" ,", ","},
                                                                           {" ' ", "'"},
                                                                           {" n't", "n't"},
                                                                           {" 'm", "'m"},
                                                                           {" do not", " don't"},
                                                                           {" 's", "'s"},
                                                                           {" 've", "'ve"},
                                                                           {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) token = replace_all(token, from, to);
}

/// The bytes that a token of a byte-level vocabulary stands for; its own where one of its characters stands for none.
std::string bytes_of(const std::string& token) {
  std::string bytes;
  for (const Character& character : characters_of("io.Tokenizer.decode", token)) {
    const int byte = byte_of_character(character.code);
    if (byte < 0) return token;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const TokenizerState> state) : state_(std::move(state)) {}

TokenizerKind Tokenizer::kind() const {
  return state_->kind;
}

int64_t Tokenizer::vocab_size() const {
  return state_->vocab_size;
}

std::optional<int64_t> Tokenizer::padding() const {
  return state_->padding;
}

Characters TokenizerState::normalize(std::span<const Character> text) const {
  return normalizer ? normalizer->apply(text) : Characters(text.begin(), text.end());
}

void TokenizerState::encode_text(std::span<const Character> text, Encoding& out) const {
  if (kind == TokenizerKind::wordpiece) {
    for (const auto word : bert_words(text)) std::get<WordPiece>(*model).encode(word, out);
    return;
  }
  Characters with_space;
  if (add_prefix_space && !text.empty() && text.front().code != ' ') {
    with_space.reserve(text.size() + 1);
    with_space.push_back({' ', text.front().begin, text.front().end});
    with_space.insert(with_space.end(), text.begin(), text.end());
    text = with_space;
  }
  const auto words = splits_words ? byte_level_words(text) : std::vector<std::span<const Character>>{text};
  for (const auto word : words) std::get<BytePairs>(*model).encode(word, out);
}

Encoding Tokenizer::encode(std::string_view text, bool special, int64_t most) const {
  const Characters characters = characters_of(kEncode, text);
  Encoding own;
  const auto add = [&](const TextPart& part) {
    own.ids.push_back(part.token->id);
    own.ranges.push_back({part.characters.front().begin, part.characters.back().end});
  };
  for (const TextPart& part : state_->raw.split(characters)) {
    if (part.token != nullptr) {
      add(part);
      continue;
    }
    const Characters normalized = state_->normalize(part.characters);
    for (const TextPart& inner : state_->normalized.split(normalized)) {
      if (inner.token != nullptr)
        add(inner);
      else
        state_->encode_text(inner.characters, own);
    }
  }
  size_t around = 0;
  if (special)
    for (const TemplatePart& part : state_->pattern) around += part.ids.size();
  if (most > 0) {
    const auto limit = static_cast<size_t>(most);
    if (limit < around) fail(kEncode, "expected at least ", around, " tokens for the template, got ", most);
    own.ids.resize(std::min(own.ids.size(), limit - around));
    own.ranges.resize(own.ids.size());
  }
  if (!special) return own;
  Encoding whole;
  for (const TemplatePart& part : state_->pattern) {
    const std::vector<int64_t>& ids = part.text ? own.ids : part.ids;
    whole.ids.insert(whole.ids.end(), ids.begin(), ids.end());
    if (part.text) whole.ranges.insert(whole.ranges.end(), own.ranges.begin(), own.ranges.end());
    whole.ranges.resize(whole.ids.size());
  }
  return whole;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool special) const {
  std::string text;
  bool first = true;
  const TokenDecoder& decoder = state_->decoder;
  for (const int64_t id : ids) {
    const auto name = state_->names.find(id);
    if (name == state_->names.end()) continue;
    const auto added = state_->by_id.find(id);
    if (!special && added != state_->by_id.end() && added->second->special) continue;
    if (decoder.kind == TokenDecoder::Kind::byte_level) {
      text += bytes_of(name->second);
      continue;
    }
    std::string token = name->second;
    if (!first) {
      const bool joins = decoder.kind == TokenDecoder::Kind::wordpiece && token.starts_with(decoder.prefix);
      token = joins ? token.substr(decoder.prefix.size()) : ' ' + token;
    }
    if (decoder.kind == TokenDecoder::Kind::wordpiece && decoder.cleanup) clean_up(token);
    text += token;
    first = false;
  }
  return valid_utf8(text);
}

std::optional<int64_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : state_->added)
    if (added.content == token) return added.id;
  return find_id(state_->vocabulary, token);
}

std::optional<std::string> Tokenizer::token_of(int64_t id) const {
  const auto found = state_->names.find(id);
  return found == state_->names.end() ? std::nullopt : std::optional(found->second);
}

std::vector<int64_t> encode_lines(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int64_t> ids;
  for_each_line(text, [&](std::string_view line) {
    const std::vector<int64_t> own = tokenizer.encode(line, /*special=*/false).ids;
    ids.insert(ids.end(), own.begin(), own.end());
  });
  return ids;
}

}  // namespace ulp::io
