// An archive of torch.export that tests change and read.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "error_of.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/import_pt2.h"

namespace ulp::test {

/// A node that makes `result` by a call, with arguments as torch.export writes them.
inline nlohmann::json pt2_call(const std::string& target, const std::string& result,
                               const nlohmann::json& arguments) {
  nlohmann::json inputs = nlohmann::json::array();
  for (const auto& [name, value] : arguments.items())
    inputs.push_back({{"name", name}, {"arg", value}, {"kind", 1}});
  return {{"target", "torch.ops.aten." + target},
          {"name", result},
          {"inputs", inputs},
          {"outputs", {{{"as_tensor", {{"name", result}}}}}},
          {"metadata", nlohmann::json::object()}};
}

inline nlohmann::json pt2_tensor(const std::string& name) {
  return {{"as_tensor", {{"name", name}}}};
}

inline nlohmann::json pt2_number(int64_t value) {
  return {{"as_int", value}};
}

inline nlohmann::json pt2_numbers(const std::vector<int64_t>& values) {
  return {{"as_ints", values}};
}

/// The archive images.pt2, whose entries are changed before it is read.
class ChangedPt2 : public testing::Test {
 protected:
  using Json = nlohmann::json;

  /// The error of an archive of these entries.
  std::string error_of_entries(const exchange::Pt2ImportOptions& options = {}) {
    write_pt2(folder_ / "m.pt2", entries_);
    const std::string error = error_of([&] { exchange::import_pt2(folder_ / "m.pt2", options); });
    EXPECT_SAYS(error, "m.pt2");
    return error;
  }
  /// Changes a JSON entry.
  void change(const std::string& entry, const std::function<void(Json&)>& edit) {
    Json json = Json::parse(entries_.at(entry));
    edit(json);
    entries_[entry] = json.dump();
  }
  void change_program(const std::function<void(Json&)>& edit) { change("models/model.json", edit); }
  void change_node(const std::string& name, const std::function<void(Json&)>& edit) {
    change_program([&](Json& program) {
      for (Json& node : program["graph_module"]["graph"]["nodes"]) {
        if (node["name"] == name) edit(node);
      }
    });
  }
  void change_tensor(const std::string& name, const std::function<void(Json&)>& edit) {
    change("data/weights/model_weights_config.json", [&](Json& json) { edit(json["config"][name]); });
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> entries_ = pt2_entries(golden_pt2("images.pt2"));
};

}  // namespace ulp::test
