// A reader of Core ML packages for tests, by the published field numbers and the published layout of the file of weights alone: it
// shares nothing with the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "file_bytes.h"
#include "wire_fields.h"

namespace ulp::test {

/// A constant: its type by MIL's numbers (1 bool, 2 word, 10 f16, 11 f32, 21 s8, 23 s32), its sizes, and its bytes.
struct MilValue {
  int64_t type = 0;
  std::vector<int64_t> shape;
  std::string bytes;  ///< of f16, s8 and blobs
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::string word;
  int64_t blob = -1;       ///< offset of its description in the file of weights
  uint32_t blob_type = 0;  ///< 1 f16, 2 f32, 3 u8, 4 s8

  template <typename T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

/// Type and sizes are those of its last result.
struct MilOperation {
  std::string op;
  std::vector<std::string> outputs;
  int64_t type = 0;
  std::vector<int64_t> shape;
  std::map<std::string, std::vector<std::string>> inputs;
  std::map<std::string, MilValue> attributes;
};

struct MilFeature {
  std::string name;
  int64_t type = 0;
  std::vector<int64_t> shape;
};

struct MilModel {
  int64_t specification = 0;
  std::string opset;
  std::vector<MilFeature> inputs, outputs;  ///< of the description
  std::vector<std::string> results;         ///< of the program
  std::vector<MilOperation> operations;
  std::map<std::string, std::string> metadata;
  std::string weights;
  nlohmann::json manifest;

  /// Operations of this kind, in order.
  std::vector<MilOperation> of(const std::string& op) const {
    std::vector<MilOperation> found;
    for (const MilOperation& one : operations) {
      if (one.op == op) found.push_back(one);
    }
    return found;
  }
  /// Who makes a value.
  const MilOperation& maker(const std::string& name) const {
    for (const MilOperation& one : operations) {
      if (one.outputs.at(0) == name) return one;
    }
    throw std::runtime_error("nobody makes " + name);
  }
  /// The constant that an operation reads.
  const MilValue& constant(const MilOperation& operation, const std::string& parameter) const {
    return maker(operation.inputs.at(parameter).at(0)).attributes.at("val");
  }
};

inline std::string_view mil_field(std::string_view message, uint64_t number) {
  for (const WireField& field : wire_fields(message)) {
    if (field.number == number) return field.bytes;
  }
  return {};
}

/// ValueType.tensorType.
inline void read_mil_type(std::string_view message, int64_t& type, std::vector<int64_t>& shape) {
  for (const WireField& field : wire_fields(mil_field(message, 1))) {
    if (field.number == 1) type = static_cast<int64_t>(field.value);
    if (field.number != 3) continue;
    int64_t size = 0;
    for (const WireField& one : wire_fields(mil_field(field.bytes, 1)))
      size = static_cast<int64_t>(one.value);
    shape.push_back(size);
  }
}

inline void read_mil_numbers(std::string_view tensor, MilValue& value) {
  for (const WireField& kind : wire_fields(tensor)) {
    for (const WireField& one : wire_fields(kind.bytes)) {
      if (kind.number == 1) std::memcpy(&value.floats.emplace_back(), one.bytes.data(), sizeof(float));
      if (kind.number == 2 || kind.number == 3)
        value.ints.push_back(static_cast<int32_t>(static_cast<uint32_t>(one.value)));
      if (kind.number == 4) value.word = one.bytes;
      if (kind.number == 7) value.bytes = one.bytes;
    }
  }
}

/// The description and the bytes of a blob, by the offset in the model.
inline void read_mil_blob(const std::string& weights, MilValue& value) {
  const auto at = static_cast<size_t>(value.blob);
  const auto number = [&](size_t place, auto& into) {
    if (place + sizeof into > weights.size()) throw std::runtime_error("a blob ends early");
    std::memcpy(&into, weights.data() + place, sizeof into);
  };
  uint32_t sentinel = 0;
  uint64_t size = 0, begin = 0;
  number(at, sentinel);
  number(at + 4, value.blob_type);
  number(at + 8, size);
  number(at + 16, begin);
  if (sentinel != 0xDEADBEEF || at % 64 != 0 || begin != at + 64 || begin + size > weights.size())
    throw std::runtime_error("no blob at " + std::to_string(at));
  value.bytes = weights.substr(begin, size);
}

inline MilValue read_mil_value(std::string_view message, const std::string& weights) {
  MilValue value;
  read_mil_type(mil_field(message, 2), value.type, value.shape);
  read_mil_numbers(mil_field(mil_field(message, 3), 1), value);
  const std::string_view blob = mil_field(message, 5);
  if (blob.empty()) return value;
  if (mil_field(blob, 1) != "@model_path/weights/weight.bin")
    throw std::runtime_error("another file of weights");
  for (const WireField& field : wire_fields(blob)) {
    if (field.number == 2) value.blob = static_cast<int64_t>(field.value);
  }
  read_mil_blob(weights, value);
  return value;
}

inline MilOperation read_mil_operation(std::string_view message, const std::string& weights) {
  MilOperation operation;
  for (const WireField& field : wire_fields(message)) {
    if (field.number == 1) operation.op = field.bytes;
    if (field.number == 2) {
      auto& names = operation.inputs[std::string(mil_field(field.bytes, 1))];
      for (const WireField& binding : wire_fields(mil_field(field.bytes, 2)))
        names.emplace_back(mil_field(binding.bytes, 1));
    }
    if (field.number == 3) {
      operation.outputs.emplace_back(mil_field(field.bytes, 1));
      operation.shape.clear();
      read_mil_type(mil_field(field.bytes, 2), operation.type, operation.shape);
    }
    if (field.number == 5)
      operation.attributes[std::string(mil_field(field.bytes, 1))] =
          read_mil_value(mil_field(field.bytes, 2), weights);
  }
  return operation;
}

inline MilFeature read_mil_feature(std::string_view message) {
  MilFeature feature;
  feature.name = mil_field(message, 1);
  for (const WireField& field : wire_fields(mil_field(mil_field(message, 3), 5))) {
    if (field.number == 1) feature.shape.push_back(static_cast<int64_t>(field.value));
    if (field.number == 2) feature.type = static_cast<int64_t>(field.value);
  }
  return feature;
}

inline MilModel read_coreml(const std::filesystem::path& package) {
  MilModel model;
  model.manifest = nlohmann::json::parse(file_bytes(package / "Manifest.json"));
  const std::filesystem::path data = package / "Data";
  const auto item = model.manifest.at("itemInfoEntries").at(model.manifest.at("rootModelIdentifier"));
  const std::string bytes = file_bytes(data / item.at("path").get<std::string>());
  model.weights = file_bytes(data / "com.apple.CoreML" / "weights" / "weight.bin");
  std::string_view program;
  for (const WireField& field : wire_fields(bytes)) {
    if (field.number == 1) model.specification = static_cast<int64_t>(field.value);
    if (field.number == 502) program = field.bytes;
    if (field.number != 2) continue;
    for (const WireField& one : wire_fields(field.bytes)) {
      if (one.number == 1) model.inputs.push_back(read_mil_feature(one.bytes));
      if (one.number == 10) model.outputs.push_back(read_mil_feature(one.bytes));
      if (one.number != 100) continue;
      for (const WireField& entry : wire_fields(one.bytes)) {
        if (entry.number == 100)
          model.metadata[std::string(mil_field(entry.bytes, 1))] = mil_field(entry.bytes, 2);
      }
    }
  }
  const std::string_view function = mil_field(mil_field(program, 2), 2);
  model.opset = mil_field(function, 2);
  const std::string_view block = mil_field(mil_field(function, 3), 2);
  for (const WireField& field : wire_fields(block)) {
    if (field.number == 2) model.results.emplace_back(field.bytes);
    if (field.number == 3) model.operations.push_back(read_mil_operation(field.bytes, model.weights));
  }
  return model;
}

}  // namespace ulp::test
