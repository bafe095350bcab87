// The names of GPT-2's tensors in GGUF files and in published weights. Internal to the room.
#pragma once

#include <optional>
#include <string>

namespace ulp::exchange::gguf {

struct TensorName {
  std::string name;
  bool turned = false;  ///< a matrix that one stores (out, in) and the other (in, out)
};

/// "blk.0.attn_qkv.weight" -> "h.0.attn.c_attn.weight"; nothing for a name that GPT-2 has not.
std::optional<TensorName> gpt2_name(const std::string& gguf);
/// The other way.
std::optional<TensorName> gguf_name(const std::string& gpt2);

}  // namespace ulp::exchange::gguf
