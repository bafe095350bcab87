// What does not work yet: for a network the stages (stages.h) that fail. The tests fail for a stage that
// is not here and fails, and for one that is here and works.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace ulp::test {

inline const std::string kEngines = "engine_fp32 engine_bf16 engine_int8";
inline const std::string kEveryStage =
    "captured trains bf16_training static_int8 dynamic weight_only " + kEngines + " pieces_fp32 pieces_int8";

inline const std::map<std::string, std::string> kMissing = {};

/// The stages of this network in kMissing.
inline std::vector<std::string> missing_stages(const std::string& network) {
  std::vector<std::string> stages;
  const auto found = kMissing.find(network);
  std::istringstream words(found == kMissing.end() ? "" : found->second);
  for (std::string word; words >> word;) stages.push_back(word);
  return stages;
}

}  // namespace ulp::test
