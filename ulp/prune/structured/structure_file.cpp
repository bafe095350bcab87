#include "ulp/prune/structured/structure_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/prune/structured/removed.h"

namespace ulp::prune {

using nlohmann::json;

namespace {

constexpr int kStructureVersion = 1;
constexpr const char *kStructureType = "ulp.prune.Structure", *kRemovalsType = "ulp.prune.Removals";
/// What a file may keep in all its cuts: a dimension that stays takes a few bytes of text, whatever its size.
constexpr int64_t kMaxIndices = int64_t{1} << 24;
constexpr const char *kWriter = "prune.structure_to_json", *kReader = "prune.structure_from_json";
using Indices = std::vector<int64_t>;
/// Of each tensor of a network.
using TensorIndices = std::map<std::string, Indices>;

std::string text_of(const Indices& numbers) {
  return json(numbers).dump();
}

/// The object of a file of this type, which has these fields.
json read_object(const std::string& text, const char* type, const std::vector<std::string>& fields,
                 const char* where) {
  json read = parse_json_or_discarded(text);
  if (read.is_discarded() || !read.is_object())
    fail_file(where, "expected an object in JSON, got other text");
  const auto found = read.find("type"), version = read.find("version");
  if (found == read.end() || *found != type)
    fail_file(where, "expected the type ", type, ", got ",
              found == read.end() ? "none" : found->dump().substr(0, 60));
  if (version == read.end() || !version->is_number_integer() || version->get<int64_t>() < 1)
    fail_file(where, "expected a version, got none");
  if (version->get<int64_t>() > kStructureVersion)
    fail_file(where, "expected version ", kStructureVersion, " at most, got ", version->get<int64_t>(),
              ": the file is from a newer ulp");
  for (const auto& [name, value] : read.items()) {
    if (name != "type" && name != "version" && std::ranges::find(fields, name) == fields.end())
      fail_file(where, "expected no fields that ", type, " has not, got '", name, "'");
  }
  for (const std::string& field : fields) {
    if (!read.contains(field)) fail_file(where, "expected the field ", field, ", got none");
  }
  return read;
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

bool rising_below(const Indices& indices, int64_t size) {
  return !indices.empty() && indices.front() >= 0 && indices.back() < size &&
         std::ranges::adjacent_find(indices, std::greater_equal<>()) == indices.end();
}

Indices all_below(int64_t size) {
  Indices all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TensorIndices sizes_of(const graph::Graph& graph) {
  TensorIndices sizes;
  for (const auto& [name, attribute] : graph.attributes()) sizes[name] = attribute.tensor.sizes().vec();
  return sizes;
}

/// Of what a cut leaves.
TensorIndices sizes_of(const Kept& kept) {
  TensorIndices sizes;
  for (const auto& [name, dims] : kept) {
    Indices& left = sizes[name];
    for (const Indices& dim : dims) left.push_back(static_cast<int64_t>(dim.size()));
  }
  return sizes;
}

json write_tensor(const std::string& name, const std::vector<Indices>& dims, const Indices& sizes) {
  json entry = {{"sizes", sizes}};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == all_below(sizes[d])) continue;
    if (!rising_below(dims[d], sizes[d]))
      fail(kWriter, "expected rising indices below ", sizes[d], " of dimension ", d, " of '", name, "', got ",
           text_of(dims[d]).substr(0, 60));
    entry["kept"][std::to_string(d)] = dims[d];
  }
  return entry;
}

json write_cut(const Kept& kept, const TensorIndices& before, size_t number) {
  json cut = json::object();
  for (const auto& [name, dims] : kept) {
    const auto sizes = before.find(name);
    if (sizes == before.end() || sizes->second.size() != dims.size())
      fail(kWriter, "expected the structure of this graph, got '", name, "' in cut ", number,
           ", which it has not");
    cut[name] = write_tensor(name, dims, sizes->second);
  }
  for (const auto& [name, sizes] : before) {
    if (!kept.contains(name))
      fail(kWriter, "expected the structure of this graph, got cut ", number, " without '", name, "'");
  }
  return cut;
}

/// Reads the cuts of a file one after the other.
class CutReader {
 public:
  explicit CutReader(TensorIndices sizes) : sizes_(std::move(sizes)) {}

  Kept read(const json& cut) {
    ++number_;
    if (!cut.is_object()) fail_file(kReader, "expected an object as cut ", number_, ", got something else");
    Kept kept;
    for (const auto& [name, entry] : cut.items()) {
      const auto sizes = sizes_.find(name);
      if (sizes == sizes_.end())
        fail_file(kReader, "expected the structure of this model, got one with '", name, "' in cut ", number_,
                  ", which it has not");
      kept[name] = read_tensor(entry, name, sizes->second);
    }
    for (const auto& [name, sizes] : sizes_) {
      if (!kept.contains(name))
        fail_file(kReader, "expected the structure of this model, got one without '", name, "' in cut ",
                  number_);
    }
    sizes_ = sizes_of(kept);
    return kept;
  }

 private:
  /// What was kept of the dimensions of one tensor.
  std::vector<Indices> read_tensor(const json& entry, const std::string& name, const Indices& wanted) {
    const std::string quoted = "'" + name + "'";
    if (!entry.is_object() || !entry.contains("sizes") || entry.size() != (entry.contains("kept") ? 2u : 1u))
      fail_file(kReader, "expected sizes and kept of ", quoted, ", got something else");
    const Indices sizes = read_numbers(entry["sizes"], "the sizes of " + quoted, kReader);
    if (sizes != wanted)
      fail_file(kReader, "expected the structure of this model, got one with ", quoted, " of sizes ",
                text_of(sizes).substr(0, 60), " in cut ", number_, ", which are ", text_of(wanted), " there");
    std::vector<Indices> kept;
    for (const int64_t size : sizes) {
      indices_ += size;
      if (indices_ > kMaxIndices)
        fail_file(kReader, "expected ", kMaxIndices, " indices in all cuts at most, got more by ", quoted,
                  " in cut ", number_);
      kept.push_back(all_below(size));
    }
    if (entry.contains("kept")) read_kept(entry["kept"], quoted, kept);
    return kept;
  }

  void read_kept(const json& dims, const std::string& quoted, std::vector<Indices>& kept) const {
    if (!dims.is_object()) fail_file(kReader, "expected an object as kept of ", quoted);
    for (const auto& [dim, indices] : dims.items()) {
      const auto found = std::ranges::find_if(
          kept, [&](const Indices& one) { return std::to_string(&one - kept.data()) == dim; });
      if (found == kept.end()) fail_file(kReader, "expected dimensions of ", quoted, ", got '", dim, "'");
      const std::string what = "dimension " + dim + " of " + quoted;
      const auto size = static_cast<int64_t>(found->size());
      *found = read_numbers(indices, what, kReader);
      if (!rising_below(*found, size))
        fail_file(kReader, "expected rising indices below ", size, " as ", what, ", got ",
                  text_of(*found).substr(0, 60));
    }
  }

  TensorIndices sizes_;  // of the network before the next cut
  size_t number_ = 0;
  int64_t indices_ = 0;
};

}  // namespace

std::string structure_to_json(const Structure& structure, const graph::Graph& graph) {
  TensorIndices sizes = sizes_of(graph);
  json cuts = json::array();
  for (const Kept& kept : structure.cuts) {
    cuts.push_back(write_cut(kept, sizes, cuts.size() + 1));
    sizes = sizes_of(kept);
  }
  return json{{"type", kStructureType},
              {"version", kStructureVersion},
              {"inexact", structure.inexact},
              {"cuts", cuts}}
      .dump();
}

Structure structure_from_json(const std::string& text, const graph::Graph& graph) {
  const json read = read_object(text, kStructureType, {"inexact", "cuts"}, kReader);
  if (!read["inexact"].is_boolean())
    fail_file(kReader, "expected true or false as inexact, got something else");
  if (!read["cuts"].is_array()) fail_file(kReader, "expected a list as cuts, got something else");
  Structure structure{.inexact = read["inexact"].get<bool>()};
  CutReader reader(sizes_of(graph));
  for (const json& cut : read["cuts"]) structure.cuts.push_back(reader.read(cut));
  return structure;
}

std::string removals_to_json(const Removals& removals, const Groups& groups) {
  check_removals(groups, removals);
  json list = json::array();
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    list.push_back({{"name", groups.groups[g].name()},
                    {"units", groups.groups[g].units},
                    {"removed", removals.units[g]}});
  }
  return json{{"type", kRemovalsType}, {"version", kStructureVersion}, {"groups", list}}.dump();
}

Removals removals_from_json(const std::string& text, const Groups& groups) {
  const char* where = "prune.removals_from_json";
  const json list = read_object(text, kRemovalsType, {"groups"}, where)["groups"];
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

}  // namespace ulp::prune
