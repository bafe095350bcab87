#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/exchange/gguf.h"
#include "ulp/exchange/gguf/gguf_names.h"
#include "ulp/exchange/gguf/gguf_reader.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/tokenizer/tokenizer.h"

namespace ulp::exchange {

namespace {

using gguf::ValueType;

constexpr const char* kExportGgufWhere = "exchange.export_gguf";
constexpr uint32_t kVersion = 3;
constexpr float kEpsilon = 1e-5F;  // of GPT-2's layer norms

/// Collects the bytes before the tensors.
class Header {
 public:
  template <typename Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number<uint64_t>(value.size());
    bytes_ += value;
  }
  void pair(const std::string& key, const std::string& value) {
    begin(key, ValueType::text);
    text(value);
  }
  void pair(const std::string& key, uint32_t value) {
    begin(key, ValueType::u32);
    number(value);
  }
  void pair(const std::string& key, float value) {
    begin(key, ValueType::f32);
    number(value);
  }
  void pair(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, ValueType::text, values.size());
    for (const std::string& value : values) text(value);
  }
  void pair(const std::string& key, const std::vector<int32_t>& values) {
    begin_array(key, ValueType::i32, values.size());
    for (const int32_t value : values) number(value);
  }
  const std::string& bytes() const { return bytes_; }
  uint64_t pairs() const { return pairs_; }

 private:
  void begin(const std::string& key, ValueType type) {
    ++pairs_;
    text(key);
    number(static_cast<uint32_t>(type));
  }
  void begin_array(const std::string& key, ValueType type, size_t count) {
    begin(key, ValueType::array);
    number(static_cast<uint32_t>(type));
    number<uint64_t>(count);
  }

  std::string bytes_;
  uint64_t pairs_ = 0;
};

struct StoredTensor {
  std::string name;
  const formats::GgmlType* type;
  std::vector<int64_t> shape;
  std::string bytes;
};

size_t padding_of(size_t size) {
  constexpr auto kAlign = static_cast<size_t>(gguf::kAlignment);
  return (kAlign - size % kAlign) % kAlign;
}

StoredTensor stored(const std::string& name, const at::Tensor& tensor, GgufType wanted) {
  const auto place = gguf::gguf_name(name);
  if (!place) fail(kExportGgufWhere, "expected a model with GPT-2's parameters, got '", name, "'");
  at::Tensor values = tensor.detach().cpu().to(at::kFloat);
  if (place->turned) values = values.t();
  values = values.contiguous();
  const bool blocks =
      wanted != GgufType::f32 && values.dim() == 2 && values.size(1) % 32 == 0 && name != "wpe.weight";
  const char* const type = !blocks ? "F32" : wanted == GgufType::q8_0 ? "Q8_0" : "Q4_0";
  StoredTensor made{place->name, formats::find_ggml_type(type), values.sizes().vec(), {}};
  const auto count = static_cast<size_t>(values.numel());
  const float* data = values.const_data_ptr<float>();
  if (!at::isfinite(values).all().item<bool>())
    fail(kExportGgufWhere, "expected finite values, got others in '", name, "'");
  made.bytes.resize(count / static_cast<size_t>(made.type->elements) * static_cast<size_t>(made.type->bytes));
  if (!blocks) {
    std::memcpy(made.bytes.data(), data, made.bytes.size());
    return made;
  }
  try {
    formats::encode_ggml(*made.type, {data, count}, std::as_writable_bytes(std::span(made.bytes)));
  } catch (const Error& error) {
    fail(kExportGgufWhere, "'", name, "': ", error.what());
  }
  return made;
}

/// What llama.cpp's files say of a token.
enum class GgmlToken : int32_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

/// Each pair of pieces, as "a b"; tokenizer.json has it so, or as a list of two.
std::vector<std::string> merges_of(const nlohmann::json& tokenizer) {
  std::vector<std::string> merges;
  for (const nlohmann::json& merge : tokenizer.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + ' ' + merge.at(1).get<std::string>());
  }
  return merges;
}

/// The vocabulary of byte pairs, one token for each row of the table of words, as llama.cpp's converter writes it.
void write_tokenizer(Header& header, const io::Tokenizer& tokenizer, int64_t rows) {
  if (tokenizer.kind() != io::TokenizerKind::byte_level_bpe || tokenizer.vocab_size() > rows)
    fail(kExportGgufWhere, "expected a tokenizer of byte pairs with at most ", rows, " tokens, got ",
         tokenizer.vocab_size(), tokenizer.kind() == io::TokenizerKind::wordpiece ? " of WordPiece" : "");
  const auto json = nlohmann::json::parse(tokenizer.to_json());
  std::vector<std::string> tokens;
  std::vector<GgmlToken> kinds;
  for (int64_t id = 0; id < rows; ++id) {
    const std::optional<std::string> token = tokenizer.token_of(id);
    tokens.push_back(token.value_or("[PAD" + std::to_string(id) + "]"));
    kinds.push_back(token ? GgmlToken::normal : GgmlToken::unused);
  }
  for (const nlohmann::json& added : json.value("added_tokens", nlohmann::json::array())) {
    const auto id = added.at("id").get<size_t>();
    if (id < kinds.size())
      kinds[id] = added.value("special", false) ? GgmlToken::control : GgmlToken::user_defined;
  }
  header.pair("tokenizer.ggml.model", std::string("gpt2"));
  header.pair("tokenizer.ggml.pre", std::string("gpt-2"));
  header.pair("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> numbers;
  for (const GgmlToken kind : kinds) numbers.push_back(static_cast<int32_t>(kind));
  header.pair("tokenizer.ggml.token_type", numbers);
  header.pair("tokenizer.ggml.merges", merges_of(json));
  if (const std::optional<int64_t> end = tokenizer.id_of("<|endoftext|>")) {
    header.pair("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*end));
    header.pair("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(*end));
  }
}

}  // namespace

void export_gguf(const torch::nn::Module& model, const std::filesystem::path& path,
                 const GgufOptions& options) {
  std::map<std::string, at::Tensor> own;
  std::vector<StoredTensor> tensors;
  uint32_t blocks = 0;
  for (const auto& item : model.named_parameters()) {
    own.emplace(item.key(), item.value());
    tensors.push_back(stored(item.key(), item.value(), options.type));
    blocks += item.key().ends_with(".ln_1.weight") ? 1 : 0;
  }
  for (const char* const name : {"wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"})
    if (!own.contains(name) || own.at(name).dim() != 2)
      fail(kExportGgufWhere, "expected a model with GPT-2's matrix '", name, "'");
  const int64_t width = own.at("wte.weight").size(1);
  if (options.heads < 1 || width % options.heads != 0)
    fail(kExportGgufWhere, "expected heads that divide the width ", width, ", got ", options.heads);
  Header header;
  header.pair("general.architecture", std::string("gpt2"));
  header.pair("general.name", options.name);
  header.pair("general.quantization_version", 2U);
  // The numbers of llama.cpp's LLAMA_FTYPE: all f32, mostly Q4_0, mostly Q8_0.
  header.pair("general.file_type", options.type == GgufType::f32    ? 0U
                                   : options.type == GgufType::q4_0 ? 2U
                                                                    : 7U);
  header.pair("gpt2.context_length", static_cast<uint32_t>(own.at("wpe.weight").size(0)));
  header.pair("gpt2.embedding_length", static_cast<uint32_t>(width));
  header.pair("gpt2.feed_forward_length", static_cast<uint32_t>(own.at("h.0.mlp.c_fc.weight").size(1)));
  header.pair("gpt2.block_count", blocks);
  header.pair("gpt2.attention.head_count", static_cast<uint32_t>(options.heads));
  header.pair("gpt2.attention.layer_norm_epsilon", kEpsilon);
  header.pair("gpt2.vocab_size", static_cast<uint32_t>(own.at("wte.weight").size(0)));
  if (options.tokenizer) write_tokenizer(header, *options.tokenizer, own.at("wte.weight").size(0));
  Header start;
  start.number(kVersion);
  start.number<uint64_t>(tensors.size());
  start.number(header.pairs());
  uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      header.number<uint64_t>(static_cast<uint64_t>(*size));
    header.number(tensor.type->code);
    header.number(offset);
    offset += tensor.bytes.size() + padding_of(tensor.bytes.size());
  }
  AtomicFile file(path);
  const auto write = [&](const std::string& bytes) {
    file.write(bytes);
    file.write(std::string(padding_of(bytes.size()), '\0'));
  };
  write("GGUF" + start.bytes() + header.bytes());
  for (const StoredTensor& tensor : tensors) write(tensor.bytes);
  file.commit();
}

int64_t attention_heads(const graph::GraphModule& model) {
  constexpr const char* kHere = "exchange.attention_heads";
  for (const auto& node : model.graph().nodes()) {
    if (!node->is("aten::scaled_dot_product_attention")) continue;
    const graph::Value* query = node->arg("query").value;
    constexpr size_t kHeads = 1, kDims = 4;  // [batch, heads, time, features]
    if (!query->meta || query->meta->sizes.size() != kDims || !query->meta->sizes[kHeads].constant())
      fail(kHere, "expected queries of [batch, heads, time, features] in ", graph::describe(*node));
    return query->meta->sizes[kHeads].offset;
  }
  fail(kHere, "expected a model with attention, got one without aten::scaled_dot_product_attention");
}

}  // namespace ulp::exchange
