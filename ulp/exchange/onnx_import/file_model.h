// An ONNX file as plain data, as it was read: names, nodes, tensors. Nothing is made of it yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ulp::exchange::onnx_import {

/// The function that errors name.
inline constexpr const char* kImportOnnxWhere = "exchange.import_onnx";

struct FileGraph;

/// A tensor of the file. Codes of 4 and 2 bits lie in int8 and uint8.
struct FileTensor {
  std::string name = {};
  int64_t type = 0;       ///< TensorProto.DataType
  at::Tensor value = {};  ///< on the CPU; undefined for text and other types that LibTorch has not
};

/// AttributeProto: what its type says is filled in.
struct FileAttribute {
  std::string name = {};
  int64_t type = 0;
  int64_t i = 0;
  float f = 0;
  std::string s = {};
  at::Tensor t = {};
  int64_t tensor_type = 0;  ///< TensorProto.DataType of `t`
  std::vector<int64_t> ints = {};
  std::vector<float> floats = {};
  std::shared_ptr<FileGraph> g = {};
  std::vector<std::string> strings = {};
};

/// A call of an operator. Inputs that are left out are "".
struct FileNode {
  std::string op, domain, name;
  std::vector<std::string> inputs, outputs;
  std::vector<FileAttribute> attributes;
  /// "node 'conv1' (Conv)", for messages.
  std::string label() const;
  /// Null for an attribute that is not there.
  const FileAttribute* find(std::string_view attribute) const;
};

/// A dimension: a number, a name, or nothing at all.
struct FileDim {
  int64_t size = -1;
  std::string name;
};

/// An input or a result.
struct FileValue {
  std::string name = {};
  int64_t type = 0;  ///< 0: no tensor
  bool has_shape = false;
  std::vector<FileDim> shape = {};
};

struct FileGraph {
  std::vector<FileNode> nodes;
  std::vector<FileTensor> initializers;
  std::vector<FileValue> inputs, outputs;
};

struct FileModel {
  int64_t ir_version = 0;
  std::string producer;                   ///< the program that wrote it
  std::map<std::string, int64_t> opsets;  ///< by domain; "" is the standard one
  std::map<std::string, std::string> metadata;
  FileGraph graph;
};

/// Reads a model. `file` is for messages; tensors outside it are looked for in its folder alone. Memory
/// stays in proportion to the bytes, whatever they say. Throws FileError that names the file and the place.
FileModel read_model(std::string_view bytes, const std::filesystem::path& file);

/// The element type of a TensorProto.DataType; throws FileError naming `where` for one that LibTorch has not.
at::ScalarType scalar_type(int64_t type, const std::string& where);
/// The same of an input: also of numbers of 8 bits, and of whole numbers of 4 and 2 bits, which come in 8.
at::ScalarType input_type(int64_t type, const std::string& where);
/// The TensorProto.DataType of an element type; 0 for one that ONNX has not.
int64_t data_type(at::ScalarType type);
/// "float16", as ONNX calls a TensorProto.DataType; its number where that is unknown.
std::string type_name(int64_t type);

}  // namespace ulp::exchange::onnx_import
