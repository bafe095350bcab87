#include "ulp/app/data/named_data.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/npy.h"

namespace ulp::app {

namespace {

constexpr const char* kNamedInputs = "app.load_named_inputs";

std::string names_of_arrays(const std::map<std::string, at::Tensor>& arrays) {
  std::string names;
  for (const auto& [name, array] : arrays) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

/// The array in the input's type: floats for floats, whole numbers for whole ones.
at::Tensor in_type_of(const graph::Value& input, const at::Tensor& array, const std::string& source) {
  const at::ScalarType type = input.meta ? input.meta->dtype : at::kFloat;
  if (at::isFloatingType(type) != array.is_floating_point())
    fail_file(kNamedInputs, "expected '", input.name, "' of a type that ", c10::toString(type),
              " is made from in '", source, "', got ", c10::toString(array.scalar_type()));
  const at::Tensor made = array.to(type).contiguous();
  if (made.is_floating_point() && !made.isfinite().all().item<bool>())
    fail_file(kNamedInputs, "expected finite numbers of ", c10::toString(type), " in '", input.name, "' of '",
              source, "', got NaN or inf");
  if (!made.is_floating_point() && !made.to(array.scalar_type()).equal(array))
    fail_file(kNamedInputs, "expected numbers that ", c10::toString(type), " holds in '", input.name,
              "' of '", source, "', got larger ones");
  return made;
}

}  // namespace

std::vector<std::vector<at::Tensor>> NamedInputs::batches(int64_t most, int64_t batch) const {
  std::vector<std::vector<at::Tensor>> made;
  const int64_t all = std::min(most, samples);
  for (int64_t first = 0; first < all; first += batch) {
    std::vector<at::Tensor>& one = made.emplace_back();
    for (size_t i = 0; i < tensors.size(); ++i)
      one.push_back(batch_dims[i] < 0
                        ? tensors[i]
                        : tensors[i].narrow(batch_dims[i], first, std::min(batch, all - first)));
  }
  return made;
}

std::optional<NamedInputs> load_named_inputs(const std::string& name, const graph::GraphModule& model) {
  if (std::filesystem::path(name).extension() != ".npz") return std::nullopt;
  const std::map<std::string, at::Tensor> arrays = io::load_npz(name);
  const graph::Graph& graph = model.graph();
  const std::vector<graph::Value*> inputs = graph.inputs();
  const bool named =
      std::ranges::any_of(inputs, [&](const auto* input) { return arrays.contains(input->name); });
  // What classifiers are trained on has labels beside its samples, whatever the input's name is.
  const bool labelled = arrays.contains("y") || arrays.contains("x_train");
  if (inputs.size() == 1 && (!named || labelled)) return std::nullopt;
  NamedInputs data;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto found = arrays.find(inputs[i]->name);
    if (found == arrays.end())
      fail_file(kNamedInputs, "expected an array '", inputs[i]->name, "' for that input in '", name,
                "', got ", names_of_arrays(arrays));
    data.tensors.push_back(in_type_of(*inputs[i], found->second, name));
    data.batch_dims.push_back(graph.batch_dims.at(i));
    const int64_t dim = data.batch_dims.back();
    if (dim < 0) continue;
    const int64_t rows = dim < data.tensors.back().dim() ? data.tensors.back().size(dim) : 0;
    if (data.samples == 0) data.samples = rows;
    if (rows != data.samples || rows == 0)
      fail_file(kNamedInputs, "expected as many samples of '", inputs[i]->name,
                "' as of the first input, which has ", data.samples, ", in '", name, "', got ", rows);
  }
  if (data.samples == 0) data.samples = 1;
  try {
    model.check_inputs(data.batches(1, 1).at(0));
  } catch (const Error& error) {
    fail_file(kNamedInputs, "in '", name, "': ", error.what());
  }
  return data;
}

}  // namespace ulp::app
