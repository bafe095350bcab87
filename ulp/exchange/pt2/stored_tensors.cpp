#include "ulp/exchange/pt2/stored_tensors.h"

#include <c10/util/strides.h>
#include <torch/types.h>

#include <map>
#include <nlohmann/json.hpp>
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

/// What identifies a view: its type, offset, sizes and strides.
using ViewKey = std::tuple<at::ScalarType, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

ViewKey view_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec()};
}

/// The tensor on the CPU, in memory without gaps, by the strides that meta() says. Between devices LibTorch
/// keeps the order of the strides, also where it closes gaps.
at::Tensor compact(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  return (plain.is_non_overlapping_and_dense() ? plain : plain.contiguous()).to(at::kCPU);
}

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
    case at::kComplexHalf:
      return 9;
    case at::kComplexFloat:
      return 10;
    case at::kComplexDouble:
      return 11;
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

void TensorFolder::add(const std::string& name, const Attribute& attribute) {
  const at::Tensor& tensor = attribute.tensor;
  const bool dense = tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage();
  if (!dense || tensor.is_quantized() || type_number(tensor.scalar_type()) == 0)
    fail(kExportPt2Where, "expected '", name, "' to be dense numbers of a type that ulp writes, got ",
         tensor.defined() ? c10::toString(tensor.scalar_type()) : "no tensor");
  tensors_.emplace_back(name, attribute);
  Memory& memory = memories_[memory_of(tensor)];
  memory.types.insert(tensor.scalar_type());
  if (!memory.first.defined()) memory.first = tensor;
  memory.several = memory.several || view_of(memory.first) != view_of(tensor);
}

/// Of views that share a memory: other ones of one type have it whole.
bool TensorFolder::is_whole(const at::Tensor& tensor) const {
  const Memory& memory = memories_.at(memory_of(tensor));
  return memory.several && memory.types.size() == 1;
}

Json TensorFolder::meta(const at::Tensor& tensor) const {
  const bool whole = is_whole(tensor);
  const bool as_is = whole || tensor.is_non_overlapping_and_dense();
  const at::DimVector strides =
      as_is ? at::DimVector(tensor.strides()) : c10::contiguous_strides(tensor.sizes());
  return tensor_meta(type_number(tensor.scalar_type()), whole_numbers(tensor.sizes()), whole_numbers(strides),
                     tensor.requires_grad(), whole ? tensor.storage_offset() : 0);
}

void TensorFolder::write(StoredZip& zip, const std::string& config) const {
  // By the memory, and by the view of it where that is not written whole.
  std::map<std::pair<const void*, ViewKey>, std::string> paths;
  OrderedJson entries = OrderedJson::object();
  for (const auto& [name, attribute] : tensors_) {
    const at::Tensor& tensor = attribute.tensor;
    const bool whole = is_whole(tensor);
    const auto [path, first] = paths.try_emplace({memory_of(tensor), whole ? ViewKey() : view_of(tensor)},
                                                 prefix_ + std::to_string(paths.size()));
    if (first && whole) {
      const at::Tensor bytes =
          at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
              .set_(tensor.storage(), 0, {static_cast<int64_t>(tensor.storage().nbytes())}, {1})
              .to(at::kCPU);
      zip.add(folder_ + path->second, bytes_of(bytes.const_data_ptr(), bytes.nbytes()));
    } else if (first) {
      const at::Tensor kept = compact(tensor);
      zip.add(folder_ + path->second, bytes_of(kept.const_data_ptr(), kept.nbytes()));
    }
    entries[name] = Json{{"path_name", path->second},
                         {"is_param", attribute.kind == Attribute::Kind::parameter},
                         {"use_pickle", false},
                         {"tensor_meta", meta(tensor)}};
  }
  zip.add(folder_ + config, OrderedJson{{"config", entries}}.dump());
}

}  // namespace ulp::exchange::pt2
