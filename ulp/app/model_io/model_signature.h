// Whether a network from a file is of the form that a command of the tool needs; errors name the file and say
// what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {
namespace graph {
class Graph;
class GraphModule;
struct Value;
}  // namespace graph

namespace app {

/// How many dimensions a value has; 0 where that is not known.
ULP_API size_t rank_of(const graph::Value& value);

/// The tensors of the graph's result, in order.
ULP_API std::vector<const graph::Value*> results_of(const graph::Graph& graph);

/// How many classes the first result has logits of: its channels where it is an image, else its last
/// dimension. Nothing where that is free, or the result has a number for each sample.
ULP_API std::optional<int64_t> classes_of(const graph::Graph& graph);

/// Throws FileError unless an engine can have the inputs: 32-bit floats or whole numbers, of any batch.
ULP_API void expect_engine_inputs(const graph::GraphModule& network, const std::filesystem::path& path);

/// Throws FileError unless there is one input, of 32-bit floats or whole numbers.
ULP_API void expect_one_input(const graph::GraphModule& network, const std::filesystem::path& path);

/// Throws FileError unless samples of a data set can be the input: expect_one_input(), of images [N, C, H,
/// W], rows [N, values] or tokens [N, length].
ULP_API void expect_sample_input(const graph::GraphModule& network, const std::filesystem::path& path);

/// Throws FileError unless the result can be compared with labels: one tensor with the logits of two classes
/// or more for each sample, or of the next token at each place.
ULP_API void expect_logits(const graph::GraphModule& network, const std::filesystem::path& path);

}  // namespace app
}  // namespace ulp
