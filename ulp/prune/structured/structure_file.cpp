#include "ulp/prune/structured/structure_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/prune/structured/removed.h"

namespace ulp::prune {

using nlohmann::json;

namespace {

constexpr int kVersion = 1;
constexpr const char *kKeptType = "ulp.prune.Kept", *kRemovalsType = "ulp.prune.Removals";
using Indices = std::vector<int64_t>;

std::string text_of(const Indices& numbers) {
  return json(numbers).dump();
}

/// The object of a file of this type.
json read_object(const std::string& text, const char* type, const char* field, const char* where) {
  const json read = parse_json_or_discarded(text);
  if (read.is_discarded() || !read.is_object())
    fail_file(where, "expected an object in JSON, got other text");
  const auto found = read.find("type"), version = read.find("version");
  if (found == read.end() || *found != type)
    fail_file(where, "expected the type ", type, ", got ",
              found == read.end() ? "none" : found->dump().substr(0, 60));
  if (version == read.end() || !version->is_number_integer() || version->get<int64_t>() < 1)
    fail_file(where, "expected a version, got none");
  if (version->get<int64_t>() > kVersion)
    fail_file(where, "expected version ", kVersion, " at most, got ", version->get<int64_t>(),
              ": the file is from a newer ulp");
  for (const auto& [name, value] : read.items()) {
    if (name != "type" && name != "version" && name != field)
      fail_file(where, "expected no other fields than type, version and ", field, ", got '", name, "'");
  }
  if (!read.contains(field)) fail_file(where, "expected the field ", field, ", got none");
  return read[field];
}

/// Whole numbers from 0.
Indices read_numbers(const json& list, const std::string& what, const char* where) {
  const auto natural = [](const json& one) {
    return one.is_number_integer() && (one.is_number_unsigned() || one.get<int64_t>() >= 0) &&
           (!one.is_number_unsigned() || one.get<uint64_t>() <= uint64_t{INT64_MAX});
  };
  if (!list.is_array() || !std::ranges::all_of(list, natural))
    fail_file(where, "expected a list of whole numbers from 0 as ", what, ", got something else");
  return list.get<Indices>();
}

void check_rising(const Indices& indices, int64_t size, const std::string& what, const char* where) {
  const bool rising = std::ranges::adjacent_find(indices, std::greater_equal<>()) == indices.end();
  if (indices.empty() || !rising || indices.back() >= size)
    fail_file(where, "expected rising indices below ", size, " as ", what, ", got ",
              text_of(indices).substr(0, 60));
}

Indices all_below(int64_t size) {
  Indices all(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) all[static_cast<size_t>(i)] = i;
  return all;
}

/// What was kept of the dimensions of one tensor.
std::vector<Indices> read_tensor(const json& entry, const std::string& name, const at::Tensor& tensor) {
  const char* where = "prune.kept_from_json";
  const std::string quoted = "'" + name + "'";
  if (!entry.is_object() || !entry.contains("sizes") || entry.size() != (entry.contains("kept") ? 2u : 1u))
    fail_file(where, "expected sizes and kept of ", quoted, ", got something else");
  const Indices sizes = read_numbers(entry["sizes"], "the sizes of " + quoted, where);
  if (sizes != tensor.sizes().vec())
    fail_file(where, "expected the structure of this model, got one with ", quoted, " of sizes ",
              text_of(sizes), ", which are ", text_of(tensor.sizes().vec()), " here");
  std::vector<Indices> kept;
  for (const int64_t size : sizes) kept.push_back(all_below(size));
  if (!entry.contains("kept")) return kept;
  if (!entry["kept"].is_object()) fail_file(where, "expected an object as kept of ", quoted);
  for (const auto& [dim, indices] : entry["kept"].items()) {
    const std::string what = "dimension " + dim + " of " + quoted;
    const auto found = std::ranges::find_if(
        kept, [&](const Indices& one) { return std::to_string(&one - kept.data()) == dim; });
    if (found == kept.end()) fail_file(where, "expected dimensions of ", quoted, ", got '", dim, "'");
    *found = read_numbers(indices, what, where);
    check_rising(*found, sizes[static_cast<size_t>(found - kept.begin())], what, where);
  }
  return kept;
}

}  // namespace

std::string kept_to_json(const Kept& kept, const graph::Graph& graph) {
  json tensors = json::object();
  for (const auto& [name, dims] : kept) {
    const graph::Attribute* attribute = graph.find_attribute(name);
    if (!attribute || attribute->tensor.dim() != static_cast<int64_t>(dims.size()))
      fail("prune.kept_to_json", "expected what was kept of this graph, got '", name, "', which it has not");
    json& entry = tensors[name] = {{"sizes", attribute->tensor.sizes().vec()}};
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t size = attribute->tensor.size(static_cast<int64_t>(d));
      if (!dims[d].empty() && dims[d].back() >= size)
        fail("prune.kept_to_json", "expected what was kept of this graph, got index ", dims[d].back(),
             " of dimension ", d, " of '", name, "', which has ", size);
      if (static_cast<int64_t>(dims[d].size()) != size) entry["kept"][std::to_string(d)] = dims[d];
    }
  }
  return json{{"type", kKeptType}, {"version", kVersion}, {"tensors", tensors}}.dump();
}

Kept kept_from_json(const std::string& text, const graph::Graph& graph) {
  const char* where = "prune.kept_from_json";
  const json tensors = read_object(text, kKeptType, "tensors", where);
  if (!tensors.is_object()) fail_file(where, "expected an object as tensors, got something else");
  Kept kept;
  for (const auto& [name, entry] : tensors.items()) {
    const graph::Attribute* attribute = graph.find_attribute(name);
    if (!attribute)
      fail_file(where, "expected the structure of this model, got one with '", name, "', which it has not");
    kept[name] = read_tensor(entry, name, attribute->tensor);
  }
  for (const auto& [name, attribute] : graph.attributes()) {
    if (!kept.contains(name))
      fail_file(where, "expected the structure of this model, got one without '", name, "'");
  }
  return kept;
}

std::string removals_to_json(const Removals& removals, const Groups& groups) {
  check_removals(groups, removals);
  json list = json::array();
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    list.push_back({{"name", groups.groups[g].name()},
                    {"units", groups.groups[g].units},
                    {"removed", removals.units[g]}});
  }
  return json{{"type", kRemovalsType}, {"version", kVersion}, {"groups", list}}.dump();
}

Removals removals_from_json(const std::string& text, const Groups& groups) {
  const char* where = "prune.removals_from_json";
  const json list = read_object(text, kRemovalsType, "groups", where);
  if (!list.is_array()) fail_file(where, "expected a list as groups, got something else");
  Removals removals;
  for (const json& entry : list) {
    const bool whole = entry.is_object() && entry.size() == 3 && entry.contains("name") &&
                       entry["name"].is_string() && entry.contains("units") &&
                       entry["units"].is_number_integer() && entry.contains("removed");
    if (!whole) fail_file(where, "expected name, units and removed of each group, got something else");
    const std::string name = entry["name"];
    const size_t g = removals.units.size();
    if (g >= groups.groups.size() || groups.groups[g].name() != name)
      fail_file(where, "expected removals of this model, got the group '", name, "', where it has ",
                g < groups.groups.size() ? "'" + groups.groups[g].name() + "'" : "no more");
    if (entry["units"] != groups.groups[g].units)
      fail_file(where, "expected removals of this model, got ", entry["units"].dump(), " units of '", name,
                "', which has ", groups.groups[g].units);
    removals.units.push_back(read_numbers(entry["removed"], "what is removed of '" + name + "'", where));
  }
  if (removals.units.size() < groups.groups.size())
    fail_file(where, "expected removals of this model, got none of '",
              groups.groups[removals.units.size()].name(), "'");
  try {
    check_removals(groups, removals);
  } catch (const Error& error) {
    fail_file(where, "in the file: ", error.what());
  }
  return removals;
}

Removals removals_of(const Groups& groups, const Kept& kept) {
  const char* where = "prune.removals_of";
  Removals result;
  const auto keeps = [&](const Member& member, int64_t index) {
    const auto found = kept.find(member.tensor);
    if (found == kept.end() || member.dim >= static_cast<int64_t>(found->second.size()))
      fail(where, "expected what was kept of '", member.tensor, "', got nothing of it");
    return std::ranges::binary_search(found->second[static_cast<size_t>(member.dim)], index);
  };
  for (const Group& group : groups.groups) {
    std::vector<int64_t>& units = result.units.emplace_back();
    for (int64_t u = 0; u < group.units; ++u) {
      const Member& first = group.members.at(0);
      const bool stays = keeps(first, first.indices[static_cast<size_t>(u)].at(0));
      if (!stays) units.push_back(u);
      for (const Member& member : group.members) {
        for (const int64_t index : member.indices[static_cast<size_t>(u)]) {
          if (keeps(member, index) != stays)
            fail(where, "expected whole units to go, got a part of unit ", u, " of '", group.name(),
                 "': index ", index, " of dimension ", member.dim, " of '", member.tensor, "' ",
                 stays ? "went" : "stayed");
        }
      }
    }
  }
  return result;
}

CutResult cut_to(const graph::GraphModule& module, const Kept& kept) {
  // Groups through layer norms contain those that stop at them.
  const Groups found = groups(module.graph(), {.inexact = true});
  CutResult result = cut(module, found, removals_of(found, kept));
  for (const auto& [name, dims] : result.kept) {
    const auto wanted = kept.find(name);
    if (wanted == kept.end() || wanted->second != dims)
      fail("prune.cut_to", "expected what was kept of '", name,
           "' to be what a cut leaves, got something else");
  }
  return result;
}

Kept compose(const Kept& first, const Kept& second) {
  Kept result;
  for (const auto& [name, dims] : first) {
    const auto next = second.find(name);
    if (next == second.end() || next->second.size() != dims.size())
      fail("prune.compose", "expected what was kept of '", name, "' by both cuts, got it by one");
    std::vector<Indices>& made = result[name];
    for (size_t d = 0; d < dims.size(); ++d) {
      Indices& indices = made.emplace_back();
      for (const int64_t index : next->second[d]) {
        if (index < 0 || index >= static_cast<int64_t>(dims[d].size()))
          fail("prune.compose", "expected indices below ", dims[d].size(), " of dimension ", d, " of '", name,
               "', got ", index);
        indices.push_back(dims[d][static_cast<size_t>(index)]);
      }
    }
  }
  for (const auto& [name, dims] : second) {
    if (!first.contains(name))
      fail("prune.compose", "expected what was kept of '", name, "' by both cuts, got it by one");
  }
  return result;
}

}  // namespace ulp::prune
