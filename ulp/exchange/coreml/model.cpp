#include "ulp/exchange/coreml/model.h"

#include "ulp/base/error.h"

namespace ulp::exchange::coreml {

namespace {

constexpr const char* kOpset = "CoreML6";  // of kSpecification

/// MILSpec.DataType.
int64_t data_type(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return 1;
    case at::kHalf:
      return 10;
    case at::kFloat:
      return 11;
    case at::kChar:
      return 21;
    case at::kInt:
    case at::kLong:
      return 23;
    case at::kByte:
      return 31;
    default:
      fail("exchange.export_coreml", "expected values of f32, f16, integers or bools, got ",
           c10::toString(type));
  }
}

/// ArrayFeatureType.ArrayDataType, of inputs and results.
int64_t array_type(at::ScalarType type) {
  constexpr int64_t kFloat32 = 65568, kFloat16 = 65552, kInt32 = 131104;
  return type == at::kFloat ? kFloat32 : type == at::kHalf ? kFloat16 : kInt32;
}

/// ValueType, which is a TensorType.
void write_type(const Type& type, WireWriter& out) {
  constexpr int64_t kString = 2;
  out.message(1, [&](WireWriter& tensor) {
    tensor.integer(1, type.word ? kString : data_type(type.dtype));
    tensor.integer(2, std::ssize(type.shape));
    for (const int64_t size : type.shape) {
      tensor.message(3, [&](WireWriter& dimension) {
        dimension.message(1, [&](WireWriter& constant) { constant.integer(1, size); });
      });
    }
  });
}

/// TensorValue of numbers that are in the model.
void write_numbers(const at::Tensor& data, WireWriter& out) {
  constexpr int kFloats = 1, kInts = 2, kBools = 3, kBytes = 7;
  const at::Tensor dense = data.to(at::kCPU).contiguous();
  const auto each = [&](int field, const auto& write) {
    out.message(field, [&](WireWriter& values) {
      for (int64_t i = 0; i < dense.numel(); ++i) write(values, i);
    });
  };
  switch (dense.scalar_type()) {
    case at::kFloat:
      return each(kFloats,
                  [&](WireWriter& values, int64_t i) { values.number(1, dense.const_data_ptr<float>()[i]); });
    case at::kInt:
      return each(kInts, [&](WireWriter& values, int64_t i) {
        values.integer(1, dense.const_data_ptr<int32_t>()[i]);
      });
    case at::kBool:
      return each(kBools,
                  [&](WireWriter& values, int64_t i) { values.integer(1, dense.const_data_ptr<bool>()[i]); });
    default:  // f16 and 8-bit integers
      return out.message(
          kBytes, [&](WireWriter& values) { values.bytes(1, dense.const_data_ptr(), dense.nbytes()); });
  }
}

void write_word(const std::string& word, WireWriter& out) {
  out.message(2, [&](WireWriter& type) { write_type(Type{.word = true}, type); });
  out.message(3, [&](WireWriter& immediate) {
    immediate.message(1, [&](WireWriter& tensor) {
      tensor.message(4, [&](WireWriter& strings) { strings.text(1, word); });
    });
  });
}

/// Value.
void write_value(const Constant& constant, WireWriter& out) {
  if (!constant.data.defined()) return write_word(constant.word, out);
  out.message(2, [&](WireWriter& type) { write_type(constant.type, type); });
  if (constant.blob < 0) {
    out.message(3, [&](WireWriter& immediate) {
      immediate.message(1, [&](WireWriter& tensor) { write_numbers(constant.data, tensor); });
    });
    return;
  }
  out.message(5, [&](WireWriter& blob) {
    blob.text(1, "@model_path/weights/weight.bin");
    blob.integer(2, constant.blob);
  });
}

/// NamedValueType.
void write_named(const Named& value, WireWriter& out) {
  out.text(1, value.name);
  out.message(2, [&](WireWriter& type) { write_type(value.type, type); });
}

/// An entry of a map with words as keys.
template <typename Write>
void write_entry(int field, const std::string& key, const Write& write, WireWriter& out) {
  out.message(field, [&](WireWriter& entry) {
    entry.text(1, key);
    entry.message(2, write);
  });
}

void write_operation(const Operation& operation, WireWriter& out) {
  out.text(1, operation.op);
  for (const Input& input : operation.inputs) {
    const auto argument = [&](WireWriter& inner) {
      for (const std::string& value : input.values)
        inner.message(1, [&](WireWriter& binding) { binding.text(1, value); });
    };
    write_entry(2, input.parameter, argument, out);
  }
  for (const Named& output : operation.outputs)
    out.message(3, [&](WireWriter& inner) { write_named(output, inner); });
  write_entry(
      5, "name", [&](WireWriter& value) { write_word(operation.name, value); }, out);
  for (const auto& [name, constant] : operation.attributes)
    write_entry(
        5, name, [&](WireWriter& value) { write_value(constant, value); }, out);
}

/// MILSpec.Program of one function with one block.
void write_program(const Model& model, WireWriter& out) {
  const auto block = [&](WireWriter& inner) {
    for (const Named& output : model.outputs) inner.text(2, output.name);
    for (const Operation& operation : model.operations)
      inner.message(3, [&](WireWriter& one) { write_operation(operation, one); });
  };
  const auto function = [&](WireWriter& inner) {
    for (const Named& input : model.inputs)
      inner.message(1, [&](WireWriter& one) { write_named(input, one); });
    inner.text(2, kOpset);
    write_entry(3, kOpset, block, inner);
  };
  out.integer(1, 1);  // version
  write_entry(2, "main", function, out);
}

/// FeatureDescription of a MultiArray.
void write_feature(const Named& value, WireWriter& out) {
  const auto array = [&](WireWriter& inner) {
    for (const int64_t size : value.type.shape) inner.integer(1, size);
    inner.integer(2, array_type(value.type.dtype));
  };
  out.text(1, value.name);
  out.message(3, [&](WireWriter& type) { type.message(5, array); });
}

/// ModelDescription.
void write_description(const Model& model, WireWriter& out) {
  for (const Named& input : model.inputs)
    out.message(1, [&](WireWriter& inner) { write_feature(input, inner); });
  for (const Named& output : model.outputs)
    out.message(10, [&](WireWriter& inner) { write_feature(output, inner); });
  out.message(100, [&](WireWriter& metadata) {
    metadata.text(1, model.description);
    metadata.text(2, model.version);
    for (const auto& [key, value] : model.metadata) {
      metadata.message(100, [&key = key, &value = value](WireWriter& entry) {
        entry.text(1, key);
        entry.text(2, value);
      });
    }
  });
}

}  // namespace

void write(const Model& model, WireWriter& out) {
  constexpr int kMlProgram = 502;
  out.integer(1, kSpecification);
  out.message(2, [&](WireWriter& inner) { write_description(model, inner); });
  out.message(kMlProgram, [&](WireWriter& inner) { write_program(model, inner); });
}

}  // namespace ulp::exchange::coreml
