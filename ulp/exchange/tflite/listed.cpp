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

/// Names go into messages and JSON.
std::string plain(const flatbuffers::String* text) {
  const std::string_view given = text == nullptr ? std::string_view() : text->string_view();
  return is_plain_text(given) ? std::string(given) : "(no text)";
}

/// A word of an enumeration; its number where a later version has added it.
std::string word_of(const char* word, int64_t number) {
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

  template <typename Places>
  std::vector<std::string> names(const tflite::schema::SubGraph& graph, const Places* places) const {
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

  std::string op_of(const tflite::schema::Operator& op) const {
    if (model_.operator_codes() == nullptr || op.opcode_index() >= model_.operator_codes()->size())
      refuse("expected operators of the list, got number ", op.opcode_index());
    const tflite::schema::OperatorCode& code = *model_.operator_codes()->Get(op.opcode_index());
    if (code.custom_code() != nullptr) return plain(code.custom_code());
    const auto old = static_cast<tflite::schema::Operation>(code.deprecated_builtin_code());
    const auto made = std::max(code.builtin_code(), old);  // old files have the number in a byte alone
    return word_of(tflite::schema::EnumNameOperation(made), static_cast<int64_t>(made));
  }

  uint64_t stored_bytes(const tflite::schema::Tensor& tensor) const {
    if (model_.buffers() == nullptr || tensor.buffer() >= model_.buffers()->size())
      refuse("expected buffers of the list, got number ", tensor.buffer());
    const auto* data = model_.buffers()->Get(tensor.buffer())->data();
    return data == nullptr ? 0 : data->size();
  }

  void add(const tflite::schema::SubGraph& graph) {
    if (graph.operators() != nullptr) {
      for (const tflite::schema::Operator* op : *graph.operators())
        file_.operators.push_back({op_of(*op), names(graph, op->inputs()), names(graph, op->outputs())});
    }
    names(graph, graph.inputs());
    names(graph, graph.outputs());
    if (graph.tensors() == nullptr) return;
    const auto holds = [](const flatbuffers::Vector<int32_t>* places, uint32_t i) {
      return places != nullptr &&
             std::find(places->begin(), places->end(), static_cast<int32_t>(i)) != places->end();
    };
    for (uint32_t i = 0; i < graph.tensors()->size(); ++i) {
      const tflite::schema::Tensor& tensor = *graph.tensors()->Get(i);
      ListedTensor one{.name = plain(tensor.name()),
                       .type = word_of(tflite::schema::EnumNameTensorType(tensor.type()),
                                       static_cast<int64_t>(tensor.type())),
                       .bytes = stored_bytes(tensor)};
      const bool free = tensor.shape_signature() != nullptr && tensor.shape_signature()->size() > 0;
      const auto* shape = free ? tensor.shape_signature() : tensor.shape();
      if (shape != nullptr) one.shape.assign(shape->begin(), shape->end());
      const bool input = holds(graph.inputs(), i), output = holds(graph.outputs(), i);
      one.use = input ? "input" : output ? "output" : one.bytes > 0 ? "stored" : "";
      file_.tensors.push_back(std::move(one));
    }
  }

  const tflite::schema::Model& model_;
  const std::filesystem::path& path_;
  ListedFile file_;
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
