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

/// A tensor of the file.
struct Initializer {
  std::string name;
  at::Tensor tensor;  ///< dense, on the CPU
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
};

/// The fields of ModelProto.
void write(const Model& model, WireWriter& out);

}  // namespace ulp::exchange::onnx
