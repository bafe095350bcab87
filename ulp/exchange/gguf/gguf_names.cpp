#include "ulp/exchange/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ulp::exchange::gguf {

namespace {

struct Pair {
  std::string_view gguf, gpt2;
  bool matrix = false;  ///< its weight is turned
};

/// Of the whole network, with ".weight" or ".bias" behind.
constexpr std::array<Pair, 4> kWhole = {
    {{"token_embd", "wte"}, {"position_embd", "wpe"}, {"output_norm", "ln_f"}, {"output", "lm_head"}}};
/// Of a block.
constexpr std::array<Pair, 6> kBlock = {{{"attn_norm", "ln_1"},
                                         {"attn_qkv", "attn.c_attn", true},
                                         {"attn_output", "attn.c_proj", true},
                                         {"ffn_norm", "ln_2"},
                                         {"ffn_up", "mlp.c_fc", true},
                                         {"ffn_down", "mlp.c_proj", true}}};

template <typename Table>
std::optional<TensorName> translate(std::string_view name, const Table& table, bool to_gpt2,
                                    const std::string& prefix) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view layer = name.substr(0, dot), part = name.substr(dot + 1);
  if (part != "weight" && part != "bias") return std::nullopt;
  const auto found = std::find_if(table.begin(), table.end(), [&](const Pair& pair) {
    return (to_gpt2 ? pair.gguf : pair.gpt2) == layer;
  });
  if (found == table.end()) return std::nullopt;
  return TensorName{prefix + std::string(to_gpt2 ? found->gpt2 : found->gguf) + '.' + std::string(part),
                    found->matrix && part == "weight"};
}

std::optional<TensorName> rename(std::string_view name, bool to_gpt2) {
  const std::string_view from = to_gpt2 ? "blk." : "h.", to = to_gpt2 ? "h." : "blk.";
  if (!name.starts_with(from)) return translate(name, kWhole, to_gpt2, "");
  const size_t dot = name.find('.', from.size());
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view number = name.substr(from.size(), dot - from.size());
  const bool digits = !number.empty() &&
                      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return std::nullopt;
  return translate(name.substr(dot + 1), kBlock, to_gpt2, std::string(to) + std::string(number) + '.');
}

}  // namespace

std::optional<TensorName> gpt2_name(const std::string& gguf) {
  return rename(gguf, true);
}

std::optional<TensorName> gguf_name(const std::string& gpt2) {
  return rename(gpt2, false);
}

}  // namespace ulp::exchange::gguf
