#include "ulp/graph/capture/schema.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "ulp/base/error.h"

namespace ulp::graph {

const c10::FunctionSchema& find_schema(const std::string& target) {
  size_t dot = target.find('.');
  c10::OperatorName name(target.substr(0, dot), dot == std::string::npos ? "" : target.substr(dot + 1));
  auto handle = c10::Dispatcher::singleton().findSchema(name);
  if (!handle) fail("graph.call", "expected an operator known to the dispatcher, got '", target, "'");
  return handle->schema();
}

std::vector<Argument> complete_arguments(const c10::FunctionSchema& schema, const std::string& target,
                                         std::vector<Argument> args) {
  const std::vector<c10::Argument>& wanted = schema.arguments();
  if (args.size() > wanted.size()) {
    fail("graph.call", "expected at most ", wanted.size(), " arguments of ", target, ", got ", args.size());
  }
  for (size_t i = args.size(); i < wanted.size(); ++i) {
    if (!wanted[i].default_value()) {
      fail("graph.call", "expected argument '", wanted[i].name(), "' of ", target, ", got ", i, " arguments");
    }
    args.emplace_back(*wanted[i].default_value());
  }
  return args;
}

std::string short_name(const std::string& target) {
  size_t colon = target.rfind(':');
  std::string name = target.substr(colon == std::string::npos ? 0 : colon + 1);
  name = name.substr(0, name.find('.'));
  while (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

bool is_random(const c10::FunctionSchema& schema) {
  auto handle = c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
  return handle && handle->hasTag(at::Tag::nondeterministic_seeded);
}

bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->containedType(0);
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

bool is_tensor_list(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType && type.containedType(0)->kind() == c10::TypeKind::TensorType;
}

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.layout() == at::kStrided &&
         tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta;
  if (!tensor.defined()) return meta;
  meta.dtype = tensor.scalar_type();
  for (int64_t size : tensor.sizes()) meta.sizes.push_back({0, 1, size});
  meta.channels_last = is_channels_last(tensor);
  return meta;
}

}  // namespace ulp::graph
