#include "ulp/exchange/onnx_import/file_model.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/exchange/onnx_import/file_tensor.h"
#include "ulp/exchange/proto/wire_reader.h"

namespace ulp::exchange::onnx_import {

namespace {

constexpr const char* kReadOnnxWhere = "exchange.read_onnx";
constexpr int kDeepest = 8;  ///< graphs in graphs

/// Reads messages, and counts what the objects made of them cost: a message of two bytes may become one of
/// hundreds.
class FileModelReader {
 public:
  FileModelReader(size_t bytes, std::filesystem::path folder)
      : folder_(std::move(folder)), left_(kFree + kPerByte * bytes) {}

  FileModel model(WireReader reader) {
    FileModel model;
    bool has_graph = false;
    while (reader.next()) {
      switch (reader.field()) {
        case 1:
          model.ir_version = reader.integer();
          break;
        case 2:
          model.producer = reader.text();
          break;
        case 7:
          model.graph = graph(reader.message(""), 0);
          has_graph = true;
          break;
        case 8:
          opset(reader.message(", opset_import"), model);
          break;
        case 14:
          entry(reader.message(", metadata_props"), model.metadata);
          break;
        default:
          break;
      }
    }
    if (!has_graph || model.ir_version < 1)
      fail_file(kReadOnnxWhere, "expected an ONNX model, got no graph or no version in ", reader.where());
    return model;
  }

 private:
  static constexpr size_t kFree = size_t{32} << 20, kPerByte = 2;

  template <typename T>
  void spend(const WireReader& reader) {
    if (sizeof(T) > left_)
      fail_file(kReadOnnxWhere, "expected fewer parts for its size, got too many in ", reader.where());
    left_ -= sizeof(T);
  }

  void opset(WireReader reader, FileModel& model) {
    std::string domain;
    int64_t version = 0;
    while (reader.next()) {
      if (reader.field() == 1) domain = reader.text();
      if (reader.field() == 2) version = reader.integer();
    }
    spend<FileDim>(reader);
    model.opsets[domain == "ai.onnx" ? "" : domain] = version;
  }

  void entry(WireReader reader, std::map<std::string, std::string>& into) {
    std::string key, value;
    while (reader.next()) {
      if (reader.field() == 1) key = reader.text();
      if (reader.field() == 2) value = reader.bytes();
    }
    spend<FileDim>(reader);
    into[key] = std::move(value);
  }

  FileGraph graph(WireReader reader, int depth) {
    if (depth > kDeepest)
      fail_file(kReadOnnxWhere, "expected at most ", kDeepest, " graphs inside each other, got more in ",
                reader.where());
    FileGraph graph;
    while (reader.next()) {
      const auto place = [&](const char* what, size_t i) {
        return std::string(", ") + what + ' ' + std::to_string(i);
      };
      switch (reader.field()) {
        case 1:
          spend<FileNode>(reader);
          graph.nodes.push_back(node(reader.message(place("node", graph.nodes.size())), depth));
          break;
        case 5:
          spend<FileTensor>(reader);
          graph.initializers.push_back(
              read_tensor(reader.message(place("initializer", graph.initializers.size())), folder_));
          break;
        case 11:
          spend<FileValue>(reader);
          graph.inputs.push_back(value(reader.message(place("input", graph.inputs.size()))));
          break;
        case 12:
          spend<FileValue>(reader);
          graph.outputs.push_back(value(reader.message(place("output", graph.outputs.size()))));
          break;
        case 15:
          fail_file(kReadOnnxWhere, "expected dense initializers, got a sparse one in ", reader.where());
        default:
          break;
      }
    }
    return graph;
  }

  FileNode node(WireReader reader, int depth) {
    FileNode node;
    while (reader.next()) {
      switch (reader.field()) {
        case 1:
        case 2:
          spend<std::string>(reader);
          (reader.field() == 1 ? node.inputs : node.outputs).emplace_back(reader.text());
          break;
        case 3:
          node.name = reader.text();
          break;
        case 4:
          node.op = reader.text();
          break;
        case 5:
          spend<FileAttribute>(reader);
          node.attributes.push_back(attribute(reader.message(named(node) + ", attribute"), depth));
          break;
        case 7:
          node.domain = reader.text();
          break;
        default:
          break;
      }
    }
    if (node.op.empty()) fail_file(kReadOnnxWhere, "expected the name of an operator in ", reader.where());
    if (node.domain == "ai.onnx") node.domain.clear();
    return node;
  }

  static std::string named(const FileNode& node) { return node.name.empty() ? "" : " '" + node.name + "'"; }

  FileAttribute attribute(WireReader reader, int depth) {
    FileAttribute made;
    int64_t kind = 0;  // by the fields, for old files that do not say the type
    while (reader.next()) {
      const auto field = static_cast<int64_t>(reader.field());
      if (field >= 2 && field <= 11) kind = field - 1;
      const std::string what = " '" + made.name + "'";
      switch (field) {
        case 1:
          made.name = reader.text();
          break;
        case 2:
          made.f = reader.number();
          break;
        case 3:
          made.i = reader.integer();
          break;
        case 4:
          made.s = reader.bytes();
          break;
        case 5:
          read_value(reader.message(what), made);
          break;
        case 6:
          made.g = std::make_shared<FileGraph>(graph(reader.message(what), depth + 1));
          break;
        case 7:
          reader.append(made.floats);
          break;
        case 8:
          reader.append(made.ints);
          break;
        case 9:
          spend<std::string>(reader);
          made.strings.emplace_back(reader.bytes());
          break;
        case 20:
          made.type = reader.integer();
          break;
        default:
          break;
      }
    }
    if (made.type == 0) made.type = kind;
    return made;
  }

  void read_value(WireReader reader, FileAttribute& into) const {
    FileTensor tensor = read_tensor(std::move(reader), folder_);
    into.t = std::move(tensor.value);
    into.tensor_type = tensor.type;
  }

  FileValue value(WireReader reader) {
    FileValue value;
    while (reader.next()) {
      if (reader.field() == 1) value.name = reader.text();
      if (reader.field() != 2) continue;
      WireReader type = reader.message(" '" + value.name + "', type");
      while (type.next()) {
        if (type.field() == 1) tensor_type(type.message(""), value);
      }
    }
    return value;
  }

  void tensor_type(WireReader reader, FileValue& value) {
    while (reader.next()) {
      if (reader.field() == 1) value.type = reader.integer();
      if (reader.field() != 2) continue;
      value.has_shape = true;
      WireReader shape = reader.message(", shape");
      while (shape.next()) {
        if (shape.field() != 1) continue;
        spend<FileDim>(shape);
        value.shape.push_back(dim(shape.message("")));
      }
    }
  }

  static FileDim dim(WireReader reader) {
    FileDim dim;
    while (reader.next()) {
      if (reader.field() == 1) dim.size = reader.integer();
      if (reader.field() == 2) dim.name = reader.text();
    }
    return dim;
  }

  std::filesystem::path folder_;
  size_t left_;
};

}  // namespace

std::string FileNode::label() const {
  const bool unnamed = name.empty();
  if (unnamed && outputs.empty()) return "a node (" + op + ")";
  return "node '" + (unnamed ? outputs[0] : name) + "' (" + op + ")";
}

const FileAttribute* FileNode::find(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &FileAttribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

FileModel read_model(std::string_view bytes, const std::filesystem::path& file) {
  return FileModelReader(bytes.size(), file.parent_path())
      .model(WireReader(bytes, "the ONNX file '" + file.string() + "'"));
}

}  // namespace ulp::exchange::onnx_import
