// Small random changes of a JSON document that keep it a document of nearly the same kind.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace ulp::fuzz {

/// Its numbers are the same everywhere (the distributions of the standard library are not).
using Random = std::mt19937_64;

/// In [0, count); count > 0.
inline size_t below(Random& random, size_t count) {
  return static_cast<size_t>(random() % count);
}

/// What may be put into documents of one kind beside what they hold.
struct Vocabulary {
  std::vector<std::string> words;                              ///< for strings
  std::vector<std::pair<std::string, nlohmann::json>> fields;  ///< for objects: names with a value each
};

/// Changes one value: a number to a near, an extreme or another one of the document, a word to another, a list
/// or an object by an element more or less, and rarely anything to anything.
void mutate_json(nlohmann::json& document, const Vocabulary& vocabulary, Random& random);

}  // namespace ulp::fuzz
