#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstring>
#include <map>
#include <optional>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/exchange/gguf.h"
#include "ulp/exchange/gguf/gguf_header.h"
#include "ulp/exchange/gguf/gguf_names.h"
#include "ulp/exchange/gguf/gguf_tokenizer.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"

namespace ulp::exchange {

namespace {

using gguf::Header;

constexpr const char* kExportGgufWhere = "exchange.export_gguf";
constexpr uint32_t kVersion = 3;
constexpr float kEpsilon = 1e-5F;  // of GPT-2's layer norms

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
  header.pair("general.type", std::string("model"));
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
  if (options.tokenizer)
    gguf::write_tokenizer(header, *options.tokenizer, options.words, own.at("wte.weight").size(0));
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
