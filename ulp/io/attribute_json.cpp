#include "ulp/io/attribute_json.h"

#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/io/size_json.h"

namespace ulp::io {

namespace {

using Json = nlohmann::json;

/// A module for each part of a name: more than any network nests.
constexpr int64_t kMostDots = 100;

/// Strides that lay numbers one beside the other: files have tensors of the default strides alone.
void layout_to_json(Json& json, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense())
    return;
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  if (strides == c10::contiguous_strides(sizes)) return;
  if (sizes.size() == 4 && strides == c10::get_channels_last_strides_2d(sizes))
    json["channels_last"] = true;
  else
    json["strides"] = strides.vec();
}

/// An error unless the strides reach each number of the tensor once, without a gap.
void check_dense(const std::string& name, const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  const at::IntArrayRef sizes = tensor.sizes();
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride and size
  bool dense = strides.size() == sizes.size() && tensor.numel() > 0;
  for (size_t i = 0; dense && i < sizes.size(); ++i) {
    dense = strides[i] >= 0;
    if (sizes[i] != 1) steps.emplace_back(strides[i], sizes[i]);
  }
  std::ranges::sort(steps);
  int64_t next = 1;
  for (const auto& [stride, size] : steps) {
    dense = dense && stride == next;
    next *= size;
  }
  if (!dense)
    fail(kGraphFile, "expected strides of '", name, "' that are dense, got others for ", sizes.size(),
         " dimensions");
}

std::optional<std::vector<int64_t>> strides_of(const std::string& name, const Json& json,
                                               const at::Tensor& tensor) {
  if (json.contains("strides")) {
    std::vector<int64_t> strides = whole_numbers(json.at("strides"));
    check_dense(name, tensor, strides);
    return strides;
  }
  if (!json.value("channels_last", false)) return std::nullopt;
  if (tensor.dim() != 4) fail(kGraphFile, "expected 4 dimensions of '", name, "', got ", tensor.dim());
  return c10::get_channels_last_strides_2d(tensor.sizes());
}

at::Tensor laid_out(const at::Tensor& tensor, const std::optional<std::vector<int64_t>>& strides) {
  const at::Tensor plain = tensor.detach();
  if (!strides || plain.strides() == *strides) return plain;
  return plain.new_empty_strided(plain.sizes(), *strides).copy_(plain);
}

graph::Attribute::Kind kind_of(const std::string& name, const std::string& word) {
  if (word == "parameter") return graph::Attribute::Kind::parameter;
  if (word == "buffer") return graph::Attribute::Kind::buffer;
  if (word == "constant") return graph::Attribute::Kind::constant;
  fail(kGraphFile, "expected parameter, buffer or constant as the kind of '", name, "', got '", word, "'");
}

}  // namespace

Json attribute_to_json(const std::string& name, const graph::Attribute& attribute) {
  static constexpr const char* kKinds[] = {"parameter", "buffer", "constant"};
  if (!attribute.tensor.defined()) fail(kGraphFile, "expected a tensor for '", name, "', got none");
  Json json{{"name", name}, {"kind", kKinds[static_cast<size_t>(attribute.kind)]}};
  if (attribute.tensor.requires_grad()) json["requires_grad"] = true;
  layout_to_json(json, attribute.tensor);
  return json;
}

void AttributeReader::add_to(graph::Graph& graph, const Json& json) {
  const auto name = json.at("name").get<std::string>();
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(kGraphFile, "expected a tensor '", name, "', got none");
  if (!names_.insert(name).second) fail(kGraphFile, "expected '", name, "' once, got it twice");
  if (const auto dots = std::ranges::count(name, '.'); dots > kMostDots)
    fail(kGraphFile, "expected names of at most ", kMostDots, " dots, got one of ", dots);
  const at::Tensor& stored = found->second;
  const Strides strides = strides_of(name, json, stored);
  Shared& shared = shared_[{stored.unsafeGetTensorImpl(), strides}];
  if (!shared.plain.defined()) shared.plain = laid_out(stored, strides);
  const bool learns = json.value("requires_grad", false);
  if (learns && !stored.is_floating_point() && !stored.is_complex())
    fail(kGraphFile, "expected floating-point or complex numbers as '", name, "'");
  if (learns && !shared.learning.defined()) shared.learning = shared.plain.detach().set_requires_grad(true);
  const auto kind = kind_of(name, json.at("kind").get<std::string>());
  graph.set_attribute(name, {kind, learns ? shared.learning : shared.plain});
}

}  // namespace ulp::io
