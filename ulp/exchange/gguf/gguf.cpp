#include "ulp/exchange/gguf.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/exchange/file_bytes.h"
#include "ulp/exchange/gguf/gguf_names.h"
#include "ulp/exchange/gguf/gguf_reader.h"

namespace ulp::exchange {

namespace {

constexpr const char* kWhere = "exchange.import_gguf";

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

/// The codes of Q4_0 in our order: neighbours share a byte, where GGML puts the halves of a block into one.
WeightCodes codes_of(const gguf::FileTensor& tensor) {
  constexpr int64_t kBlock = 32, kBytes = 18;
  const int64_t rows = tensor.shape[0], groups = tensor.shape[1] / kBlock;
  const at::Tensor blocks = torch::empty({rows, groups, kBytes}, at::kByte);
  if (!tensor.bytes.empty()) std::memcpy(blocks.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  const at::Tensor both = blocks.narrow(2, 2, kBytes - 2);
  const at::Tensor codes =
      torch::cat({both.bitwise_and(15), both.bitwise_right_shift(4)}, 2).view({rows, groups, kBlock / 2, 2});
  return {.codes = codes.select(3, 0).bitwise_or(codes.select(3, 1).bitwise_left_shift(4)).contiguous(),
          .scale = blocks.narrow(2, 0, 2).contiguous().view(at::kHalf).squeeze(2).to(at::kFloat),
          .zero_point = std::nullopt,
          .columns = tensor.shape[1]};
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
      fail_file(kWhere, "expected a tensor of ", known, " for '", tensor.name.substr(0, 100),
                "', got the type ", tensor.type_code, " in '", source, "'");
    }
    GgufTensor made{.name = tensor.name, .type = tensor.type->name, .values = {}};
    made.values = tensor.type->blocks ? decoded_values(tensor) : plain_values(tensor);
    const bool matrix = tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0;
    if (made.type == "Q4_0" && matrix) made.codes = codes_of(tensor);
    model.tensors.push_back(std::move(made));
  }
  return model;
}

GgufModel import_gguf(const std::filesystem::path& path) {
  return import_gguf(file_bytes(kWhere, path, std::numeric_limits<int64_t>::max()), path.string());
}

std::vector<std::pair<std::string, at::Tensor>> gpt2_tensors(const GgufModel& file) {
  constexpr const char* kHere = "exchange.gpt2_tensors";
  const nlohmann::json metadata = nlohmann::json::parse(file.metadata);
  const auto architecture = metadata.find("general.architecture");
  if (architecture == metadata.end() || *architecture != "gpt2")
    fail_file(kHere, "expected the architecture gpt2, got ",
              architecture == metadata.end() ? "none" : architecture->dump());
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const GgufTensor& tensor : file.tensors) {
    const auto name = gguf::gpt2_name(tensor.name);
    if (!name) fail_file(kHere, "expected tensors of GPT-2, got '", tensor.name.substr(0, 100), "'");
    if (name->turned && tensor.values.dim() != 2)
      fail_file(kHere, "expected a matrix for '", tensor.name, "', got ", tensor.values.sizes());
    tensors.emplace_back(name->name, name->turned ? tensor.values.t().contiguous() : tensor.values);
  }
  return tensors;
}

}  // namespace ulp::exchange
