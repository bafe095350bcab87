#include "ulp/base/parse_json.h"

#include <string>

namespace ulp {

namespace {

using Json = nlohmann::json;

/// The number is free in nlohmann's lists.
class TooLarge final : public Json::exception {
 public:
  explicit TooLarge(const std::string& what) : exception(590, what.c_str()) {}
};

/// Goes through a text without keeping anything of it, and throws TooLarge at a limit. The parser that makes values
/// cannot be asked on the way: its callback looks through all of a parent for each child that ends.
class Limits final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t&) override { return true; }
  /// The parser that makes values says what is wrong.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool value() {
    if (++values_ > kMaxJsonValues) throw TooLarge("more than " + std::to_string(kMaxJsonValues) + " values");
    return true;
  }
  bool open() {
    if (++depth_ > kMaxJsonDepth)
      throw TooLarge("nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    return value();
  }
  bool close() {
    --depth_;
    return true;
  }

  size_t values_ = 0;
  int depth_ = 0;
};

}  // namespace

Json parse_json(std::string_view text) {
  Limits limits;
  Json::sax_parse(text.begin(), text.end(), &limits);
  return Json::parse(text.begin(), text.end());
}

Json parse_json_or_discarded(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const Json::exception&) {
    return Json(Json::value_t::discarded);
  }
}

}  // namespace ulp
