// How low-rank adapters are added to a captured model (Hu et al. 2021, "LoRA"), and in which numbers the
// frozen weights below them are kept (Dettmers et al. 2023, "QLoRA").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::lora {

/// The numbers in which the frozen weights of linear layers are kept.
enum class LoraBase : uint8_t {
  fp32,  ///< the model's own weights, not copied
  bf16,  ///< rounded to bf16
  int8,  ///< codes of 8 bits, a scale for each output channel
  int4,  ///< codes of 4 bits, a scale for each group of a row
  nf4    ///< NormalFloat of 4 bits, a scale for each block of 64 (nf4.h)
};

}  // namespace ulp::lora

template <>
struct ulp::EnumNames<ulp::lora::LoraBase> {
  using enum lora::LoraBase;
  static constexpr std::array<Word<lora::LoraBase>, 5> list = {
      {{fp32, "fp32", "the model's own weights"},
       {bf16, "bf16", "rounded to 16 bits"},
       {int8, "int8", "8 bits, a scale for each output channel"},
       {int4, "int4", "4 bits, a scale for each group of a row"},
       {nf4, "nf4", "4 bits at quantiles of the normal distribution, a scale for each block of 64"}}};
};

namespace ulp::lora {

/// Which layers get adapters, and of which form. y = W x + b + scaling() B A dropout(x), where A is [rank,
/// in] and B [out, rank]. Names and defaults are PEFT's LoraConfig's, where it has the field.
struct ULP_API LoraOptions {
  static constexpr const char* kType = "ulp.lora.LoraOptions";
  static constexpr int64_t kLargestRank = 1 << 20;  ///< beyond it a file lies

  int64_t rank = 8;         ///< PEFT: r
  double alpha = 8;         ///< PEFT: lora_alpha
  double dropout = 0;       ///< of the adapter's input while it trains; PEFT: lora_dropout
  bool use_rslora = false;  ///< scaling is alpha / sqrt(rank) (Kalajdzievski 2023)
  /// Names of modules: a module is meant whose path is this or ends in '.' and this. "all-linear" alone: all
  /// linear layers but the last one of the network.
  std::vector<std::string> target_modules = {};
  LoraBase base = LoraBase::fp32;
  int64_t group = 32;         ///< int4: neighbours in a row that share a scale; even, or -1: the whole row
  bool double_quant = false;  ///< nf4: the scales of blocks are codes of 8 bits themselves
  /// Paths of modules whose weights are kept in 16 bits where `base` has codes; '*' is any run of characters.
  /// The last layer of the network is always one of them.
  std::vector<std::string> skip_modules = {};

  /// alpha / rank, or alpha / sqrt(rank) with use_rslora.
  double scaling() const;
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.lora.LoraOptions", "version": 1, ...}.
  std::string to_json() const;
  /// Fields that are missing keep their defaults. Throws FileError for text that is no such JSON, an unknown
  /// field, a value of another kind, or a newer version.
  static LoraOptions from_json(const std::string& text);
  bool operator==(const LoraOptions&) const = default;
};

/// Whether target_modules means the module of this path: by name, not by "all-linear".
ULP_API bool is_target(const std::vector<std::string>& target_modules, std::string_view path);

}  // namespace ulp::lora
