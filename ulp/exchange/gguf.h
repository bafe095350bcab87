// GGUF files, as llama.cpp and its relatives run: weights of 4 to 8 bits in, GPT-2-like models out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/quant/weights/quantized_weight.h"

namespace torch::nn {
class Module;
}

namespace ulp {
namespace graph {
class GraphModule;
}
namespace io {
class Tokenizer;
}
}  // namespace ulp

namespace ulp::exchange {

/// A tensor of a GGUF file.
struct GgufTensor {
  std::string name;
  std::string type;   ///< as stored: one of formats::ggml_types()
  at::Tensor values;  ///< f32, the numbers that the codes stand for, bit for bit those of gguf
  /// Of matrices the same numbers, bit for bit, as codes: Q4_0 and Q4_K, which has minima, in 4 bits, Q8_0 and Q6_K in 8, in groups of
  /// 32, and of 16 in Q6_K.
  std::optional<quant::StoredQuantizedWeight> codes{};
};

struct GgufModel {
  std::string metadata;             ///< the file's keys and values as a JSON object
  std::vector<GgufTensor> tensors;  ///< in the order of the file

  /// Null when there is none of that name.
  ULP_API const GgufTensor* find(std::string_view name) const;
};

/// Reads versions 2 and 3. Throws FileError that names the file and the place for one that is missing, damaged or hostile, and that names
/// the tensor for other types of codes.
ULP_API GgufModel import_gguf(const std::filesystem::path& path);
/// The same from memory; `source` stands for the file in messages.
ULP_API GgufModel import_gguf(std::string_view bytes, const std::string& source);

/// The tensors of a GPT-2 file under the names of models::make_gpt2(), matrices turned to (in, out): for
/// io::assign_pretrained(). Throws FileError for another architecture, and for a tensor that GPT-2 has not.
ULP_API std::vector<std::pair<std::string, at::Tensor>> gpt2_tensors(const GgufModel& file);

/// The codes of such a file under the same names, for quant::read_quantized_weights(): of the matrices of
/// linear layers, and of the table of words. Throws as gpt2_tensors().
ULP_API std::map<std::string, quant::StoredQuantizedWeight> gpt2_quantized_weights(const GgufModel& file);

/// How the matrices of a model are stored.
enum class GgufType { f32, q8_0, q4_0 };

/// What is said of a tokenizer beside its tokenizer.json. Empty: nothing.
struct GgufVocabulary {
  std::string bos = {}, eos = {};          ///< first and last token of a text
  std::string unknown = {}, padding = {};  ///< tokens for what has none, and for places without text
  std::optional<bool> add_bos = {},
                      add_eos =
                          {};  ///< whether readers add them; by default as the tokenizer's template does
  std::map<std::string, std::string> chat_templates = {};  ///< by name; "default" for the usual one
};

/// What transformers' tokenizer_config.json, special_tokens_map.json and chat_template.jinja in a folder say; those that are missing say
/// nothing. Throws FileError for one that is damaged.
ULP_API GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& folder);

struct GgufOptions {
  GgufType type = GgufType::q8_0;
  int64_t heads = 0;         ///< of attention, which no tensor tells; must divide the width
  std::string name = "ulp";  ///< "general.name"
  std::shared_ptr<const io::Tokenizer> tokenizer =
      nullptr;  ///< of byte pairs: its tokens and merges are written, too
  GgufVocabulary words =
      {};  ///< of the tokenizer; without first and last tokens both are <|endoftext|>, if there is one
};

/// Writes a model of GPT-2's parameter names (models::make_gpt2()) as llama.cpp names and turns them, atomically. Matrices whose rows are
/// whole blocks of 32 are stored as `type`, all others, vectors and the table of positions in f32. Of a tokenizer, tokens, their kinds, merges,
/// first and last tokens and chat templates are written as llama.cpp's converter does; rows of the table of words without a token are called
/// [PADn]. Throws Error for another model, heads that do not divide its width, values that are not finite, a tokenizer of another kind or
/// with more tokens than rows, words that name no token, and a tokenizer with options that readers of such files do not know (add_prefix_space,
/// use_regex, ignore_merges; lstrip, rstrip or single_word of a token; a template of more than one token at an end), and where AtomicFile does.
ULP_API void export_gguf(const torch::nn::Module& model, const std::filesystem::path& path,
                         const GgufOptions& options);

/// The heads of a captured model's attention, for GgufOptions::heads: those of its first aten::scaled_dot_product_attention. Throws Error
/// for a model without it, and where its number of heads is no constant.
ULP_API int64_t attention_heads(const graph::GraphModule& model);

}  // namespace ulp::exchange

template <>
struct ulp::EnumNames<ulp::exchange::GgufType> {
  static constexpr std::array<Word<exchange::GgufType>, 3> list = {{{exchange::GgufType::f32, "f32"},
                                                                    {exchange::GgufType::q8_0, "q8_0"},
                                                                    {exchange::GgufType::q4_0, "q4_0"}}};
};
