#include "ulp/exchange/onnx_import/inputs.h"

#include <torch/types.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/exchange/examples.h"
#include "ulp/exchange/stored_batch_range.h"

namespace ulp::exchange::onnx_import {

namespace {

bool says_batch(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("batch") != std::string::npos || name == "n" || name == "bs";
}

/// A dimension's name; one of its own where the file has none.
std::string name_of(const FileValue& input, size_t dim) {
  const FileDim& given = input.shape[dim];
  return given.name.empty() ? input.name + '.' + std::to_string(dim) : given.name;
}

/// The inputs that are no tensors of the file.
std::vector<FileValue> wanted(const FileModel& model) {
  std::set<std::string> stored;
  for (const FileTensor& one : model.graph.initializers) stored.insert(one.name);
  std::vector<FileValue> inputs;
  for (const FileValue& input : model.graph.inputs) {
    if (!stored.contains(input.name)) inputs.push_back(input);
  }
  for (const FileValue& input : inputs) {
    if (input.type == 0 || !input.has_shape)
      fail_file(kImportOnnxWhere, "expected input '", input.name,
                "' to be a tensor with a known number of dimensions");
  }
  if (inputs.empty()) fail_file(kImportOnnxWhere, "expected a graph with inputs, got none");
  return inputs;
}

/// The name of the batch; empty where there is none.
std::string batch_name(const std::vector<FileValue>& inputs) {
  for (const FileValue& input : inputs) {
    for (const FileDim& dim : input.shape) {
      if (dim.size < 0 && says_batch(dim.name)) return dim.name;
    }
  }
  if (!inputs[0].shape.empty() && inputs[0].shape[0].size < 0) return name_of(inputs[0], 0);
  return "";
}

/// Whether all inputs have one number as their dimension 0.
bool has_common_first(const std::vector<FileValue>& inputs) {
  return std::ranges::all_of(inputs, [&](const FileValue& input) {
    return !input.shape.empty() && input.shape[0].size > 0 && input.shape[0].size == inputs[0].shape[0].size;
  });
}

class InputReader {
 public:
  InputReader(std::vector<FileValue> inputs, const BatchRange& batch_range, const OnnxImportOptions& options)
      : inputs_(std::move(inputs)),
        batch_range_(batch_range),
        options_(options),
        batch_(batch_name(inputs_)),
        first_(options.free_batch && batch_.empty() && has_common_first(inputs_)),
        examples_(kImportOnnxWhere, options.max_bytes) {}

  Inputs read() {
    Inputs made;
    made.options.batch_range = batch_range_;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      made.options.batch_dims.push_back(-1);
      std::vector<int64_t> sizes;
      for (size_t d = 0; d < inputs_[i].shape.size(); ++d) sizes.push_back(size(made, i, d));
      const FileValue& input = inputs_[i];
      made.examples.push_back(
          examples_.make(input.name, sizes, input_type(input.type, "input '" + input.name + "'")));
      made.options.input_names.push_back(inputs_[i].name);
    }
    return made;
  }

 private:
  int64_t size(Inputs& made, size_t input, size_t dim) const {
    const FileDim& given = inputs_[input].shape[dim];
    int64_t& batch_dim = made.options.batch_dims[input];
    const std::string name = name_of(inputs_[input], dim);
    // An unnamed first dimension is the batch of its input where the batch has no name either.
    const bool unnamed = given.name.empty() && dim == 0 && !batch_.empty() && !inputs_[0].shape.empty() &&
                         inputs_[0].shape[0].name.empty();
    if (batch_dim < 0 && ((first_ && dim == 0) || (given.size < 0 && (name == batch_ || unnamed)))) {
      batch_dim = static_cast<int64_t>(dim);
      return example_batch(batch_range_, kImportOnnxWhere);
    }
    if (given.size >= 0) return given.size;
    OnnxImportOptions::Range range{.max = options_.longest};
    const bool image =
        inputs_[input].shape.size() == 4 && at::isFloatingType(input_type(inputs_[input].type, name));
    const bool wide = dim == 3 && options_.image_width > 0;
    const auto said = options_.sizes.find(name);
    if (said != options_.sizes.end()) {
      range = said->second;
    } else if (image && dim >= 2 && options_.image_size > 0) {
      range = {.min = wide ? options_.image_width : options_.image_size};
      made.fixed.push_back({inputs_[input].name, name, range.min});
    }
    if (range.max == 0 || range.max == range.min) return range.min;
    made.options.free.push_back(
        {input, static_cast<int64_t>(dim), name, range.max, range.min, range.multiple});
    return range.max / std::max<int64_t>(range.multiple, 1) * range.multiple;
  }

  std::vector<FileValue> inputs_;
  BatchRange batch_range_;
  const OnnxImportOptions& options_;
  std::string batch_;
  bool first_;
  Examples examples_;
};

}  // namespace

bool has_batch(const FileModel& model) {
  const std::vector<FileValue> inputs = wanted(model);
  return !batch_name(inputs).empty() || !has_common_first(inputs);
}

std::vector<at::Tensor> at_other_sizes(const Inputs& inputs) {
  std::vector<at::Tensor> others;
  for (size_t i = 0; i < inputs.examples.size(); ++i) {
    std::vector<int64_t> sizes = inputs.examples[i].sizes().vec();
    const int64_t batch = inputs.options.batch_dims[i];
    if (batch >= 0) ++sizes[static_cast<size_t>(batch)];
    for (const graph::FreeSize& free : inputs.options.free) {
      int64_t& size = sizes[static_cast<size_t>(free.dim)];
      if (free.input == i && size - free.multiple >= free.min) size -= free.multiple;
    }
    others.push_back(torch::zeros(sizes, inputs.examples[i].scalar_type()));
  }
  return others;
}

std::vector<at::Tensor> at_smallest_sizes(const Inputs& inputs) {
  std::vector<at::Tensor> smallest;
  for (size_t i = 0; i < inputs.examples.size(); ++i) {
    std::vector<int64_t> sizes = inputs.examples[i].sizes().vec();
    for (const graph::FreeSize& free : inputs.options.free) {
      const int64_t step = std::max<int64_t>(free.multiple, 1);
      if (free.input == i) sizes[static_cast<size_t>(free.dim)] = (free.min + step - 1) / step * step;
    }
    smallest.push_back(torch::zeros(sizes, inputs.examples[i].scalar_type()));
  }
  return smallest;
}

Inputs read_inputs(const FileModel& model, const OnnxImportOptions& options) {
  return InputReader(wanted(model), stored_batch_range(model.metadata, kImportOnnxWhere), options).read();
}

}  // namespace ulp::exchange::onnx_import
