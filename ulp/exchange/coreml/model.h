// A Core ML model as plain data, and its bytes: the program (MIL) with its inputs, operations and results. Only what is written is
// here. Format: mlmodel/format/Model.proto, FeatureTypes.proto and MIL.proto of apple/coremltools.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulp/exchange/coreml/blobs.h"
#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::exchange::coreml {

/// The function that errors name.
inline constexpr const char* kExportCoremlWhere = "exchange.export_coreml";

/// iOS 16 and macOS 13: the first whose programs hold weights of 8 bits.
inline constexpr int64_t kSpecification = 7;

/// Of a value. Integers are int32 in a file, which knows no int64 between operations.
struct Type {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};
  bool word = false;  ///< a string instead
};

/// A number, a tensor or a word of the file.
struct Constant {
  Type type;
  at::Tensor data;    ///< undefined for a word
  std::string word;   ///< where there is no data
  int64_t blob = -1;  ///< where its bytes are described in the file of weights; -1: they are in the model
};

/// The names that one parameter of an operation gets: one, or several where it takes a list.
struct Input {
  Input(const char* parameter, std::string value) : parameter(parameter), values{std::move(value)} {}
  Input(const char* parameter, std::vector<std::string> values)
      : parameter(parameter), values(std::move(values)) {}
  const char* parameter;
  std::vector<std::string> values;
};

/// A value with a name.
struct Named {
  std::string name;
  Type type;
};

struct Operation {
  std::string op, name;
  std::vector<Input> inputs;
  std::vector<std::pair<const char*, Constant>> attributes;  ///< beside its name
  std::vector<Named> outputs;
};

struct Model {
  std::vector<Named> inputs, outputs;
  std::vector<Operation> operations;
  Blobs blobs;
  std::string description, version;
  std::map<std::string, std::string> metadata;
};

/// The fields of Model.
void write(const Model& model, WireWriter& out);

}  // namespace ulp::exchange::coreml
