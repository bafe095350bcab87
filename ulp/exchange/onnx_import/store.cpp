// The tensors of a file under the names that a module can have.
#include <torch/types.h>

#include <sstream>

#include "ulp/exchange/indices_from_end.h"
#include "ulp/exchange/onnx_import/run.h"
#include "ulp/exchange/stored_in_out.h"

namespace ulp::exchange::onnx_import {

namespace {

/// A Constant's tensor, whatever attribute it is in; undefined for text.
FileTensor constant_of(const FileNode& node) {
  for (const FileAttribute& attribute : node.attributes) {
    if (attribute.name == "value") return {.type = attribute.tensor_type, .value = attribute.t};
    if (attribute.name == "value_int")
      return {.type = data_type(at::kLong), .value = torch::full({}, attribute.i, at::kLong)};
    if (attribute.name == "value_float")
      return {.type = data_type(at::kFloat), .value = torch::full({}, attribute.f, at::kFloat)};
    if (attribute.name == "value_ints")
      return {.type = data_type(at::kLong), .value = torch::tensor(attribute.ints, at::kLong)};
    if (attribute.name == "value_floats")
      return {.type = data_type(at::kFloat), .value = torch::tensor(attribute.floats, at::kFloat)};
  }
  return {};
}

void gather(const FileGraph& graph, std::map<std::string, FileTensor>& into) {
  for (const FileTensor& one : graph.initializers) into.emplace(one.name, one);
  for (const FileNode& node : graph.nodes) {
    if (node.op == "Constant" && node.domain.empty() && node.outputs.size() == 1)
      into.emplace(node.outputs[0], constant_of(node));
    for (const FileAttribute& attribute : node.attributes) {
      if (attribute.g) gather(*attribute.g, into);
    }
  }
}

/// Names that the metadata have under a key, one a line.
std::set<std::string> names_under(const FileModel& model, const char* key) {
  const auto lines = model.metadata.find(key);
  std::istringstream text(lines == model.metadata.end() ? "" : lines->second);
  std::set<std::string> names;
  for (std::string name; std::getline(text, name);) names.insert(name);
  return names;
}

}  // namespace

Store::Store(const FileModel& model, const OnnxImportOptions& options)
    : model_(model), options_(options), analysis_(model.graph) {
  gather(model.graph, initializers_);
  in_out_ = names_under(model, kStoredInOut);
  from_end_ = names_under(model, kIndicesFromEnd);
}

at::Tensor Store::find(const std::string& value) const {
  const auto found = initializers_.find(value);
  return found == initializers_.end() ? at::Tensor() : found->second.value;
}

int64_t Store::type_of(const std::string& value) const {
  const auto found = initializers_.find(value);
  return found == initializers_.end() ? 0 : found->second.type;
}

at::Tensor Store::kept(const std::string& name) const {
  const auto known = places_.find(plain_name(name));
  return known == places_.end() ? at::Tensor() : attributes_[known->second].second.tensor;
}

at::Tensor Store::as_in_file(const std::string& value) {
  const auto known = kept_.find(value);
  if (known != kept_.end())
    return known->second.transposed ? known->second.parameter.t() : known->second.parameter;
  const at::Tensor parameter =
      attribute(value, graph::Attribute::Kind::parameter, [&] { return find(value); });
  kept_[value] = {.parameter = parameter};
  return parameter;
}

at::Tensor Store::as_weight(const std::string& value, const std::string& name) {
  if (!kept_.contains(value)) {
    const bool in_out = is_stored_in_out(value);
    const at::Tensor stored = find(value);
    const auto make = [&] { return in_out ? stored : stored.t().contiguous(); };
    kept_[value] = {.parameter = attribute(name, graph::Attribute::Kind::parameter, make),
                    .transposed = !in_out};
  }
  const Kept& kept = kept_.at(value);
  return kept.transposed ? kept.parameter : kept.parameter.t();
}

std::string Store::plain_name(const std::string& name) {
  // Parts between dots are names of modules, which are not empty.
  std::string plain;
  for (const char c : name) plain += c == '.' && (plain.empty() || plain.back() == '.') ? '_' : c;
  if (plain.empty() || plain.back() == '.') plain += '_';
  return plain;
}

at::Tensor Store::add(const std::string& name, graph::Attribute::Kind kind, at::Tensor tensor) {
  at::Tensor own = tensor.detach();
  if (kind == graph::Attribute::Kind::parameter) own.requires_grad_(true);
  places_[name] = attributes_.size();
  attributes_.emplace_back(name, graph::Attribute{kind, own});
  return own;
}

}  // namespace ulp::exchange::onnx_import
