// Fields of the JSON in a checkpoint, read strictly: nlohmann::json turns 1.5 into 1 and -1 into 2^64 - 1 in
// silence. Not installed.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ulp/base/fields_json.h"

namespace ulp::io {

/// The function or class that errors name.
inline constexpr const char* kLoadCheckpointWhere = "io.load_checkpoint";

/// A count of steps or epochs: whole numbers that doubles hold.
inline FieldInfo count_of(const char* name, double first) {
  return {.name = name, .min = first, .max = 0x1p53};
}

/// Reads every field that `list` names: it is called with a function field(info, reference). Names in `also`
/// are let pass. Throws FieldProblem for a field that is absent, unknown, of another kind or beyond its limits.
template <typename List>
void read_stored(const nlohmann::json& stored, const std::string& path, List&& list,
                 std::initializer_list<const char*> also = {}) {
  const auto visit_all = [&](FieldVisitor& visit) {
    list([&](const FieldInfo& info, auto& value) {
      if (!stored.contains(info.name))
        throw FieldProblem{"expected a field '" + path + info.name + "', got none"};
      visit(info, value);
    });
  };
  fields_from_json(stored, path, visit_all, std::vector<const char*>(also), /*limits=*/true);
}

}  // namespace ulp::io
