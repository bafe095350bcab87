#include "ulp/io/size_json.h"

#include <limits>

#include "ulp/base/error.h"

namespace ulp::io {

namespace {

using graph::SizeExpr;
using graph::TensorMeta;
using Json = nlohmann::json;

/// Capture finds powers up to 2; a product of such sizes has 4.
constexpr int64_t kMostPower = 4;

Json terms_to_json(const Polynomial& polynomial) {
  Json terms = Json::array();
  for (const Polynomial::Term& term : polynomial.terms)
    terms.push_back({term.numerator, term.denominator, term.powers});
  return terms;
}

Polynomial::Term term_of(const Json& json, size_t free_dimensions) {
  Polynomial::Term term{whole_number(json.at(0)), whole_number(json.at(1)), {}};
  if (term.denominator <= 0) fail(kGraphFile, "expected denominators above 0, got ", term.denominator);
  if (const size_t count = json.at(2).size(), most = 1 + free_dimensions; count > most)
    fail(kGraphFile, "expected powers of at most ", most, " sizes, got ", count);
  for (const int64_t power : whole_numbers(json.at(2))) {
    if (power < 0 || power > kMostPower)
      fail(kGraphFile, "expected powers from 0 to ", kMostPower, ", got ", power);
    term.powers.push_back(static_cast<int32_t>(power));
  }
  return term;
}

}  // namespace

int64_t whole_number(const Json& json) {
  if (!json.is_number_integer()) fail(kGraphFile, "expected a whole number, got a ", json.type_name());
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    fail(kGraphFile, "expected a number of at most 63 bits, got ", json.get<uint64_t>());
  return json.get<int64_t>();
}

std::vector<int64_t> whole_numbers(const Json& json) {
  if (!json.is_array()) fail(kGraphFile, "expected a list of whole numbers, got a ", json.type_name());
  std::vector<int64_t> numbers;
  for (const Json& one : json) numbers.push_back(whole_number(one));
  return numbers;
}

std::string type_name(at::ScalarType type) {
  return c10::toString(type);
}

at::ScalarType type_of(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type) && type != at::ScalarType::Undefined) return type;
  }
  fail(kGraphFile, "expected the name of a dtype, got '", name, "'");
}

Json size_to_json(const SizeExpr& size) {
  if (size.constant()) return size.offset;
  Json json{{"numerator", size.numerator}, {"denominator", size.denominator}, {"offset", size.offset}};
  if (!size.rest.terms.empty()) json["rest"] = terms_to_json(size.rest);
  return json;
}

SizeExpr size_of(const Json& json, size_t free_dimensions) {
  if (json.is_number()) return {0, 1, whole_number(json)};
  SizeExpr size{whole_number(json.at("numerator")), whole_number(json.at("denominator")),
                whole_number(json.at("offset"))};
  if (size.denominator <= 0) fail(kGraphFile, "expected denominators above 0, got ", size.denominator);
  if (json.contains("rest")) {
    for (const Json& term : json.at("rest")) size.rest.terms.push_back(term_of(term, free_dimensions));
  }
  return size;
}

Json meta_to_json(const TensorMeta& meta) {
  Json sizes = Json::array();
  for (const SizeExpr& size : meta.sizes) sizes.push_back(size_to_json(size));
  Json json{{"dtype", type_name(meta.dtype)}, {"sizes", std::move(sizes)}};
  if (meta.channels_last) json["channels_last"] = true;
  return json;
}

TensorMeta meta_of(const Json& json, size_t free_dimensions) {
  TensorMeta meta{.dtype = type_of(json.at("dtype").get<std::string>()),
                  .sizes = {},
                  .channels_last = json.value("channels_last", false)};
  for (const Json& size : json.at("sizes")) meta.sizes.push_back(size_of(size, free_dimensions));
  return meta;
}

Json free_to_json(const graph::DynamicDimension& free) {
  Json places = Json::array();
  for (const auto& place : free.places) places.push_back({place.input, place.dim});
  return {{"name", free.name},
          {"min", free.min},
          {"max", free.max},
          {"multiple", free.multiple},
          {"places", places}};
}

graph::DynamicDimension free_of(const Json& json) {
  graph::DynamicDimension free;
  free.name = json.at("name").get<std::string>();
  free.min = whole_number(json.at("min"));
  free.max = whole_number(json.at("max"));
  free.multiple = whole_number(json.at("multiple"));
  if (free.min < 0 || free.max < free.min || free.multiple < 1)
    fail(kGraphFile, "expected a range of sizes for '", free.name, "'");
  for (const Json& place : json.at("places"))
    free.places.push_back({static_cast<size_t>(whole_number(place.at(0))), whole_number(place.at(1))});
  return free;
}

Json batch_range_to_json(const BatchRange& range) {
  Json json{{"min", range.min}};
  if (range.max != BatchRange::kAny) json["max"] = range.max;
  return json;
}

BatchRange batch_range_of(const Json& json) {
  BatchRange range{.min = whole_number(json.at("min"))};
  if (json.contains("max")) range.max = whole_number(json.at("max"));
  if (range.min < 0 || range.max < std::max<int64_t>(range.min, 1))
    fail(kGraphFile, "expected a range of batch sizes, got ", range.text());
  return range;
}

}  // namespace ulp::io
