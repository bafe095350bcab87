#include "ulp/lora/lora_model.h"

#include <torch/types.h>

#include <cstring>
#include <set>

namespace ulp::lora {

namespace {

/// FNV-1a over words of 8 bytes.
class Checksum {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at, sizeof word);
      mix(word);
    }
    for (; bytes > 0; --bytes, ++at) mix(*at);
  }
  uint64_t value() const { return value_; }

 private:
  void mix(uint64_t word) {
    constexpr uint64_t kPrime = 0x100000001b3;
    value_ = (value_ ^ word) * kPrime;
    value_ ^= value_ >> 29;  // high bits reach the low ones
  }
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

LoraModel::LoraModel(std::shared_ptr<graph::Graph> graph, LoraOptions options, std::vector<LoraLayer> layers,
                     LoraBaseModel base, std::vector<std::string> notes)
    : graph::GraphModule(std::move(graph), std::move(notes)),
      options_(std::move(options)),
      layers_(std::move(layers)),
      base_(std::move(base)) {}

at::Tensor LoraModel::a(const LoraLayer& layer) const {
  return graph().find_attribute(layer.a)->tensor;
}

at::Tensor LoraModel::b(const LoraLayer& layer) const {
  return graph().find_attribute(layer.b)->tensor;
}

int64_t LoraModel::adapter_parameters() const {
  int64_t sum = 0;
  for (const LoraLayer& layer : layers_) sum += a(layer).numel() + b(layer).numel();
  return sum;
}

int64_t LoraModel::base_bytes() const {
  int64_t sum = 0;
  std::set<const void*> seen;
  for (const auto& [name, attribute] : graph().attributes()) {
    if (attribute.kind != graph::Attribute::Kind::constant) continue;
    if (seen.insert(attribute.tensor.storage().data()).second)
      sum += static_cast<int64_t>(attribute.tensor.nbytes());
  }
  return sum;
}

uint64_t LoraModel::base_checksum() const {
  Checksum sum;
  for (const auto& [name, attribute] : graph().attributes()) {
    if (attribute.kind != graph::Attribute::Kind::constant) continue;
    const at::Tensor bytes = attribute.tensor.detach().cpu().contiguous();
    sum.add(name.data(), name.size());
    sum.add(bytes.const_data_ptr(), bytes.nbytes());
  }
  return sum.value();
}

}  // namespace ulp::lora
