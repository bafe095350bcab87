// What a Core ML package holds: the messages of Model.proto and MIL.proto, as far as they say that.
#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"
#include "ulp/exchange/listed_file.h"
#include "ulp/exchange/proto/wire_reader.h"

namespace ulp::exchange {

namespace {

constexpr const char* kListCoreMlWhere = "exchange.list_coreml";
using Kind = WireReader::Kind;

/// A type of MIL by its number.
std::string mil_type_name(int64_t type) {
  switch (type) {
    case 1:
      return "bool";
    case 2:
      return "string";
    case 10:
      return "float16";
    case 11:
      return "float32";
    case 12:
      return "float64";
    case 21:
      return "int8";
    case 22:
      return "int16";
    case 23:
      return "int32";
    case 24:
      return "int64";
    case 31:
      return "uint8";
    case 32:
      return "uint16";
    default:
      return "type " + std::to_string(type);
  }
}

uint64_t bytes_of_type(const std::string& type) {
  if (type == "bool" || type == "int8" || type == "uint8") return 1;
  if (type == "float16" || type == "int16" || type == "uint16") return 2;
  if (type == "float64" || type == "int64") return 8;
  return type == "float32" || type == "int32" ? 4 : 0;
}

/// NamedValueType: a name, and the type and the sizes of a tensor.
ListedTensor read_named_type(WireReader named) {
  ListedTensor tensor;
  const auto read_size = [&](WireReader dimension) {
    int64_t size = -1;
    while (dimension.next()) {
      if (dimension.field() != 1 || dimension.kind() != Kind::bytes) continue;
      WireReader constant = dimension.message(", a size");
      size = 0;
      while (constant.next()) {
        if (constant.field() == 1) size = constant.integer();
      }
    }
    tensor.shape.push_back(size);
  };
  const auto read_tensor_type = [&](WireReader type) {
    while (type.next()) {
      if (type.field() == 1) tensor.type = mil_type_name(type.integer());
      if (type.field() == 3) read_size(type.message(", a dimension"));
    }
  };
  while (named.next()) {
    if (named.field() == 1) tensor.name = std::string(named.text());
    if (named.field() != 2) continue;
    WireReader type = named.message(", a type");
    while (type.next()) {
      if (type.field() == 1) read_tensor_type(type.message(", a tensor"));
    }
  }
  return tensor;
}

class CoreMlLister {
 public:
  ListedFile list(WireReader model) {
    bool found = false;
    while (model.next()) {
      constexpr uint64_t kProgram = 502;
      if (model.field() != kProgram) continue;
      found = true;
      read_program(model.message(", the program"));
    }
    if (!found) fail_file(kListCoreMlWhere, "expected an ML program, got none in ", model.where());
    return std::move(file_);
  }

 private:
  /// Calls `read` with the value of each entry of a map.
  template <typename Read>
  static void each_value(WireReader entry, const Read& read) {
    while (entry.next()) {
      if (entry.field() == 2) read(entry.message(", a value"));
    }
  }

  void read_program(WireReader program) {
    while (program.next()) {
      if (program.field() == 2)
        each_value(program.message(", a function"), [&](WireReader function) { read_function(function); });
    }
  }

  void read_function(WireReader function) {
    while (function.next()) {
      if (function.field() == 1) {
        file_.tensors.push_back(read_named_type(function.message(", an input")));
        file_.tensors.back().use = "input";
      }
      if (function.field() == 3)
        each_value(function.message(", a block"), [&](WireReader block) { read_block(block); });
    }
  }

  void read_block(WireReader block) {
    std::vector<std::string> results;
    while (block.next()) {
      if (block.field() == 2) results.emplace_back(block.text());
      if (block.field() == 3) read_operation(block.message(", an operation"));
    }
    for (const std::string& result : results) {
      const auto made = made_.find(result);
      if (made == made_.end()) continue;
      file_.tensors.push_back(made->second);
      file_.tensors.back().use = "output";
    }
    made_.clear();
  }

  static void read_names(WireReader argument, std::vector<std::string>& names) {
    while (argument.next()) {
      if (argument.field() != 1) continue;
      WireReader binding = argument.message(", an argument");
      while (binding.next()) {
        if (binding.field() == 1) names.emplace_back(binding.text());
      }
    }
  }

  void read_operation(WireReader operation) {
    ListedOperator made;
    std::vector<ListedTensor> outputs;
    while (operation.next()) {
      if (operation.field() == 1) made.op = std::string(operation.text());
      if (operation.field() == 2)
        each_value(operation.message(", an input"),
                   [&](WireReader argument) { read_names(argument, made.inputs); });
      if (operation.field() == 3) outputs.push_back(read_named_type(operation.message(", a result")));
    }
    for (const ListedTensor& output : outputs) made.outputs.push_back(output.name);
    if (made.op != "const") {
      file_.operators.push_back(std::move(made));
      for (ListedTensor& output : outputs) made_.insert_or_assign(output.name, output);
      return;
    }
    for (ListedTensor& output : outputs) {
      output.use = "stored";
      output.bytes = bytes_of_type(output.type);
      for (const int64_t size : output.shape) {
        if (size < 0 || __builtin_mul_overflow(output.bytes, static_cast<uint64_t>(size), &output.bytes))
          operation.refuse("stored tensors of sizes that a file can hold");
      }
      file_.tensors.push_back(std::move(output));
    }
  }

  ListedFile file_;
  std::map<std::string, ListedTensor> made_;  // of the block that is read, by their names
};

/// The file of the model, by the manifest.
std::filesystem::path model_file(const std::filesystem::path& package) {
  const std::filesystem::path manifest = package / "Manifest.json";
  constexpr uintmax_t kMostBytes = uintmax_t{1} << 20;
  const auto json = parse_json_or_discarded(read_file(kListCoreMlWhere, manifest, kMostBytes));
  const auto word = [](const nlohmann::json& object, const char* key) -> std::string {
    const bool there = object.is_object() && object.contains(key) && object[key].is_string();
    return there ? object[key].get<std::string>() : "";
  };
  const bool whole =
      json.is_object() && json.contains("itemInfoEntries") && json["itemInfoEntries"].is_object();
  const std::string root = word(json, "rootModelIdentifier");
  const bool named = whole && json["itemInfoEntries"].contains(root);
  const std::filesystem::path inside = named ? word(json["itemInfoEntries"][root], "path") : "";
  if (inside.empty() || inside.is_absolute() || std::ranges::find(inside, "..") != inside.end())
    fail_file(kListCoreMlWhere, "expected a manifest with a model inside the package, got '",
              manifest.string(), "'");
  return package / "Data" / inside;
}

}  // namespace

ListedFile list_coreml(const std::filesystem::path& package) {
  const std::filesystem::path path = model_file(package);
  const std::string bytes = read_file(kListCoreMlWhere, path, std::numeric_limits<int32_t>::max());
  return CoreMlLister().list(WireReader(bytes, "'" + path.string() + "'"));
}

}  // namespace ulp::exchange
