#include "ulp/exchange/onnx/model.h"

#include <type_traits>

#include "ulp/base/error.h"

namespace ulp::exchange::onnx {

namespace {

// AttributeProto.AttributeType: what an attribute holds, and the number of the field that holds it.
struct AttributeKind {
  int64_t type;
  int field;
};
constexpr AttributeKind kFloat{1, 2}, kInt{2, 3}, kString{3, 4}, kTensor{4, 5}, kInts{7, 8};

/// An entry of external_data.
void write_entry(const char* key, const std::string& value, WireWriter& out) {
  out.message(13, [&](WireWriter& inner) {
    inner.text(1, key);
    inner.text(2, value);
  });
}

/// TensorProto. `data_file` has the bytes of a tensor that is not in the model.
void write_tensor(const Initializer& tensor, const std::string& data_file, WireWriter& out) {
  constexpr int64_t kExternal = 1;
  for (const int64_t size : tensor.dims) out.integer(1, size);
  out.integer(2, tensor.type);
  if (!tensor.name.empty()) out.text(8, tensor.name);
  if (tensor.offset < 0) {
    // No copy is made only to be counted.
    const at::Tensor bytes = out.counts() ? tensor.data : dense(tensor.data);
    return out.bytes(9, out.counts() ? nullptr : bytes.const_data_ptr(), byte_count(tensor));
  }
  write_entry("location", data_file, out);
  write_entry("offset", std::to_string(tensor.offset), out);
  write_entry("length", std::to_string(byte_count(tensor)), out);
  out.integer(14, kExternal);
}

/// AttributeProto.
void write_attribute(const Attribute& attribute, WireWriter& out) {
  out.text(1, attribute.name);
  const auto fields = [&](const auto& value) -> int64_t {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, int64_t>) {
      out.integer(kInt.field, value);
      return kInt.type;
    } else if constexpr (std::is_same_v<T, float>) {
      out.number(kFloat.field, value);
      return kFloat.type;
    } else if constexpr (std::is_same_v<T, std::string>) {
      out.text(kString.field, value);
      return kString.type;
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      const Initializer tensor{"", data_type(value.scalar_type(), attribute.name), value.sizes().vec(),
                               value};
      out.message(kTensor.field, [&](WireWriter& inner) { write_tensor(tensor, "", inner); });
      return kTensor.type;
    } else {
      for (const int64_t one : value) out.integer(kInts.field, one);
      return kInts.type;
    }
  };
  out.integer(20, std::visit(fields, attribute.value));
}

/// NodeProto.
void write_call(const Call& call, WireWriter& out) {
  for (const std::string& input : call.inputs) out.text(1, input);
  for (const std::string& output : call.outputs) out.text(2, output);
  out.text(3, call.name);
  out.text(4, call.op);
  for (const Attribute& attribute : call.attributes)
    out.message(5, [&](WireWriter& inner) { write_attribute(attribute, inner); });
}

/// TensorShapeProto.Dimension.
void write_dim(const std::variant<int64_t, std::string>& dim, WireWriter& out) {
  if (const auto* size = std::get_if<int64_t>(&dim)) return out.integer(1, *size);
  out.text(2, std::get<std::string>(dim));
}

/// ValueInfoProto, with TypeProto and TypeProto.Tensor.
void write_value(const ValueInfo& value, WireWriter& out) {
  const auto shape = [&](WireWriter& inner) {
    for (const auto& dim : value.shape) inner.message(1, [&](WireWriter& one) { write_dim(dim, one); });
  };
  const auto tensor = [&](WireWriter& inner) {
    inner.integer(1, value.type);
    if (value.has_shape) inner.message(2, shape);
  };
  out.text(1, value.name);
  out.message(2, [&](WireWriter& type) { type.message(1, tensor); });
}

/// GraphProto.
void write_graph(const Model& model, WireWriter& out) {
  for (const Call& call : model.calls) out.message(1, [&](WireWriter& inner) { write_call(call, inner); });
  out.text(2, "ulp");
  for (const Initializer& one : model.initializers)
    out.message(5, [&](WireWriter& inner) { write_tensor(one, model.data_file, inner); });
  for (const ValueInfo& value : model.inputs)
    out.message(11, [&](WireWriter& inner) { write_value(value, inner); });
  for (const ValueInfo& value : model.outputs)
    out.message(12, [&](WireWriter& inner) { write_value(value, inner); });
}

}  // namespace

int32_t data_type(at::ScalarType type, const std::string& tensor) {
  switch (type) {
    case at::kFloat:
      return 1;
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kShort:
      return 5;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    default:
      fail("exchange.export_onnx", "expected numbers of 16 bits or more, integers or bools, got ",
           c10::toString(type), " in '", tensor, "'; bfloat16 models are exported after .to(torch::kFloat)");
  }
}

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).contiguous();
}

uint64_t byte_count(const Initializer& tensor) {
  return static_cast<uint64_t>(tensor.data.numel()) * tensor.data.element_size();
}

void write(const Model& model, WireWriter& out) {
  out.integer(1, model.ir_version);
  out.text(2, model.producer);
  out.text(3, model.producer_version);
  out.message(7, [&](WireWriter& inner) { write_graph(model, inner); });
  out.message(8, [&](WireWriter& inner) {
    inner.text(1, "");
    inner.integer(2, model.opset);
  });
  for (const auto& [key, value] : model.metadata) {
    out.message(14, [&key = key, &value = value](WireWriter& inner) {
      inner.text(1, key);
      inner.text(2, value);
    });
  }
}

}  // namespace ulp::exchange::onnx
