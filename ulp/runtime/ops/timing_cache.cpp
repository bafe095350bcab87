#include "ulp/runtime/ops/timing_cache.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"

namespace ulp::runtime {
namespace {

using Json = nlohmann::json;

constexpr const char* kWhere = "runtime.TimingCache";
constexpr const char* kType = "ulp sparse table";
constexpr int kVersion = 1;
constexpr uintmax_t kLargestFile = uintmax_t{8} << 20;  // saved ones hold fewer values than kMaxJsonValues

bool is_sound(const FormFinding& found) {
  if (found.items < 1) return false;
  return found.kernel.empty() ? found.faster == 0 : found.faster > 0 && found.faster <= kLargestRatio;
}

std::vector<FormFinding> findings_from(const Json& json) {
  std::vector<FormFinding> findings;
  for (const Json& entry : json) {
    FormFinding found{entry.at("items").get<int64_t>(), entry.at("kernel").get<std::string>(),
                      entry.at("faster").get<double>()};
    if (!is_sound(found)) throw std::out_of_range("a number");
    findings.push_back(std::move(found));
  }
  return findings;
}

}  // namespace

TimingCache::TimingCache(std::filesystem::path path, size_t most_bytes, double most_seconds)
    : path_(std::move(path)),
      most_bytes_(std::min(most_bytes, kMostMeasuringBytes)),
      most_seconds_(most_seconds) {
  if (path_.empty()) return;
  std::error_code none;
  if (path_.has_parent_path() && !std::filesystem::is_directory(path_.parent_path(), none))
    fail(kWhere, "expected a file in a folder that exists, got ", path_.string());
  if (!std::filesystem::exists(path_, none)) return;
  const std::string text = read_file(kWhere, path_, kLargestFile);
  try {
    const Json json = parse_json(text);
    if (json.at("type") != kType || json.at("version") != kVersion) {
      fail(kWhere, "expected '", kType, "' of version ", kVersion, " in ", path_.string());
    }
    for (const auto& [layer, entries] : json.at("layers").items()) layers_[layer] = findings_from(entries);
  } catch (const Json::exception& found) {
    fail(kWhere, "expected what an engine has saved in ", path_.string(), ": ", found.what());
  } catch (const std::out_of_range&) {
    fail(kWhere, "expected items of at least 1, and of each kernel a ratio above 0 and up to ", kLargestRatio,
         ", in ", path_.string());
  }
}

const std::vector<FormFinding>* TimingCache::find(const std::string& layer) const {
  const auto known = layers_.find(layer);
  return known == layers_.end() ? nullptr : &known->second;
}

void TimingCache::put(const std::string& layer, std::vector<FormFinding> findings) {
  layers_[layer] = std::move(findings);
  changed_ = true;
}

void TimingCache::save() noexcept {
  if (path_.empty() || !changed_) return;
  changed_ = false;  // one attempt for what came
  try {
    write();
  } catch (const std::exception&) {
    // A folder that is read-only, a full disk: the next engine measures again.
  }
}

void TimingCache::write() const {
  Json layers = Json::object();
  for (const auto& [layer, findings] : layers_) {
    Json& entries = layers[layer] = Json::array();
    for (const FormFinding& found : findings) {
      entries.push_back({{"items", found.items}, {"kernel", found.kernel}, {"faster", found.faster}});
    }
  }
  const std::string text =
      Json{{"type", kType}, {"version", kVersion}, {"layers", std::move(layers)}}.dump(1) + "\n";
  if (text.size() > kLargestFile) return;  // it could not be read again
  AtomicFile file(path_);
  file.write(text);
  file.commit();
}

}  // namespace ulp::runtime
