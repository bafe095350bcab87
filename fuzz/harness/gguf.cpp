// GGUF files: what is read has values of its shapes, and codes that stand for them.
#include "ulp/exchange/gguf.h"

#include <torch/types.h>

#include "harness.h"
#include "ulp/quant/weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ulp::fuzz::refused([&] {
    const auto file = ulp::exchange::import_gguf(bytes, "model.gguf");
    for (const auto& tensor : file.tensors) {
      ulp::fuzz::require(tensor.values.scalar_type() == at::kFloat, "numbers in f32");
      if (!tensor.codes) continue;
      const at::Tensor again = ulp::quant::dequantize_weight(*tensor.codes);
      ulp::fuzz::require(again.sizes() == tensor.values.sizes(), "codes of the tensor's shape");
    }
    ulp::fuzz::refused([&] { ulp::exchange::gpt2_tensors(file); });
  });
  return 0;
}
