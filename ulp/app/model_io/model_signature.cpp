#include "ulp/app/model_io/model_signature.h"

#include <algorithm>
#include <string>

#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

namespace {

constexpr const char* kNetworkFormWhere = "app.network_form";

bool is_batch(const graph::SizeExpr& size) {
  return size == graph::SizeExpr{1, 1, 0};
}

/// "[N, 3, 32, ?]": N is the batch, ? another free dimension.
std::string sizes_text(const graph::Value& value) {
  std::string text;
  for (const graph::SizeExpr& size : value.meta.value_or(graph::TensorMeta()).sizes)
    text += (text.empty() ? "" : ", ") + (is_batch(size)    ? "N"
                                          : size.constant() ? std::to_string(size.offset)
                                                            : "?");
  return "[" + text + "]";
}

/// Whether it is computed from as the tool's data are; half floats and float64 are not.
void expect_type(const graph::Value& input, const std::filesystem::path& path) {
  if (!input.meta || input.meta->dtype == at::kFloat || !at::isFloatingType(input.meta->dtype)) return;
  fail_file(kNetworkFormWhere, "expected a network over float32, got '", path.string(), "', whose input '",
            input.name, "' is ", c10::toString(input.meta->dtype),
            ": model.float() makes it float32 before it is exported");
}

std::string names_of(const std::vector<const graph::Value*>& values) {
  std::string names;
  for (const graph::Value* value : values)
    names += (names.empty() ? "'" : ", '") + value->name + "' " + sizes_text(*value);
  return names;
}

std::vector<const graph::Value*> inputs_of(const graph::GraphModule& network) {
  const std::vector<graph::Value*> inputs = network.graph().inputs();
  return {inputs.begin(), inputs.end()};
}

void add_values(const graph::Argument& argument, std::vector<const graph::Value*>& values) {
  if (argument.is_value()) values.push_back(argument.value);
  for (const graph::Argument& item : argument.items) add_values(item, values);
}

}  // namespace

size_t rank_of(const graph::Value& value) {
  return value.meta ? value.meta->sizes.size() : 0;
}

std::vector<const graph::Value*> results_of(const graph::Graph& graph) {
  std::vector<const graph::Value*> results;
  add_values(graph.output_node()->args.at(0), results);
  return results;
}

std::optional<int64_t> classes_of(const graph::Graph& graph) {
  constexpr size_t kImage = 4;
  const std::vector<const graph::Value*> results = results_of(graph);
  if (results.empty() || rank_of(*results[0]) < 2) return std::nullopt;
  const std::vector<graph::SizeExpr>& sizes = results[0]->meta->sizes;
  const graph::SizeExpr& classes = sizes.size() == kImage ? sizes[1] : sizes.back();
  return classes.constant() ? std::optional(classes.offset) : std::nullopt;
}

void expect_engine_inputs(const graph::GraphModule& network, const std::filesystem::path& path) {
  for (const graph::Value* input : inputs_of(network)) {
    expect_type(*input, path);
    if (!input->meta || std::ranges::any_of(input->meta->sizes, is_batch)) continue;
    fail_file(kNetworkFormWhere, "expected a network of any batch, got '", path.string(), "', whose input '",
              input->name, "' is always ", sizes_text(*input),
              ": export it again with a free dimension 0, by dynamic_shapes of torch.export.export() and "
              "torch.onnx.export() or dynamic_axes of the older one");
  }
}

void expect_one_input(const graph::GraphModule& network, const std::filesystem::path& path) {
  const std::vector<const graph::Value*> inputs = inputs_of(network);
  if (inputs.size() != 1)
    fail_file(kNetworkFormWhere, "expected a network with one input for the samples of data, got '",
              path.string(), "', which has ", inputs.size(), ": ", names_of(inputs));
  expect_type(*inputs[0], path);
}

void expect_sample_input(const graph::GraphModule& network, const std::filesystem::path& path) {
  expect_one_input(network, path);
  constexpr size_t kRows = 2, kImages = 4;
  const graph::Value& input = *inputs_of(network)[0];
  if (!input.meta || rank_of(input) == kRows || rank_of(input) == kImages) return;
  fail_file(kNetworkFormWhere,
            "expected a network over images [N, C, H, W], rows [N, values] or tokens [N, length], got '",
            path.string(), "', whose input '", input.name, "' is ", sizes_text(input));
}

void expect_logits(const graph::GraphModule& network, const std::filesystem::path& path) {
  const auto refuse = [&](const auto&... what) {
    fail_file(kNetworkFormWhere,
              "expected one result with the logits of two classes or more to compare with labels, got ",
              what..., " from '", path.string(), "'");
  };
  const std::vector<const graph::Value*> results = results_of(network.graph());
  if (results.size() != 1) refuse(results.size(), " results, ", names_of(results), ",");
  const graph::Value& result = *results[0];
  if (!result.meta) return;
  const bool tokens = !at::isFloatingType(inputs_of(network).at(0)->meta.value_or(graph::TensorMeta()).dtype);
  const size_t rank = rank_of(result);
  if (rank != 2 && !(tokens && rank == 3)) refuse("a result of ", sizes_text(result));
  if (classes_of(network.graph()) == 1) refuse("one number for each sample, ", sizes_text(result) + ",");
}

}  // namespace ulp::app
