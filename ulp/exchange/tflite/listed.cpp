// What a TensorFlow Lite file holds.
#include <tflite_schema_generated.h>

#include <algorithm>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/read_file.h"
#include "ulp/exchange/listed_file.h"
#include "ulp/exchange/proto/wire_reader.h"

namespace ulp::exchange {

namespace {

constexpr const char* kListTfliteWhere = "exchange.list_tflite";

/// A word of an enumeration; its number where a later version has added it.
std::string enum_name(const char* word, int64_t number) {
  return *word == '\0' ? "number " + std::to_string(number) : word;
}

class TfliteLister {
 public:
  TfliteLister(const tflite::schema::Model& model, const std::filesystem::path& path)
      : model_(model), path_(path) {}

  ListedFile list() {
    if (model_.subgraphs() == nullptr) refuse("expected graphs, got none");
    for (const tflite::schema::SubGraph* graph : *model_.subgraphs()) add(*graph);
    return std::move(file_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file(kListTfliteWhere, parts..., " in '", path_.string(), "'");
  }

  /// Names go into messages and JSON. A file may refer to one name many times.
  std::string plain(const flatbuffers::String* text) {
    constexpr uint64_t kMostText = uint64_t{256} << 20;
    const std::string_view given = text == nullptr ? std::string_view() : text->string_view();
    if ((text_ += given.size()) > kMostText) refuse("expected names of at most ", kMostText, " bytes in all");
    return is_plain_text(given) ? std::string(given) : "(no text)";
  }

  template <typename Places>
  std::vector<std::string> names(const tflite::schema::SubGraph& graph, const Places* places) {
    std::vector<std::string> names;
    if (places == nullptr) return names;
    for (const int32_t place : *places) {
      if (place == -1) continue;  // an operand that is left out
      if (graph.tensors() == nullptr || place < 0 || static_cast<uint32_t>(place) >= graph.tensors()->size())
        refuse("expected tensors of the graph, got number ", place);
      names.push_back(plain(graph.tensors()->Get(static_cast<uint32_t>(place))->name()));
    }
    return names;
  }

  std::string op_of(const tflite::schema::Operator& op) {
    if (model_.operator_codes() == nullptr || op.opcode_index() >= model_.operator_codes()->size())
      refuse("expected operators of the list, got number ", op.opcode_index());
    const tflite::schema::OperatorCode& code = *model_.operator_codes()->Get(op.opcode_index());
    if (code.custom_code() != nullptr) return plain(code.custom_code());
    const auto old = static_cast<tflite::schema::Operation>(code.deprecated_builtin_code());
    const auto made = std::max(code.builtin_code(), old);  // old files have the number in a byte alone
    return enum_name(tflite::schema::EnumNameOperation(made), static_cast<int64_t>(made));
  }

  uint64_t stored_bytes(const tflite::schema::Tensor& tensor) const {
    if (model_.buffers() == nullptr || tensor.buffer() >= model_.buffers()->size())
      refuse("expected buffers of the list, got number ", tensor.buffer());
    const auto* data = model_.buffers()->Get(tensor.buffer())->data();
    return data == nullptr ? 0 : data->size();
  }

  /// Of each tensor: "input", "output" or neither.
  std::vector<const char*> uses_of(const tflite::schema::SubGraph& graph) const {
    std::vector<const char*> uses(graph.tensors() == nullptr ? 0 : graph.tensors()->size(), "");
    const auto mark = [&](const flatbuffers::Vector<int32_t>* places, const char* use) {
      if (places == nullptr) return;
      for (const int32_t place : *places) {
        if (place == -1) continue;
        if (place < 0 || static_cast<size_t>(place) >= uses.size())
          refuse("expected tensors of the graph, got number ", place);
        uses[static_cast<size_t>(place)] = use;
      }
    };
    mark(graph.outputs(), "output");
    mark(graph.inputs(), "input");  // what is both is an input
    return uses;
  }

  void add(const tflite::schema::SubGraph& graph) {
    if (graph.operators() != nullptr) {
      for (const tflite::schema::Operator* op : *graph.operators())
        file_.operators.push_back({op_of(*op), names(graph, op->inputs()), names(graph, op->outputs())});
    }
    const std::vector<const char*> uses = uses_of(graph);
    if (graph.tensors() == nullptr) return;
    for (uint32_t i = 0; i < graph.tensors()->size(); ++i) {
      const tflite::schema::Tensor& tensor = *graph.tensors()->Get(i);
      ListedTensor one{.name = plain(tensor.name()),
                       .type = enum_name(tflite::schema::EnumNameTensorType(tensor.type()),
                                         static_cast<int64_t>(tensor.type())),
                       .bytes = stored_bytes(tensor)};
      const bool free = tensor.shape_signature() != nullptr && tensor.shape_signature()->size() > 0;
      const auto* shape = free ? tensor.shape_signature() : tensor.shape();
      if (shape != nullptr) one.shape.assign(shape->begin(), shape->end());
      one.use = *uses[i] == '\0' && one.bytes > 0 ? "stored" : uses[i];
      file_.tensors.push_back(std::move(one));
    }
  }

  const tflite::schema::Model& model_;
  const std::filesystem::path& path_;
  ListedFile file_;
  uint64_t text_ = 0;  ///< bytes of the names so far
};

}  // namespace

ListedFile list_tflite(const std::filesystem::path& path) {
  const std::string bytes = read_file(kListTfliteWhere, path, std::numeric_limits<int32_t>::max());
  constexpr flatbuffers::uoffset_t kDepth = 64, kTables = 10'000'000;
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), kDepth,
                                 kTables);
  if (bytes.size() < 8 || !tflite::schema::VerifyModelBuffer(verifier))
    fail_file(kListTfliteWhere, "expected a TensorFlow Lite file that is whole, got '", path.string(), "'");
  return TfliteLister(*tflite::schema::GetModel(bytes.data()), path).list();
}

}  // namespace ulp::exchange
