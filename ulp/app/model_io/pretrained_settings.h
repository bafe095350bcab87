// The settings of a config.json, read by name. Internal to the room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "ulp/base/error.h"

namespace ulp::app {

/// The settings of a file, or those of an object in it; errors name the file. A setting that is null counts
/// as missing.
class PretrainedSettings {
 public:
  using Json = nlohmann::json;
  static constexpr const char* kWhere = "app.read_published_config";
  static constexpr int64_t kMostTokens = int64_t{1} << 24, kLargestSize = 65536, kMostLayers = 1024;

  /// Throws FileError for a file that is missing or damaged.
  explicit PretrainedSettings(const std::filesystem::path& path);

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  bool empty() const { return json_.empty(); }
  bool is_null(const char* key) const { return json_.contains(key) && json_.at(key).is_null(); }
  const Json& operator[](const char* key) const { return json_.at(key); }
  /// The settings of an object; none where it is missing.
  PretrainedSettings part(const char* key) const;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file(kWhere, parts..., " in '", path_, "'");
  }

  /// Refuses settings of which one is missing.
  void require(std::initializer_list<const char*> keys) const;
  /// These leave the value where the setting is missing.
  void size(const char* key, int64_t& value, int64_t most = kLargestSize, int64_t least = 1) const;
  void rate(const char* key, double& value) const;
  /// A number above 0.
  void number(const char* key, double& value) const;
  void flag(const char* key, bool& value) const;
  /// Refuses a setting that has another value than these; one that is missing has the first.
  void expect(const char* key, std::initializer_list<Json> values) const;

 private:
  PretrainedSettings(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}

  std::string path_;
  Json json_;
};

}  // namespace ulp::app
