// An ONNX model as plain data, and its bytes. Only what is written is here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::exchange::onnx {

/// TensorProto.DataType of an element type; throws ulp::Error naming the tensor for one that ONNX has not.
int32_t data_type(at::ScalarType type, const std::string& tensor);

/// A named value of an operator that is no tensor of the graph.
struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, at::Tensor> value;
};

/// A call of an operator of the standard domain.
struct Call {
  std::string op, name;
  std::vector<std::string> inputs;  ///< "" for one that is left out
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
};

/// TensorProto.DataType of codes of 4 bits.
inline constexpr int32_t kUint4 = 21, kInt4 = 22;

/// A tensor of the file.
struct Initializer {
  std::string name;
  int32_t type = 0;  ///< TensorProto.DataType
  std::vector<int64_t> dims;
  /// Its elements in order, in any layout; 4-bit codes two in a byte, the first one in the low half.
  at::Tensor data;
  /// Where it begins in the file beside the model; -1: it is in the model itself.
  int64_t offset = -1;
};

/// An input or a result of the graph. A dimension is a number, or the name of one that is free.
struct ValueInfo {
  std::string name;
  int32_t type = 0;
  bool has_shape = true;
  std::vector<std::variant<int64_t, std::string>> shape = {};
};

struct Model {
  int64_t ir_version = 10, opset = 21;
  std::string producer, producer_version;
  std::vector<Call> calls;
  std::vector<Initializer> initializers;
  std::vector<ValueInfo> inputs, outputs;
  std::map<std::string, std::string> metadata;
  std::string data_file = {};  ///< the name of the file beside the model, where there is one
};

/// The same numbers as they lie in a file.
at::Tensor dense(const at::Tensor& tensor);
/// What it takes in a file.
uint64_t byte_count(const Initializer& tensor);

/// The fields of ModelProto.
void write(const Model& model, WireWriter& out);

}  // namespace ulp::exchange::onnx
