// The words that a bench program is given, as name=value.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "ulp/base/error.h"

namespace ulp::bench {

/// Those behind the first word.
class Given {
 public:
  /// `program`: in messages. Throws ulp::Error for a word without an equals sign.
  Given(const char* program, int argc, char** argv) : program_(program) {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const size_t equals = word.find('=');
      if (equals == std::string::npos) fail(program_, "expected name=value, got ", word);
      words_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  std::string text(const std::string& name, const std::string& otherwise) {
    const auto found = words_.find(name);
    used_.insert(name);
    return found == words_.end() ? otherwise : found->second;
  }
  double number(const std::string& name, double otherwise) {
    const std::string word = text(name, "");
    return word.empty() ? otherwise : std::stod(word);
  }
  int64_t integer(const std::string& name, int64_t otherwise) {
    return static_cast<int64_t>(number(name, static_cast<double>(otherwise)));
  }
  /// Throws ulp::Error naming a word that nobody took.
  void expect_all_used() const {
    for (const auto& [name, value] : words_) {
      if (!used_.contains(name)) fail(program_, "expected words that are known, got ", name);
    }
  }

 private:
  const char* program_;
  std::map<std::string, std::string> words_;
  std::set<std::string> used_;
};

}  // namespace ulp::bench
