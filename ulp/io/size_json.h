// Whole numbers, dtypes and sizes of a graph as JSON. Internal to the room.
#pragma once

#include <nlohmann/json.hpp>

#include "ulp/graph/graph.h"

namespace ulp::io {

/// What the errors about graphs in files begin with.
inline constexpr const char* kGraphFile = "io.graph_file";

/// The whole number that the JSON is. Throws ulp::Error for anything else, and for one that takes more than 63 bits.
int64_t whole_number(const nlohmann::json& json);
std::vector<int64_t> whole_numbers(const nlohmann::json& json);

std::string type_name(at::ScalarType type);
/// Throws ulp::Error for a name that no dtype has.
at::ScalarType type_of(const std::string& name);

nlohmann::json size_to_json(const graph::SizeExpr& size);
/// A size of a graph with so many free dimensions. Throws ulp::Error for denominators below 1, powers below 0 or far
/// above those that capture finds, and powers of dimensions that the graph does not have.
graph::SizeExpr size_of(const nlohmann::json& json, size_t free_dimensions);

nlohmann::json meta_to_json(const graph::TensorMeta& meta);
graph::TensorMeta meta_of(const nlohmann::json& json, size_t free_dimensions);

nlohmann::json free_to_json(const graph::DynamicDimension& free);
/// Throws ulp::Error for a range without a size. Whether the inputs have the places is for the caller to find out.
graph::DynamicDimension free_of(const nlohmann::json& json);

nlohmann::json batch_range_to_json(const BatchRange& range);
/// Throws ulp::Error for a range without a size.
BatchRange batch_range_of(const nlohmann::json& json);

}  // namespace ulp::io
