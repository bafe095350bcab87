#include "ulp/app/model_io/pretrained_settings.h"

#include <cmath>

#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"

namespace ulp::app {

namespace {

constexpr uintmax_t kMostConfigBytes = uintmax_t{4} << 20;

std::string shown(const PretrainedSettings::Json& value) {
  return value.dump(-1, ' ', false, PretrainedSettings::Json::error_handler_t::replace).substr(0, 60);
}

}  // namespace

PretrainedSettings::PretrainedSettings(const std::filesystem::path& path) : path_(path.string()) {
  try {
    json_ = parse_json(read_file(kWhere, path, kMostConfigBytes));
  } catch (const Json::exception& error) {
    fail_file(kWhere, "expected JSON in '", path_, "': ", error.what());
  }
  if (!json_.is_object()) refuse("expected an object");
}

PretrainedSettings PretrainedSettings::part(const char* key) const {
  if (!has(key)) return {path_, Json::object()};
  if (!json_.at(key).is_object()) refuse("expected an object as ", key, ", got ", shown(json_.at(key)));
  return {path_, json_.at(key)};
}

void PretrainedSettings::require(std::initializer_list<const char*> keys) const {
  for (const char* const key : keys)
    if (!has(key)) refuse("expected ", key);
}

void PretrainedSettings::size(const char* key, int64_t& value, int64_t most, int64_t least) const {
  if (!has(key)) return;
  const Json& found = json_.at(key);
  if (!found.is_number_integer() || found < least || found > most)
    refuse("expected ", key, " in ", least, "..", most, ", got ", shown(found));
  value = found.get<int64_t>();
}

void PretrainedSettings::rate(const char* key, double& value) const {
  if (!has(key)) return;
  const Json& found = json_.at(key);
  if (!found.is_number() || !(found >= 0.0 && found < 1.0))
    refuse("expected ", key, " in [0, 1), got ", shown(found));
  value = found.get<double>();
}

void PretrainedSettings::number(const char* key, double& value) const {
  if (!has(key)) return;
  const Json& found = json_.at(key);
  if (!found.is_number() || !(found > 0.0) || !std::isfinite(found.get<double>()))
    refuse("expected ", key, " above 0, got ", shown(found));
  value = found.get<double>();
}

void PretrainedSettings::flag(const char* key, bool& value) const {
  if (!has(key)) return;
  const Json& found = json_.at(key);
  if (!found.is_boolean()) refuse("expected ", key, " true or false, got ", shown(found));
  value = found.get<bool>();
}

void PretrainedSettings::expect(const char* key, std::initializer_list<Json> values) const {
  if (!has(key)) return;
  std::string known;
  for (const Json& value : values) {
    if (json_.at(key) == value) return;
    known += (known.empty() ? "" : " or ") + value.dump();
  }
  refuse("expected ", key, " ", known, ", got ", shown(json_.at(key)));
}

}  // namespace ulp::app
