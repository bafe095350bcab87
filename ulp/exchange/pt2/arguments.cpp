#include "ulp/exchange/pt2/arguments.h"

#include <torch/types.h>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;
using c10::TypeKind;

[[noreturn]] void refuse(const ProgramArgument& argument, const c10::Type& type) {
  fail_file(kImportPt2Where, "expected a ", type.str(), ", got one that is ", argument.kind.substr(0, 32));
}

const at::Tensor& tensor_of(const Json& named, const Values& values) {
  const auto name = named.at("name").get<std::string>();
  const IValue& value = value_of(values, name);
  if (!value.isTensor()) fail_file(kImportPt2Where, "expected '", name, "' to be a tensor");
  return value.toTensor();
}

bool is_number(const IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool();
}

bool is_scalar(const IValue& value) {
  return is_number(value) || value.isComplexDouble();
}

/// A number that stands for a tensor does not decide its type.
at::Tensor wrapped(const IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue tensor_argument(const ProgramArgument& argument, const c10::Type& type, const Values& values) {
  if (argument.kind == "as_tensor") return tensor_of(argument.value, values);
  if (argument.kind == "as_optional_tensor")
    return tensor_argument(union_of(argument.value, "an argument"), type, values);
  const IValue number = number_of(argument, values);
  if (!is_scalar(number)) refuse(argument, type);
  return wrapped(number);
}

int64_t memory_format(const Json& number) {
  switch (whole_number(number)) {
    case 1:
      return static_cast<int64_t>(at::MemoryFormat::Contiguous);
    case 2:
      return static_cast<int64_t>(at::MemoryFormat::ChannelsLast);
    case 3:
      return static_cast<int64_t>(at::MemoryFormat::ChannelsLast3d);
    case 4:
      return static_cast<int64_t>(at::MemoryFormat::Preserve);
    default:
      fail_file(kImportPt2Where, "expected a memory format, got ", whole_number(number));
  }
}

IValue whole_argument(const ProgramArgument& argument, const c10::Type& type, const Values& values) {
  if (argument.kind == "as_scalar_type") return static_cast<int64_t>(scalar_type(argument.value));
  if (argument.kind == "as_memory_format") return memory_format(argument.value);
  if (argument.kind == "as_layout") {
    if (whole_number(argument.value) != kDense) fail_file(kImportPt2Where, "expected dense tensors");
    return static_cast<int64_t>(at::kStrided);
  }
  const IValue number = number_of(argument, values);
  if (!number.isInt()) refuse(argument, type);
  return number;
}

/// The numbers of a list, or one alone where the schema repeats it.
std::vector<IValue> numbers_of(const ProgramArgument& argument, const c10::Argument& wanted,
                               const Values& values) {
  std::vector<IValue> numbers;
  for (const char* kind : {"as_ints", "as_floats", "as_bools"}) {
    if (argument.kind != kind) continue;
    const std::string single(kind, std::string(kind).size() - 1);
    for (const Json& one : argument.value) numbers.push_back(number_of({single, one}, values));
    return numbers;
  }
  for (const char* kind : {"as_sym_ints", "as_sym_floats", "as_sym_bools"}) {
    if (argument.kind != kind) continue;
    for (const Json& one : argument.value) numbers.push_back(number_of({"as_sym_int", one}, values));
    return numbers;
  }
  const IValue number = number_of(argument, values);
  if (!is_number(number) || !wanted.N()) refuse(argument, *wanted.type());
  numbers.assign(static_cast<size_t>(*wanted.N()), number);
  return numbers;
}

IValue tensors_of(const ProgramArgument& argument, const c10::Type& element, const Values& values) {
  const bool optional = element.kind() == TypeKind::OptionalType;
  c10::List<at::Tensor> all;
  c10::List<std::optional<at::Tensor>> some;
  const auto add = [&](const std::optional<at::Tensor>& tensor) {
    if (optional) return some.push_back(tensor);
    all.push_back(*tensor);
  };
  if (argument.kind == "as_tensors") {
    for (const Json& one : argument.value) add(tensor_of(one, values));
  } else if (argument.kind == "as_optional_tensors" && optional) {
    for (const Json& one : argument.value) {
      const ProgramArgument item = union_of(one, "an argument");
      if (item.kind != "as_none" && item.kind != "as_tensor") refuse(item, element);
      add(item.kind == "as_tensor" ? std::optional(tensor_of(item.value, values)) : std::nullopt);
    }
  } else if (!(argument.value.is_array() && argument.value.empty())) {
    refuse(argument, element);
  }
  return optional ? IValue(some) : IValue(all);
}

bool is_tensor(const c10::Type& type) {
  if (type.kind() == TypeKind::OptionalType) return is_tensor(*type.containedType(0));
  return type.kind() == TypeKind::TensorType;
}

IValue list_of(const ProgramArgument& argument, const c10::Argument& wanted, const c10::Type& type,
               const Values& values) {
  const c10::Type& element = *type.containedType(0);
  if (is_tensor(element)) return tensors_of(argument, element, values);
  const std::vector<IValue> numbers = numbers_of(argument, wanted, values);
  c10::List<int64_t> whole;
  c10::List<double> real;
  c10::List<bool> flags;
  for (const IValue& number : numbers) {
    const TypeKind kind = element.kind();
    if (kind == TypeKind::IntType && number.isInt()) {
      whole.push_back(number.toInt());
    } else if (kind == TypeKind::FloatType && !number.isBool()) {
      real.push_back(number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble());
    } else if (kind == TypeKind::BoolType && number.isBool()) {
      flags.push_back(number.toBool());
    } else {
      refuse(argument, type);
    }
  }
  switch (element.kind()) {
    case TypeKind::IntType:
      return whole;
    case TypeKind::FloatType:
      return real;
    case TypeKind::BoolType:
      return flags;
    default:
      refuse(argument, type);
  }
}

IValue typed(const ProgramArgument& argument, const c10::Argument& wanted, const c10::Type& type,
             const Values& values) {
  switch (type.kind()) {
    case TypeKind::OptionalType:
      if (argument.kind == "as_none") return {};
      if (argument.kind == "as_optional_tensor" && union_of(argument.value, "an argument").kind == "as_none")
        return {};
      return typed(argument, wanted, *type.containedType(0), values);
    case TypeKind::TensorType:
      return tensor_argument(argument, type, values);
    case TypeKind::IntType:
      return whole_argument(argument, type, values);
    case TypeKind::FloatType: {
      const IValue number = number_of(argument, values);
      if (!number.isInt() && !number.isDouble()) refuse(argument, type);
      return number.isInt() ? static_cast<double>(number.toInt()) : number.toDouble();
    }
    case TypeKind::NumberType: {
      const IValue number = number_of(argument, values);
      if (!is_scalar(number)) refuse(argument, type);
      return number;
    }
    case TypeKind::BoolType: {
      const IValue flag = number_of(argument, values);
      if (!flag.isBool()) refuse(argument, type);
      return flag;
    }
    case TypeKind::StringType:
      if (argument.kind != "as_string") refuse(argument, type);
      return argument.value.get<std::string>();
    case TypeKind::DeviceObjType:
      if (argument.kind != "as_device") refuse(argument, type);
      return c10::Device(at::kCPU);  // where the graph is made; it moves with its tensors
    case TypeKind::ListType:
      return list_of(argument, wanted, type, values);
    default:
      refuse(argument, type);
  }
}

}  // namespace

const IValue& value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end())
    fail_file(kImportPt2Where, "expected values that are made before they are read, got '",
              name.substr(0, 100), "'");
  return found->second;
}

IValue number_of(const ProgramArgument& argument, const Values& values) {
  if (argument.kind == "as_int") return whole_number(argument.value);
  if (argument.kind == "as_float") return real_number(argument.value);
  if (argument.kind == "as_complex")
    return c10::complex<double>(real_number(argument.value.at("real")),
                                real_number(argument.value.at("imag")));
  if (argument.kind == "as_bool") {
    if (!argument.value.is_boolean()) fail_file(kImportPt2Where, "expected true or false");
    return argument.value.get<bool>();
  }
  for (const char* kind : {"as_sym_int", "as_sym_float", "as_sym_bool"}) {
    if (argument.kind != kind) continue;
    const ProgramArgument inner = union_of(argument.value, "an argument");
    if (inner.kind == "as_name") return value_of(values, inner.value.get<std::string>());
    if (!inner.kind.starts_with("as_sym_")) return number_of(inner, values);
  }
  return {};
}

IValue argument_of(const ProgramArgument& argument, const c10::Argument& wanted, const Values& values) {
  return typed(argument, wanted, *wanted.type(), values);
}

}  // namespace ulp::exchange::pt2
