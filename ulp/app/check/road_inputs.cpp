// What a model whose data nobody has given is run on.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/app/check/road_steps.h"
#include "ulp/base/error.h"

namespace ulp::app {

namespace {

/// Sizes of free dimensions: large enough to be usual, small enough to be quick.
constexpr int64_t kUsualSize = 32;
constexpr int64_t kMostIds = 256;

/// How ids and flags are made; the first form with which the model gives numbers is taken.
struct InputForm {
  bool ids;    ///< random ones, else 0
  bool flags;  ///< of bool inputs
};

/// Ids below this are in every table that the model reads.
int64_t rows_of_tables(const graph::Graph& graph) {
  int64_t rows = kMostIds;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::embedding")) continue;
    const at::Tensor table = graph.attribute_tensor(node->args.at(0).value);
    if (table.defined() && table.size(0) > 0) rows = std::min(rows, table.size(0));
  }
  return rows;
}

std::vector<int64_t> usual_sizes(const graph::Graph& graph, int64_t batch) {
  std::vector<int64_t> sizes{batch};
  for (const graph::DynamicDimension& free : graph.free) {
    const int64_t multiple = std::max<int64_t>(free.multiple, 1);
    const int64_t wanted = std::max(free.min, std::min(free.max, kUsualSize / multiple * multiple));
    sizes.push_back(std::min(free.max, (wanted + multiple - 1) / multiple * multiple));
  }
  return sizes;
}

std::vector<at::Tensor> made_inputs(const graph::Graph& graph, const std::vector<int64_t>& sizes,
                                    const InputForm& form) {
  auto random = at::detail::createCPUGenerator(/*seed_val=*/1);
  const int64_t rows = rows_of_tables(graph);
  std::vector<at::Tensor> inputs;
  for (const graph::Value* input : graph.inputs()) {
    if (!input->meta) fail("road_report", "expected input '", input->name, "' to have known sizes, got none");
    std::vector<int64_t> shape;
    for (const graph::SizeExpr& size : input->meta->sizes) shape.push_back(size.at(sizes));
    const at::ScalarType type = input->meta->dtype;
    if (type == at::kBool) {
      inputs.push_back(torch::full(shape, form.flags, at::kBool));
    } else if (at::isFloatingType(type)) {
      inputs.push_back(torch::randn(shape, random, at::kFloat).to(type));
    } else if (at::isIntegralType(type, false)) {
      inputs.push_back(torch::randint(form.ids ? rows : 1, shape, random, at::kLong).to(type));
    } else {
      fail("road_report", "expected inputs of numbers, got '", input->name, "' of ", c10::toString(type));
    }
  }
  return inputs;
}

bool gives_numbers(graph::GraphModule& model, const std::vector<at::Tensor>& inputs) {
  try {
    expect_finite(model.forward_all(inputs), "the model");
    return true;
  } catch (const std::exception&) {
    return false;  // whoever runs it says why
  }
}

}  // namespace

std::vector<at::Tensor> road_inputs(graph::GraphModule& model, int64_t batch) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> sizes = usual_sizes(model.graph(), model.graph().batch_range.nearest(batch));
  std::vector<at::Tensor> first;
  for (const InputForm& form : {InputForm{true, true}, {true, false}, {false, true}, {false, false}}) {
    std::vector<at::Tensor> inputs = made_inputs(model.graph(), sizes, form);
    if (gives_numbers(model, inputs)) return inputs;
    if (first.empty()) first = std::move(inputs);
  }
  return first;
}

}  // namespace ulp::app
