#include "ulp/exchange/onnx_import/given_values.h"

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::exchange::onnx_import {

namespace {

/// "axes, sizes", for messages.
std::string names_of(const std::vector<FileValue>& inputs) {
  std::string text;
  for (const FileValue& input : inputs) text.append(text.empty() ? "" : ", ").append(input.name);
  return text;
}

bool has_sizes(const FileValue& input, const at::Tensor& value) {
  if (!input.has_shape) return true;
  if (static_cast<int64_t>(input.shape.size()) != value.dim()) return false;
  for (size_t d = 0; d < input.shape.size(); ++d) {
    if (input.shape[d].size >= 0 && input.shape[d].size != value.size(static_cast<int64_t>(d))) return false;
  }
  return true;
}

}  // namespace

void give_values(FileModel& model, const std::map<std::string, at::Tensor>& values) {
  FileGraph& graph = model.graph;
  for (const auto& [name, value] : values) {
    const auto input = std::ranges::find(graph.inputs, name, &FileValue::name);
    if (input == graph.inputs.end())
      fail_file(kImportOnnxWhere, "expected values for inputs of the file, ", names_of(graph.inputs),
                ", got one for '", name, "'");
    const at::ScalarType type = input_type(input->type, "input '" + name + "'");
    if (!value.defined() || value.scalar_type() != type || !has_sizes(*input, value))
      fail_file(kImportOnnxWhere, "expected a value of the type and the sizes of input '", name, "', ",
                type_name(input->type), ", got ",
                value.defined() ? type_name(data_type(value.scalar_type())) : "none", ' ',
                value.defined() ? value.sizes() : at::IntArrayRef());
    std::erase_if(graph.initializers, [&name = name](const FileTensor& one) { return one.name == name; });
    graph.initializers.push_back(
        {.name = name, .type = input->type, .value = value.cpu().contiguous().clone()});
  }
}

}  // namespace ulp::exchange::onnx_import
