#include "json_mutator.h"

#include <array>
#include <limits>

namespace ulp::fuzz {
namespace {

using Json = nlohmann::json;

/// The document's values, outer ones first. Valid until one of them is changed.
void collect(Json& value, std::vector<Json*>& found) {
  found.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& inner : value) collect(inner, found);
}

std::vector<Json*> values_of(Json& document) {
  std::vector<Json*> found;
  collect(document, found);
  return found;
}

/// Another value of the document that is of the kind that `is_kind` says; null where there is none.
Json another(Json& document, bool (*is_kind)(const Json&), Random& random) {
  std::vector<Json*> of_kind;
  for (Json* value : values_of(document)) {
    if (is_kind(*value)) of_kind.push_back(value);
  }
  return of_kind.empty() ? Json() : *of_kind[below(random, of_kind.size())];
}

const Json& extreme(Random& random) {
  static const std::vector<Json> all = {0,
                                        1,
                                        -1,
                                        2,
                                        7,
                                        255,
                                        256,
                                        65536,
                                        1 << 20,
                                        (1 << 20) + 1,
                                        std::numeric_limits<int32_t>::max(),
                                        int64_t{1} << 31,
                                        int64_t{1} << 32,
                                        std::numeric_limits<int32_t>::min(),
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<uint64_t>::max(),
                                        0.5,
                                        -0.5,
                                        1e-300,
                                        1e300,
                                        3.4e38,
                                        1e-45};
  return all[below(random, all.size())];
}

Json changed_number(Json& document, const Json& number, Random& random) {
  const auto step = static_cast<int64_t>(1 + below(random, 3));
  switch (below(random, 6)) {
    case 0:
      return extreme(random);
    case 1:
      return another(
          document, [](const Json& value) { return value.is_number(); }, random);
    default:
      break;
  }
  if (number.is_number_float()) return number.get<double>() * (below(random, 2) == 0 ? -1.0 : 2.0);
  // Unsigned, where the sum or product of any two numbers is defined.
  const auto whole = number.get<uint64_t>();
  const std::array<uint64_t, 4> near = {whole + static_cast<uint64_t>(step),
                                        whole - static_cast<uint64_t>(step), whole * 2, whole / 2};
  return static_cast<int64_t>(near[below(random, near.size())]);
}

Json changed_word(Json& document, const Vocabulary& vocabulary, Random& random) {
  if (!vocabulary.words.empty() && below(random, 2) == 0) {
    return vocabulary.words[below(random, vocabulary.words.size())];
  }
  return another(
      document, [](const Json& value) { return value.is_string(); }, random);
}

void change_list(Json& list, Random& random) {
  if (list.empty()) {
    list.push_back(extreme(random));
    return;
  }
  const size_t at = below(random, list.size()), other = below(random, list.size());
  switch (below(random, 4)) {
    case 0:
      list.erase(at);
      break;
    case 1:
      std::swap(list[at], list[other]);
      break;
    case 2:
      list[at] = Json(list[other]);
      break;
    default:
      list.push_back(Json(list[at]));
  }
}

void change_object(Json& document, Json& object, const Vocabulary& vocabulary, Random& random) {
  const size_t kind = below(random, 4);
  if (kind == 0 && !object.empty()) {
    object.erase(std::next(object.begin(), static_cast<std::ptrdiff_t>(below(random, object.size()))));
  } else if (kind == 1) {
    // What another object says of itself is said of this one, too.
    const Json from = another(
        document, [](const Json& v) { return v.is_object() && !v.empty(); }, random);
    if (from.is_null()) return;
    const auto taken = std::next(from.begin(), static_cast<std::ptrdiff_t>(below(random, from.size())));
    object[taken.key()] = taken.value();
  } else if (!vocabulary.fields.empty()) {
    const auto& [name, value] = vocabulary.fields[below(random, vocabulary.fields.size())];
    object[name] = value.is_number() && kind == 2 ? changed_number(document, value, random) : value;
  }
}

}  // namespace

void mutate_json(Json& document, const Vocabulary& vocabulary, Random& random) {
  const std::vector<Json*> all = values_of(document);
  Json& value = *all[below(random, all.size())];
  if (below(random, 40) == 0) {
    value = below(random, 2) == 0 ? extreme(random)
                                  : another(
                                        document, [](const Json&) { return true; }, random);
  } else if (value.is_number()) {
    value = changed_number(document, value, random);
  } else if (value.is_string()) {
    value = changed_word(document, vocabulary, random);
  } else if (value.is_array()) {
    change_list(value, random);
  } else if (value.is_object()) {
    change_object(document, value, vocabulary, random);
  } else {
    value = value.is_boolean() ? Json(!value.get<bool>()) : extreme(random);
  }
}

}  // namespace ulp::fuzz
