#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/quant/scheme/granularity.h"

namespace ulp::quant {
namespace {

using nlohmann::json;

json to_json(const Granularity& value) {
  if (const auto* channel = std::get_if<PerChannel>(&value)) return json{{"per_channel", channel->axis}};
  if (const auto* group = std::get_if<PerGroup>(&value)) return json{{"per_group", group->size}};
  if (const auto* block = std::get_if<PerBlock>(&value)) {
    return json{{"per_block", json::array({block->rows, block->columns})}};
  }
  return std::holds_alternative<PerToken>(value) ? "per_token" : "per_tensor";
}

// False for other JSON.
bool from_json(const json& in, Granularity& value) {
  if (in == "per_tensor") value = PerTensor{};
  if (in == "per_token") value = PerToken{};
  if (in == "per_tensor" || in == "per_token") return true;
  if (!in.is_object() || in.size() != 1) return false;
  const std::string kind = in.begin().key();
  const json& size = in.front();
  const auto whole = [](const json& number) { return number.is_number_integer(); };
  if (kind == "per_block") {
    if (!size.is_array() || size.size() != 2 || !std::all_of(size.begin(), size.end(), whole)) return false;
    value = PerBlock{size[0].get<int64_t>(), size[1].get<int64_t>()};
    return true;
  }
  if (!whole(size)) return false;
  if (kind == "per_channel") value = PerChannel{size.get<int64_t>()};
  if (kind == "per_group") value = PerGroup{size.get<int64_t>()};
  return kind == "per_channel" || kind == "per_group";
}

}  // namespace

void visit_granularity(FieldVisitor& visit, const FieldInfo& info, Granularity& granularity) {
  const auto write = [&] { return to_json(granularity).dump(); };
  const auto read = [&](const std::string& text) { return from_json(json::parse(text), granularity); };
  visit(info, CustomField{write, read,
                          R"("per_tensor", {"per_channel": axis}, {"per_group": size}, "per_token" or )"
                          R"({"per_block": [rows, columns]})"});
}

}  // namespace ulp::quant
