// A safetensors file taken apart, so that tests and fuzzers can change what no writer would write.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace ulp::test {

/// The header as JSON and the bytes after it.
struct Container {
  nlohmann::json header;
  std::string data;

  /// Throws a std::exception for bytes that have no such header.
  explicit Container(const std::string& file) {
    uint64_t size = 0;
    if (file.size() < sizeof size) throw std::runtime_error("no header");
    std::memcpy(&size, file.data(), sizeof size);
    if (size > file.size() - sizeof size) throw std::runtime_error("the header ends early");
    header = nlohmann::json::parse(file.substr(sizeof size, size));
    data = file.substr(sizeof size + size);
  }
  std::string join() const {
    const std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data;
  }
  nlohmann::json plan() const {
    return nlohmann::json::parse(header["__metadata__"]["ulp.plan"].get<std::string>());
  }
  void set_plan(const nlohmann::json& plan) { header["__metadata__"]["ulp.plan"] = plan.dump(); }
};

}  // namespace ulp::test
