#include "ulp/graph/capture/data_sizes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace ulp::graph {

namespace {

using c10::IValue;

/// An operator, the argument whose numbers say sizes, and the one that says them in its place where it is given.
struct SizedByData {
  std::string_view op, argument, instead = {};
};
constexpr std::array kSizedByData = {SizedByData{"aten::nonzero", "self"},
                                     SizedByData{"aten::nonzero_numpy", "self"},
                                     SizedByData{"aten::argwhere", "self"},
                                     SizedByData{"aten::masked_select", "mask"},
                                     SizedByData{"aten::_unique", "self"},
                                     SizedByData{"aten::_unique2", "self"},
                                     SizedByData{"aten::unique_dim", "self"},
                                     SizedByData{"aten::unique_consecutive", "self"},
                                     SizedByData{"aten::unique_dim_consecutive", "self"},
                                     SizedByData{"aten::bincount", "self"},
                                     SizedByData{"aten::one_hot", "self", "num_classes"},
                                     SizedByData{"aten::repeat_interleave", "repeats", "output_size"},
                                     SizedByData{"aten::tensor_split", "tensor_indices_or_sections"},
                                     SizedByData{"aten::index", "indices"},
                                     SizedByData{"aten::_unsafe_index", "indices"},
                                     SizedByData{"aten::_pack_padded_sequence", "lengths"},
                                     SizedByData{"aten::_pad_packed_sequence", "batch_sizes"}};

bool is_index(std::string_view op) {
  return op == "aten::index" || op == "aten::_unsafe_index";
}

/// Null where the schema has no argument of the name.
const IValue* argument_named(const c10::FunctionSchema& schema, std::span<const IValue> arguments,
                             std::string_view name) {
  const std::optional<int> place = schema.argumentIndexWithName(name);
  return place && static_cast<size_t>(*place) < arguments.size() ? &arguments[static_cast<size_t>(*place)]
                                                                 : nullptr;
}

/// Where(condition) alone gives places; with two tensors it selects.
bool gives_places(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::where" && schema.arguments().size() == 1;
}

std::vector<at::Tensor> masks_in(const IValue& indices) {
  std::vector<at::Tensor> masks;
  for (const IValue& index : indices.toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const at::ScalarType type = index.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) masks.push_back(index.toTensor());
  }
  return masks;
}

}  // namespace

std::vector<at::Tensor> tensors_that_say_sizes(const c10::FunctionSchema& schema,
                                               std::span<const IValue> arguments) {
  if (gives_places(schema) && arguments[0].isTensor()) return {arguments[0].toTensor()};
  const auto row = std::ranges::find(kSizedByData, std::string_view(schema.name()), &SizedByData::op);
  if (row == kSizedByData.end()) return {};
  const IValue* sizing = argument_named(schema, arguments, row->argument);
  if (sizing == nullptr) return {};
  if (is_index(row->op)) return sizing->isList() ? masks_in(*sizing) : std::vector<at::Tensor>();
  const IValue* instead = row->instead.empty() ? nullptr : argument_named(schema, arguments, row->instead);
  if (instead != nullptr && instead->isInt() && instead->toInt() >= 0) return {};
  return sizing->isTensor() ? std::vector<at::Tensor>{sizing->toTensor()} : std::vector<at::Tensor>();
}

std::string advice_for_sizes(const c10::FunctionSchema& schema) {
  const std::string_view op = schema.name();
  if (is_index(op) || op == "aten::masked_select")
    return "keep all numbers and set those that the mask leaves out by where() or masked_fill()";
  if (op == "aten::one_hot") return "give num_classes";
  if (op == "aten::repeat_interleave") return "give output_size, or repeats that are a number";
  if (op == "aten::bincount") return "use histc(), or scatter_add() into a tensor of a fixed size";
  return "compute it outside of the model, or use a mask of a fixed size";
}

}  // namespace ulp::graph
