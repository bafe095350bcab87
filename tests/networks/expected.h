// What does not work: for a network the stages (stages.h) that fail, a part of what they say, and why. The
// tests fail for a stage that is not here and fails, for one that is here and works, and where it says
// something else. docs/networks.md has the same list (test_networks --page).
#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace ulp::test {

struct Missing {
  std::string stages;  ///< names, with blanks between them
  std::string says;    ///< a part of the message
  std::string why;     ///< for the page: what it is that stops them
};

inline const std::string kEngines = "engine_fp32 engine_bf16 engine_int8";

inline const std::string kNothingToCut = "channels, heads or neurons that may be cut, got none";
inline const std::string kTeacherDecodes = "[distill.mse] expected the teacher's shape";

inline const std::map<std::string, std::vector<Missing>> kMissing = {
    {"forecast", {{"cut", kNothingToCut, "its two layers make its result"}}},
    {"realnvp", {{"cut", kNothingToCut, "its weights are computed from directions and norms"}}},
    {"recommender", {{"onnx", "aten::embedding_bag.padding_idx", "ONNX has no bags of embeddings"}}},
    {"rnn_lm",
     {{"cut", kNothingToCut, "the caller keeps the states, and the decoder has the encoder's weight"}}},
    {"yolo",
     {{"distilled", kTeacherDecodes, "the teacher decodes boxes, the student does not: give a place"}}},
    {"yolov8",
     {{"distilled", kTeacherDecodes, "the teacher decodes boxes, the student does not: give a place"}}}};

inline std::vector<std::string> stages_of(const Missing& missing) {
  std::vector<std::string> stages;
  std::istringstream words(missing.stages);
  for (std::string word; words >> word;) stages.push_back(word);
  return stages;
}

/// The entry of a stage of a network; null where it is to work.
inline const Missing* missing_of(const std::string& network, const std::string& stage) {
  const auto found = kMissing.find(network);
  if (found == kMissing.end()) return nullptr;
  for (const Missing& missing : found->second)
    if (std::ranges::count(stages_of(missing), stage) > 0) return &missing;
  return nullptr;
}

}  // namespace ulp::test
