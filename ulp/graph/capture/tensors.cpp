#include "ulp/graph/capture/tensors.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

bool is_named_value(const c10::IValue& value) {
  if (!value.isTuple()) return false;
  const auto& elements = value.toTupleRef().elements();
  return elements.size() == 2 && elements[0].isString();
}

/// A tuple of pairs (name, value). An empty one has no names.
bool is_named(const c10::IValue& packed) {
  if (!packed.isTuple()) return false;
  const auto& elements = packed.toTupleRef().elements();
  return elements.size() > 0 && std::all_of(elements.begin(), elements.end(), is_named_value);
}

std::vector<c10::IValue> packed_items(const c10::IValue& packed) {
  if (packed.isList()) return packed.toListRef().vec();
  return packed.isTuple() ? packed.toTupleRef().elements().vec() : std::vector<c10::IValue>();
}

std::string item_names(const std::vector<NamedValue>& items) {
  std::string text;
  for (const auto& [name, value] : items) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

/// Shows each tensor in order with the path that leads to it.
template <typename Visit>
void walk(const c10::IValue& packed, const std::string& path, const Visit& visit) {
  if (packed.isTensor()) return visit(path, packed.toTensor());
  if (is_named(packed)) {
    for (const auto& [name, value] : unpack_names(packed, path))
      walk(value, path.empty() ? name : path + "." + name, visit);
    return;
  }
  const std::vector<c10::IValue> items = packed_items(packed);
  for (size_t i = 0; i < items.size(); ++i)
    walk(items[i], path.empty() ? "input_" + std::to_string(i) : path + "." + std::to_string(i), visit);
}

c10::IValue replaced(const c10::IValue& packed, const std::vector<at::Tensor>& tensors, size_t& next) {
  if (packed.isTensor()) return tensors[next++];
  if (packed.isTensorList()) {
    c10::List<at::Tensor> list;
    for (size_t i = 0; i < packed.toListRef().size(); ++i) list.push_back(tensors[next++]);
    return list;
  }
  if (!packed.isTuple() && !packed.isList()) return packed;
  std::vector<c10::IValue> items;
  for (const c10::IValue& item : packed_items(packed)) items.push_back(replaced(item, tensors, next));
  return c10::ivalue::Tuple::create(std::move(items));
}

}  // namespace

c10::IValue pack_names(const std::vector<NamedValue>& items) {
  std::vector<c10::IValue> pairs;
  for (const auto& [name, value] : items)
    pairs.emplace_back(c10::ivalue::Tuple::create(std::vector<c10::IValue>{name, value}));
  return c10::ivalue::Tuple::create(std::move(pairs));
}

std::vector<NamedValue> unpack_names(const c10::IValue& packed, const std::string& where) {
  const bool empty = packed.isTuple() && packed.toTupleRef().elements().empty();
  if (!empty && !is_named(packed))
    fail("graph.tensors", "expected values with names as ", where, ", got ", packed.tagKind());
  std::vector<NamedValue> result;
  for (const c10::IValue& pair : packed.toTupleRef().elements()) {
    const auto& elements = pair.toTupleRef().elements();
    result.emplace_back(elements[0].toStringRef(), elements[1]);
  }
  return result;
}

std::vector<c10::IValue> unpack_items(const c10::IValue& packed, const std::string& where, int64_t count) {
  if (!packed.isTuple() && !packed.isList())
    fail("graph.tensors", "expected a list or a tuple as ", where, ", got ", packed.tagKind());
  std::vector<c10::IValue> items = packed_items(packed);
  if (count >= 0 && static_cast<int64_t>(items.size()) != count)
    fail("graph.tensors", "expected ", count, " items in ", where, ", got ", items.size());
  return items;
}

at::Tensor unpack_tensor(const c10::IValue& packed, const std::string& where) {
  if (packed.isNone()) return {};  // what a graph gives for an undefined tensor
  if (!packed.isTensor()) fail("graph.tensors", "expected a tensor as ", where, ", got ", packed.tagKind());
  return packed.toTensor();
}

std::vector<at::Tensor> packed_tensors(const c10::IValue& packed) {
  std::vector<at::Tensor> result;
  walk(packed, "", [&](const std::string&, const at::Tensor& tensor) { result.push_back(tensor); });
  return result;
}

c10::IValue replace_tensors(const c10::IValue& packed, const std::vector<at::Tensor>& tensors) {
  const size_t count = packed_tensors(packed).size();
  if (tensors.size() != count) fail("graph.tensors", "expected ", count, " tensors, got ", tensors.size());
  size_t next = 0;
  return replaced(packed, tensors, next);
}

std::vector<std::string> input_names(const c10::IValue& packed) {
  std::vector<std::string> names;
  walk(packed, "", [&](const std::string& path, const at::Tensor&) { names.push_back(path); });
  if (names.size() == 1 && (names[0].empty() || names[0] == "input_0")) names[0] = "input";
  return names;
}

bool has_names(const c10::IValue& packed) {
  if (is_named(packed)) return true;
  const std::vector<c10::IValue> items = packed_items(packed);
  return std::any_of(items.begin(), items.end(), has_names);
}

TensorVisitor::TensorVisitor(const c10::IValue& packed, std::string where)
    : unpacks_(true), where_(std::move(where)), items_(unpack_names(packed, where_)), taken_(items_.size()) {}

std::vector<std::string> TensorVisitor::split(const char* names, size_t count) {
  std::vector<std::string> result;
  std::istringstream text(names);
  for (std::string name; std::getline(text, name, ',');) {
    std::erase_if(name, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
    result.push_back(name);
  }
  if (result.size() != count)
    fail("graph.tensors", "expected ", count, " names of fields, got '", names, "'");
  return result;
}

const c10::IValue& TensorVisitor::take(const std::string& name) {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].first != name) continue;
    taken_[i] = true;
    return items_[i].second;
  }
  fail("graph.tensors", "expected '", name, "' in ", where_, ", got ", item_names(items_));
}

void TensorVisitor::finish() const {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!taken_[i])
      fail("graph.tensors", "expected a field for each value of ", where_, ", got none for '",
           items_[i].first, "'");
  }
}

c10::IValue TensorsOf<c10::Dict<std::string, at::Tensor>>::pack(
    const c10::Dict<std::string, at::Tensor>& value) {
  std::map<std::string, c10::IValue> sorted;
  for (const auto& entry : value) sorted.emplace(entry.key(), entry.value());
  return pack_names({sorted.begin(), sorted.end()});
}

c10::Dict<std::string, at::Tensor> TensorsOf<c10::Dict<std::string, at::Tensor>>::unpack(
    const c10::IValue& packed, const std::string& where) {
  c10::Dict<std::string, at::Tensor> result;
  for (const auto& [name, item] : unpack_names(packed, where))
    result.insert(name, unpack_tensor(item, where + "." + name));
  return result;
}

}  // namespace ulp::graph
