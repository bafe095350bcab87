// A reader of ONNX files for tests, from the wire format up and by the published field numbers alone: it shares
// nothing with the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wire_fields.h"

namespace ulp::test {

struct ReadTensor {
  std::string name;
  int64_t type = 0;
  std::vector<int64_t> dims;
  std::string raw;
  bool external = false;
  std::map<std::string, std::string> place;  ///< external_data

  /// Codes of 4 bits in the order of the elements, the low half of a byte first.
  std::vector<int> nibbles() const {
    std::vector<int> values;
    for (const char byte : raw) {
      values.push_back(static_cast<uint8_t>(byte) & 15);
      values.push_back(static_cast<uint8_t>(byte) >> 4);
    }
    return values;
  }
  template <typename T>
  std::vector<T> as() const {
    std::vector<T> values(raw.size() / sizeof(T));
    std::memcpy(values.data(), raw.data(), values.size() * sizeof(T));
    return values;
  }
};

inline ReadTensor read_tensor(std::string_view message) {
  ReadTensor tensor;
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) tensor.dims.push_back(static_cast<int64_t>(field.value));
    if (field.number == 2) tensor.type = static_cast<int64_t>(field.value);
    if (field.number == 8) tensor.name = field.bytes;
    if (field.number == 9) tensor.raw = field.bytes;
    if (field.number == 14) tensor.external = field.value == 1;
    if (field.number != 13) continue;
    const auto entry = wire_fields(field.bytes);
    tensor.place[std::string(entry.at(0).bytes)] = entry.at(1).bytes;
  }
  return tensor;
}

struct ReadAttribute {
  int64_t type = 0, i = 0;
  float f = 0;
  std::string s;
  std::vector<int64_t> ints;
  ReadTensor t;
};

struct ReadNode {
  std::string op, name;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, ReadAttribute> attributes;
};

/// A dimension as text: "batch", "28".
struct ReadValue {
  std::string name;
  int64_t type = 0;
  std::vector<std::string> shape;
};

struct ReadModel {
  int64_t ir = 0, opset = 0;
  std::string producer;
  std::vector<ReadNode> nodes;
  std::map<std::string, ReadTensor> initializers;
  std::vector<ReadValue> inputs, outputs;
  std::map<std::string, std::string> metadata;

  /// Nodes of this operator, in order.
  std::vector<ReadNode> of(const std::string& op) const {
    std::vector<ReadNode> found;
    for (const ReadNode& node : nodes) {
      if (node.op == op) found.push_back(node);
    }
    return found;
  }
  /// Who makes a value; null for an input or an initializer.
  const ReadNode* maker(const std::string& value) const {
    for (const ReadNode& node : nodes) {
      for (const std::string& output : node.outputs) {
        if (output == value) return &node;
      }
    }
    return nullptr;
  }
};

inline ReadAttribute read_attribute(std::string_view message, std::string& name) {
  ReadAttribute made;
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) name = field.bytes;
    if (field.number == 2) std::memcpy(&made.f, field.bytes.data(), sizeof made.f);
    if (field.number == 3) made.i = static_cast<int64_t>(field.value);
    if (field.number == 4) made.s = field.bytes;
    if (field.number == 5) made.t = read_tensor(field.bytes);
    if (field.number == 8) made.ints.push_back(static_cast<int64_t>(field.value));
    if (field.number == 20) made.type = static_cast<int64_t>(field.value);
  }
  return made;
}

inline ReadNode read_node(std::string_view message) {
  ReadNode node;
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) node.inputs.emplace_back(field.bytes);
    if (field.number == 2) node.outputs.emplace_back(field.bytes);
    if (field.number == 3) node.name = field.bytes;
    if (field.number == 4) node.op = field.bytes;
    if (field.number == 5) {
      std::string name;
      ReadAttribute attribute = read_attribute(field.bytes, name);
      node.attributes[name] = std::move(attribute);
    }
  }
  return node;
}

inline ReadValue read_value(std::string_view message) {
  ReadValue value;
  std::string_view tensor, shape;
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) value.name = field.bytes;
    if (field.number == 2) tensor = wire_fields(field.bytes).at(0).bytes;
  }
  for (const WireField& field : wire_fields(tensor)) {
    if (field.number == 1) value.type = static_cast<int64_t>(field.value);
    if (field.number == 2) shape = field.bytes;
  }
  for (const WireField& dim : wire_fields(shape)) {
    const WireField size = wire_fields(dim.bytes).at(0);
    value.shape.push_back(size.kind == 0 ? std::to_string(size.value) : std::string(size.bytes));
  }
  return value;
}

inline void read_graph(std::string_view message, ReadModel& model) {
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) model.nodes.push_back(read_node(field.bytes));
    if (field.number == 5) {
      ReadTensor tensor = read_tensor(field.bytes);
      model.initializers[tensor.name] = tensor;
    }
    if (field.number == 11) model.inputs.push_back(read_value(field.bytes));
    if (field.number == 12) model.outputs.push_back(read_value(field.bytes));
  }
}

inline ReadModel read_onnx(std::string_view bytes) {
  ReadModel model;
  for (const WireField& field : wire_fields(bytes)) {
    if (field.number == 1) model.ir = static_cast<int64_t>(field.value);
    if (field.number == 2) model.producer = field.bytes;
    if (field.number == 7) read_graph(field.bytes, model);
    if (field.number == 8) model.opset = static_cast<int64_t>(wire_fields(field.bytes).at(1).value);
    if (field.number == 14) {
      const auto pair = wire_fields(field.bytes);
      model.metadata[std::string(pair.at(0).bytes)] = pair.at(1).bytes;
    }
  }
  return model;
}

}  // namespace ulp::test
