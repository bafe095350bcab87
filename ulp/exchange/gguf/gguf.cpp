#include "ulp/exchange/gguf.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ulp/base/error.h"
#include "ulp/base/read_file.h"
#include "ulp/exchange/gguf/gguf_names.h"
#include "ulp/exchange/gguf/gguf_reader.h"

namespace ulp::exchange {

namespace {

constexpr const char* kImportGgufWhere = "exchange.import_gguf";

/// Names of types by ggml's number; empty for those that ggml removed.
std::string ggml_type_name(uint32_t code) {
  static constexpr const char* kNames[] = {
      "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
      "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
      "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
      "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0"};
  const std::string name = code < std::size(kNames) ? kNames[code] : "";
  return name.empty() ? "type " + std::to_string(code) + ", which ggml does not define" : name;
}

/// Plain numbers.
at::Tensor plain_values(const gguf::FileTensor& tensor) {
  const std::string_view type = tensor.type->name;
  const at::ScalarType dtype = type == "F32" ? at::kFloat : type == "F16" ? at::kHalf : at::kBFloat16;
  const at::Tensor own = torch::empty(tensor.shape, dtype);
  if (!tensor.bytes.empty()) std::memcpy(own.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  return own.to(at::kFloat);
}

at::Tensor decoded_values(const gguf::FileTensor& tensor) {
  const at::Tensor values = torch::empty(tensor.shape, at::kFloat);
  formats::decode_ggml(*tensor.type, std::as_bytes(std::span(tensor.bytes)),
                       {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

/// The blocks of a matrix: u8 [rows, blocks, bytes].
at::Tensor blocks_of(const gguf::FileTensor& tensor) {
  const at::Tensor blocks =
      torch::empty({tensor.shape[0], tensor.shape[1] / tensor.type->elements, tensor.type->bytes}, at::kByte);
  std::memcpy(blocks.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  return blocks;
}

/// The fp16 number at this byte of each block: f32 [rows, blocks].
at::Tensor half_at(const at::Tensor& blocks, int64_t byte) {
  return blocks.narrow(2, byte, 2).contiguous().view(at::kHalf).squeeze(2).to(at::kFloat);
}

/// Codes of 4 bits from bytes [..., n], each of which holds one of the first n and one of the last n of a part: [..., n] with
/// neighbours in a byte.
at::Tensor pairs_of_halves(const at::Tensor& bytes) {
  const at::Tensor halves = torch::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1);
  const at::Tensor pairs = halves.unflatten(-1, {bytes.size(-1), 2});
  return pairs.select(-1, 0).bitwise_or(pairs.select(-1, 1).bitwise_left_shift(4)).contiguous();
}

/// d and 16 bytes.
quant::StoredQuantizedWeight codes_q4_0(const gguf::FileTensor& tensor) {
  const at::Tensor blocks = blocks_of(tensor);
  return {.codes = pairs_of_halves(blocks.narrow(2, 2, 16)),
          .scale = half_at(blocks, 0),
          .columns = tensor.shape[1]};
}

/// d, dmin, 12 bytes with a scale and a minimum in 6 bits for each 32 of 256 codes (formats/ggml_block.cpp), and 128 bytes of
/// codes: products d sc and dmin m are exact, so that each value is rounded twice, as gguf rounds it.
quant::StoredQuantizedWeight codes_q4_k(const gguf::FileTensor& tensor) {
  constexpr int64_t kScales = 4, kCodes = 16, kGroup = 32;
  const at::Tensor blocks = blocks_of(tensor);
  const auto scales = [&](int64_t i) { return blocks.narrow(2, kScales + 4 * i, 4); };
  const auto high = [](const at::Tensor& bytes) { return bytes.bitwise_right_shift(2).bitwise_and(48); };
  // Four and four: those of the first half whole, those of the second in two pieces.
  const at::Tensor first = scales(0), second = scales(1), rest = scales(2);
  const at::Tensor sc = torch::cat({first.bitwise_and(63), rest.bitwise_and(15).bitwise_or(high(first))}, 2);
  const at::Tensor m =
      torch::cat({second.bitwise_and(63), rest.bitwise_right_shift(4).bitwise_or(high(second))}, 2);
  const std::vector<int64_t> parts = {tensor.shape[0], tensor.shape[1] / kGroup};
  const auto times = [&](const at::Tensor& whole, int64_t byte) {
    return (half_at(blocks, byte).unsqueeze(2) * whole.to(at::kFloat)).reshape(parts).contiguous();
  };
  // Each 32 bytes hold two groups.
  const at::Tensor codes = pairs_of_halves(blocks.narrow(2, kCodes, 4 * kGroup).unflatten(2, {4, kGroup}));
  return {.codes = codes.reshape({parts[0], parts[1], kGroup / 2}).contiguous(),
          .scale = times(sc, 0),
          .columns = tensor.shape[1],
          .minimum = times(m, 2)};
}

/// d and 32 codes.
quant::StoredQuantizedWeight codes_q8_0(const gguf::FileTensor& tensor) {
  const at::Tensor blocks = blocks_of(tensor);
  return {.codes = blocks.narrow(2, 2, 32).contiguous().view(at::kChar),
          .scale = half_at(blocks, 0),
          .columns = tensor.shape[1]};
}

/// 4 low and 2 high bits of 256 codes around 32, a scale in 8 bits for each 16, and d: products d sc are exact, so that each value is rounded
/// once, as gguf rounds it.
quant::StoredQuantizedWeight codes_q6_k(const gguf::FileTensor& tensor) {
  constexpr int64_t kLow = 128, kHigh = 64, kScales = 16;
  const at::Tensor blocks = blocks_of(tensor);
  // Both come in two halves: 64 bytes with the low and 32 bytes with the high bits of 128 codes.
  const at::Tensor low = blocks.narrow(2, 0, kLow).unflatten(2, {2, kLow / 2}),
                   high = blocks.narrow(2, kLow, kHigh).unflatten(2, {2, kHigh / 2});
  std::vector<at::Tensor> quarters;
  for (int64_t shift = 0; shift < 8; shift += 2)
    quarters.push_back(high.bitwise_right_shift(shift).bitwise_and(3).bitwise_left_shift(4));
  const at::Tensor codes = torch::cat({low.bitwise_and(15), low.bitwise_right_shift(4)}, 3)
                               .bitwise_or(torch::cat(quarters, 3))
                               .to(at::kChar)
                               .sub(32);
  const at::Tensor scales = blocks.narrow(2, kLow + kHigh, kScales).contiguous().view(at::kChar);
  const int64_t groups = tensor.shape[1] / 16;
  return {.codes = codes.reshape({tensor.shape[0], groups, 16}).contiguous(),
          .scale = (half_at(blocks, kLow + kHigh + kScales).unsqueeze(2) * scales.to(at::kFloat))
                       .reshape({tensor.shape[0], groups})
                       .contiguous(),
          .columns = tensor.shape[1]};
}

std::optional<quant::StoredQuantizedWeight> codes_of(const gguf::FileTensor& tensor) {
  const bool matrix = tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0;
  const std::string_view type = tensor.type->name;
  if (matrix && type == "Q4_0") return codes_q4_0(tensor);
  if (matrix && type == "Q4_K") return codes_q4_k(tensor);
  if (matrix && type == "Q8_0") return codes_q8_0(tensor);
  if (matrix && type == "Q6_K") return codes_q6_k(tensor);
  return std::nullopt;
}

}  // namespace

const GgufTensor* GgufModel::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const GgufTensor& one) { return one.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

GgufModel import_gguf(std::string_view bytes, const std::string& source) {
  const gguf::File file = gguf::read(bytes, source);
  GgufModel model{.metadata = file.metadata.dump(), .tensors = {}};
  for (const gguf::FileTensor& tensor : file.tensors) {
    if (tensor.type == nullptr) {
      std::string known;
      for (const formats::GgmlType& type : formats::ggml_types())
        known += (known.empty() ? "" : ", ") + std::string(type.name);
      fail_file(kImportGgufWhere, "expected a tensor of ", known, " for '", tensor.name.substr(0, 100),
                "', got ", ggml_type_name(tensor.type_code), " in '", source, "'");
    }
    GgufTensor made{.name = tensor.name, .type = tensor.type->name, .values = {}};
    made.values = tensor.type->blocks ? decoded_values(tensor) : plain_values(tensor);
    made.codes = codes_of(tensor);
    model.tensors.push_back(std::move(made));
  }
  return model;
}

GgufModel import_gguf(const std::filesystem::path& path) {
  return import_gguf(read_file(kImportGgufWhere, path), path.string());
}

namespace {

/// Calls `use` with each tensor and its name in GPT-2; refuses files of other networks.
template <typename Use>
void for_each_of_gpt2(const char* where, const GgufModel& file, const Use& use) {
  const nlohmann::json metadata = nlohmann::json::parse(file.metadata);
  const auto architecture = metadata.find("general.architecture");
  if (architecture == metadata.end() || *architecture != "gpt2")
    fail_file(where, "expected the architecture gpt2, got ",
              architecture == metadata.end() ? "none" : architecture->dump());
  for (const GgufTensor& tensor : file.tensors) {
    const auto name = gguf::gpt2_name(tensor.name);
    if (!name) fail_file(where, "expected tensors of GPT-2, got '", tensor.name.substr(0, 100), "'");
    if (name->turned && tensor.values.dim() != 2)
      fail_file(where, "expected a matrix for '", tensor.name, "', got ", tensor.values.sizes());
    use(tensor, *name);
  }
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> gpt2_tensors(const GgufModel& file) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for_each_of_gpt2(
      "exchange.gpt2_tensors", file, [&](const GgufTensor& tensor, const gguf::TensorName& name) {
        tensors.emplace_back(name.name, name.turned ? tensor.values.t().contiguous() : tensor.values);
      });
  return tensors;
}

std::map<std::string, quant::StoredQuantizedWeight> gpt2_quantized_weights(const GgufModel& file) {
  std::map<std::string, quant::StoredQuantizedWeight> codes;
  for_each_of_gpt2("exchange.gpt2_quantized_weights", file,
                   [&](const GgufTensor& tensor, const gguf::TensorName& name) {
                     if (tensor.codes && (name.turned || name.name == "wte.weight"))
                       codes.emplace(name.name, *tensor.codes);
                   });
  return codes;
}

}  // namespace ulp::exchange
