#include "ulp/libtorch/safetensors_tensor.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"

namespace ulp::libtorch {
namespace {

constexpr size_t kMostDimensions = 64;

struct Word {
  const char* word;
  at::ScalarType type;
};
constexpr Word kWords[] = {{"BOOL", at::kBool},
                           {"U8", at::kByte},
                           {"I8", at::kChar},
                           {"F8_E5M2", at::kFloat8_e5m2},
                           {"F8_E4M3", at::kFloat8_e4m3fn},
                           {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
                           {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
                           {"F8_E8M0", at::kFloat8_e8m0fnu},
                           {"I16", at::kShort},
                           {"U16", at::kUInt16},
                           {"F16", at::kHalf},
                           {"BF16", at::kBFloat16},
                           {"I32", at::kInt},
                           {"U32", at::kUInt32},
                           {"F32", at::kFloat},
                           {"C64", at::kComplexFloat},
                           {"I64", at::kLong},
                           {"U64", at::kUInt64},
                           {"F64", at::kDouble}};

}  // namespace

const char* safetensors_word(at::ScalarType type) {
  const auto* found = std::ranges::find(kWords, type, &Word::type);
  return found == std::end(kWords) ? nullptr : found->word;
}

TensorIdentity identity_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(),
          tensor.strides().vec(),  tensor.is_conj(),     tensor.is_neg()};
}

void check_name(const char* where, const std::string& name) {
  const auto shown = [&](nlohmann::json::error_handler_t handler) {
    return nlohmann::json(name).dump(-1, ' ', false, handler);
  };
  try {
    shown(nlohmann::json::error_handler_t::strict);
  } catch (const nlohmann::json::exception&) {
    fail(where, "expected names in UTF-8, got ", shown(nlohmann::json::error_handler_t::replace));
  }
}

at::Tensor to_tensor(const char* where, const TensorEntry& entry, const std::filesystem::path& path) {
  const auto* found = std::ranges::find_if(kWords, [&](const Word& one) { return entry.dtype == one.word; });
  if (found == std::end(kWords)) {
    fail_file(where, "'", entry.name, "' in '", path.string(), "' has dtype ", entry.dtype,
              ", which LibTorch lacks");
  }
  if (entry.shape.size() > kMostDimensions) {
    fail_file(where, "'", entry.name, "' in '", path.string(), "' has ", entry.shape.size(), " dimensions");
  }
  if (found->type == at::kBool &&
      std::ranges::any_of(entry.bytes, [](std::byte b) { return b > std::byte{1}; })) {
    fail_file(where, "'", entry.name, "' in '", path.string(),
              "' is boolean but holds other values than 0 and 1");
  }
  at::Tensor tensor = at::empty(entry.shape, found->type);
  if (!entry.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
  return tensor;
}

}  // namespace ulp::libtorch
