#include "ulp/exchange/pt2/stored_tensors.h"

#include <torch/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

using graph::Attribute;
/// Names in the model's order, which is that of a state_dict.
using OrderedJson = nlohmann::ordered_json;

Json whole_numbers(at::IntArrayRef numbers) {
  Json list = Json::array();
  for (const int64_t number : numbers) list.push_back({{"as_int", number}});
  return list;
}

/// A place in memory, what it is read as.
using ViewKey = std::tuple<at::ScalarType, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

ViewKey view_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec()};
}

/// Sizes and strides in a dense memory of its own.
at::Tensor compact(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().to(at::kCPU);
  return here.is_non_overlapping_and_dense() ? here : here.contiguous();
}

/// What is written of tensors that share a memory.
struct SharedMemory {
  std::set<ViewKey> views;
  std::set<at::ScalarType> types;
  bool whole() const { return views.size() > 1 && types.size() == 1; }
};

const void* memory_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::string_view bytes_of(const void* data, size_t count) {
  return {static_cast<const char*>(data), count};
}

}  // namespace

int64_t type_number(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return 1;
    case at::kChar:
      return 2;
    case at::kShort:
      return 3;
    case at::kInt:
      return 4;
    case at::kLong:
      return 5;
    case at::kHalf:
      return 6;
    case at::kFloat:
      return 7;
    case at::kDouble:
      return 8;
    case at::kBool:
      return 12;
    case at::kBFloat16:
      return 13;
    default:
      return 0;
  }
}

Json tensor_meta(int64_t type, Json sizes, Json strides, bool requires_grad, int64_t offset) {
  return {{"dtype", type},
          {"sizes", std::move(sizes)},
          {"strides", std::move(strides)},
          {"requires_grad", requires_grad},
          {"storage_offset", {{"as_int", offset}}},
          {"device", {{"type", "cpu"}, {"index", nullptr}}},
          {"layout", kDense}};
}

TensorFolder::TensorFolder(std::string folder, std::string prefix)
    : folder_(std::move(folder)), prefix_(std::move(prefix)) {}

Json TensorFolder::add(const std::string& name, const Attribute& attribute) {
  const at::Tensor& tensor = attribute.tensor;
  const bool dense = tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage();
  if (!dense || tensor.is_quantized() || type_number(tensor.scalar_type()) == 0)
    fail(kExportPt2Where, "expected '", name, "' to be dense numbers of a type that archives have, got ",
         tensor.defined() ? c10::toString(tensor.scalar_type()) : "no tensor");
  tensors_.emplace_back(name, attribute);
  const at::Tensor kept = compact(tensor);
  return tensor_meta(type_number(kept.scalar_type()), whole_numbers(kept.sizes()),
                     whole_numbers(kept.strides()), tensor.requires_grad());
}

void TensorFolder::write(StoredZip& zip, const std::string& config) const {
  std::map<const void*, SharedMemory> memories;
  for (const auto& [name, attribute] : tensors_) {
    SharedMemory& memory = memories[memory_of(attribute.tensor)];
    memory.views.insert(view_of(attribute.tensor));
    memory.types.insert(attribute.tensor.scalar_type());
  }
  // By the memory, and by the view of it where that is not written whole.
  std::map<std::pair<const void*, ViewKey>, std::string> paths;
  OrderedJson entries = OrderedJson::object();
  for (const auto& [name, attribute] : tensors_) {
    const at::Tensor& tensor = attribute.tensor;
    const bool whole = memories.at(memory_of(tensor)).whole();
    const at::Tensor kept = whole ? tensor.detach() : compact(tensor);
    const auto [path, first] = paths.try_emplace({memory_of(tensor), whole ? ViewKey() : view_of(tensor)},
                                                 prefix_ + std::to_string(paths.size()));
    if (first && whole) {
      const at::Tensor bytes =
          at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
              .set_(tensor.storage(), 0, {static_cast<int64_t>(tensor.storage().nbytes())}, {1})
              .to(at::kCPU);
      zip.add(folder_ + path->second, bytes_of(bytes.const_data_ptr(), bytes.nbytes()));
    } else if (first) {
      zip.add(folder_ + path->second, bytes_of(kept.const_data_ptr(), kept.nbytes()));
    }
    entries[name] =
        Json{{"path_name", path->second},
             {"is_param", attribute.kind == Attribute::Kind::parameter},
             {"use_pickle", false},
             {"tensor_meta", tensor_meta(type_number(kept.scalar_type()), whole_numbers(kept.sizes()),
                                         whole_numbers(kept.strides()), tensor.requires_grad(),
                                         whole ? kept.storage_offset() : 0)}};
  }
  zip.add(folder_ + config, OrderedJson{{"config", entries}}.dump());
}

}  // namespace ulp::exchange::pt2
