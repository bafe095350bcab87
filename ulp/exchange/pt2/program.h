// What torch.export writes of a program: models/NAME.json of a .pt2 archive, schema version 8, as plain data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ulp::exchange::pt2 {

using Json = nlohmann::json;

/// Of nodes, inputs, tensors, updates and results, each: the time to capture them grows with their square.
inline constexpr size_t kMostNodes = 10'000;
/// The file's number of layouts for dense tensors.
inline constexpr int64_t kDense = 7;

/// A value of the union Argument: the name of its kind ("as_tensor") and what it holds.
struct ProgramArgument {
  std::string kind;
  Json value;
};

/// The one key of a union, and what it holds. Throws FileError that says `what` was expected for anything
/// else.
ProgramArgument union_of(const Json& json, const char* what);

/// A call: of an operator ("torch.ops.aten.conv2d.default") or of a function of numbers ("_operator.mul").
struct ProgramNode {
  std::string target, name;
  std::vector<std::pair<std::string, ProgramArgument>> inputs;  ///< by the names of the operator's arguments
  std::vector<ProgramArgument> outputs;
  /// "node 'conv2d' (torch.ops.aten.conv2d.default)", for messages.
  std::string label() const;
};

struct ProgramGraph {
  std::vector<ProgramArgument> inputs, outputs;
  std::vector<ProgramNode> nodes;
};

/// A size: a number, or `factor` times a symbol.
struct ProgramSize {
  int64_t factor = 1;
  std::string symbol;
};

/// An input that the caller gives.
struct ProgramInput {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<ProgramSize> sizes;
};

/// A tensor that the archive has.
struct ProgramTensor {
  std::string value;  ///< its name in the graph
  std::string name;   ///< in the module: "layer1.0.weight"
  bool parameter = false;
  bool constant = false;  ///< among the constants: also buffers that are not persistent
};

/// A value that is written back to a tensor when the program ends.
struct ProgramUpdate {
  std::string value, name;
};

struct Program {
  ProgramGraph graph;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramTensor> tensors;
  std::vector<std::string> results;       ///< names of values
  std::vector<std::string> result_names;  ///< of a dictionary, else empty
  std::vector<ProgramUpdate> updates;
  struct Range {
    int64_t min = 0, max = -1;  ///< -1: without limit
  };
  std::map<std::string, Range> ranges;  ///< by symbols
  /// Whether it was exported in train mode: some batch norm or dropout of it trains.
  bool trains = false;
};

/// Reads the text of a program. Throws FileError for what is none, or is something else than a forward pass
/// over tensors, and nlohmann::json::exception for what lacks a field.
Program read_program(std::string_view text);

/// A graph that an argument holds.
ProgramGraph read_graph(const Json& json);

/// The element type of a number of the file's own ScalarType, which is not LibTorch's. Throws FileError for
/// another one.
at::ScalarType scalar_type(const Json& number);

/// A whole number of 64 bits. Throws FileError for fractions, larger numbers and other values.
int64_t whole_number(const Json& number);

/// The number of a SymInt that is no expression. Throws FileError for one.
int64_t plain_number(const Json& size);

/// A number of JSON; NaN and infinities are words.
double real_number(const Json& number);

}  // namespace ulp::exchange::pt2
