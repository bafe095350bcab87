#include "ulp/app/run/run.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/app/data/data.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/npy.h"
#include "ulp/io/safetensors.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::app {

namespace {

constexpr const char* kRunWhere = "app.run";

void check_shape(const RunOptions& options, const runtime::TensorInfo& info, const at::Tensor& tensor) {
  const std::vector<int64_t> expected = sizes_at(info, batch_in(info, tensor.sizes()));
  if (tensor.sizes() != at::IntArrayRef(expected)) {
    fail_file(kRunWhere, "expected '", info.name, "' of shape ", at::IntArrayRef(expected), ", got ",
              tensor.sizes(), " in '", options.input, "'");
  }
}

/// LibTorch stores 8-bit floats and complex numbers, but does not compute with them as the engine would need.
void check_type(const RunOptions& options, const runtime::TensorInfo& info, const at::Tensor& tensor) {
  const bool small_float = tensor.is_floating_point() && tensor.element_size() == 1;
  if (!small_float && !tensor.is_complex()) return;
  fail_file(kRunWhere, "expected '", info.name, "' of a type that ", runtime::to_string(info.type),
            " is made from, got ", c10::toString(tensor.scalar_type()), " in '", options.input, "'");
}

void check_finite(const runtime::TensorInfo& info, const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return;
  // Engines take float32, in which a larger float64 is infinite.
  const at::Tensor finite =
      torch::isfinite(tensor.scalar_type() == at::kDouble ? tensor.to(at::kFloat) : tensor);
  if (finite.all().item<bool>()) return;
  const auto bad = finite.logical_not().sum().item<int64_t>();
  fail_file(kRunWhere, "expected finite numbers in '", info.name, "', got ", bad,
            " NaN or inf (allow_nonfinite runs them)");
}

/// What a file holds: an engine, or a model that runs in pieces.
struct Opened {
  std::shared_ptr<runtime::Engine> engine;
  std::shared_ptr<graph::GraphModule> model;  ///< null where there is an engine
  std::vector<runtime::TensorInfo> inputs;    ///< with the largest sizes of free dimensions

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, const RunOptions& options) const {
    if (engine) return run_engine_all(*engine, given);
    return lower_partitioned(model, given, {}, {.max_measuring_seconds = options.max_measuring_seconds})
        .run(given);
  }
  std::string output_name(size_t index) const {
    return engine ? engine->outputs()[index].name : "result_" + std::to_string(index);
  }
};

/// What the graph takes with its free dimensions as in `shapes`, one for each input, or at their largest
/// without any.
std::vector<runtime::TensorInfo> inputs_of(const graph::Graph& graph,
                                           const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<runtime::TensorInfo> infos;
  for (const graph::Value* input : graph.inputs()) {
    runtime::TensorInfo& info = infos.emplace_back(runtime::TensorInfo{.name = input->name, .shape = {}});
    for (const graph::SizeExpr& size : input->meta.value_or(graph::TensorMeta()).sizes)
      info.shape.push_back(size.constant() ? size.offset : runtime::kBatch);
  }
  for (const graph::DynamicDimension& free : graph.free) {
    const auto [first, dimension] = free.places[0];
    int64_t size = free.max / free.multiple * free.multiple;
    if (!shapes.empty()) {
      if (dimension >= static_cast<int64_t>(shapes[first].size()))
        fail(kRunWhere, "expected '", infos[first].name, "' with ", infos[first].shape.size(),
             " dimensions, got ", shapes[first].size());
      size = shapes[first][static_cast<size_t>(dimension)];
      free.check(size, kRunWhere);
    }
    for (const auto& [input, dim] : free.places) infos[input].shape[static_cast<size_t>(dim)] = size;
  }
  return infos;
}

Opened open_engine(const runtime::Plan& plan, const RunOptions& options) {
  Opened opened;
  opened.engine = std::make_shared<runtime::Engine>(
      plan, runtime::EngineOptions{.threads = options.threads,
                                   .error_budget = options.error_budget,
                                   .max_measuring_seconds = options.max_measuring_seconds});
  opened.inputs = opened.engine->inputs();
  return opened;
}

Opened open(const RunOptions& options) {
  if (options.pieces && options.error_budget > 0)
    fail(kRunWhere, "expected one engine beside an error budget, got a model in pieces");
  if (is_engine_file(options.model)) {
    if (options.pieces)
      fail(kRunWhere, "expected a model to run in pieces, got the engine file '", options.model, "'");
    if (options.script_spec.asked)
      fail(kRunWhere, "expected no --shape beside the engine file '", options.model,
           "', which says itself what it takes");
    expect_named_sizes(options.script_spec, options.model);
    return open_engine(runtime::Plan::load(options.model), options);
  }
  const LoadedModel model = load_model_file(options.model, options.script_spec);
  if (!options.pieces) {
    expect_engine_inputs(*model.graph, options.model);
    return open_engine(lower(*model.graph), options);
  }
  Opened opened;
  opened.model = model.graph;
  opened.inputs = inputs_of(std::as_const(*model.graph).graph(), {});
  return opened;
}

/// What is expected of inputs of these shapes, whose sizes the free dimensions have.
std::vector<runtime::TensorInfo> expected_inputs(const RunOptions& options, const Opened& opened,
                                                 const std::vector<std::vector<int64_t>>& shapes) {
  try {
    if (!opened.engine) return inputs_of(std::as_const(*opened.model).graph(), shapes);
    opened.engine->set_sizes(opened.engine->sizes_for(shapes));
    return opened.engine->inputs();
  } catch (const Error& error) {
    fail_file(kRunWhere, "in '", options.input, "': ", error.what());
  }
}

/// The tensors of a safetensors, .npz or .npy file. The one of .npy has no name.
io::NamedTensors tensors_of(const std::filesystem::path& path) {
  if (path.extension() == ".npy") return {{"", io::load_npy(path)}};
  if (path.extension() != ".npz") return io::load_tensors(path).tensors;
  const std::map<std::string, at::Tensor> arrays = io::load_npz(path);
  return {arrays.begin(), arrays.end()};
}

std::vector<at::Tensor> inputs_from_file(const RunOptions& options, const Opened& opened) {
  const io::NamedTensors named = tensors_of(options.input);
  std::vector<at::Tensor> inputs;
  std::vector<std::vector<int64_t>> shapes;
  for (const runtime::TensorInfo& info : opened.inputs) {
    auto found = std::ranges::find(named, info.name, &io::NamedTensors::value_type::first);
    if (found == named.end() && opened.inputs.size() == 1 && named.size() == 1) found = named.begin();
    if (found == named.end()) {
      fail_file(kRunWhere, "expected a tensor '", info.name, "' in '", options.input,
                "', which has none of that name");
    }
    const at::Tensor& tensor = found->second;
    check_type(options, info, tensor);
    if (!options.allow_nonfinite) check_finite(info, tensor);
    inputs.push_back(tensor);
    shapes.push_back(tensor.sizes().vec());
  }
  const std::vector<runtime::TensorInfo> expected = expected_inputs(options, opened, shapes);
  for (size_t i = 0; i < inputs.size(); ++i) check_shape(options, expected[i], inputs[i]);
  return inputs;
}

std::vector<at::Tensor> inputs_for(const RunOptions& options, const Opened& opened) {
  if (!options.input.empty()) return inputs_from_file(options, opened);
  if (!options.data.empty()) {
    const InferenceModel model = load_inference_model(options.model, options.script_spec);
    if (model.graph) expect_sample_input(*model.graph, options.model);
    const ModelSpec& spec = model.spec;
    const SplitData data = load_split(options.data, io::Split::test, spec);
    if (options.count > data.samples())
      fail("app.run", "expected 1 to ", data.samples(), ' ', data.unit, "s, got ", options.count);
    return {data.first_inputs(options.count).contiguous()};
  }
  if (opened.engine) opened.engine->reserve(options.count);  // refuses too much before the numbers are made
  torch::manual_seed(0);
  std::vector<at::Tensor> inputs;
  for (const runtime::TensorInfo& info : opened.inputs) inputs.push_back(random_input(info, options.count));
  return inputs;
}

}  // namespace

std::vector<RunOutput> run_file(const RunOptions& options) {
  const Opened opened = open(options);
  const std::vector<at::Tensor> values = opened.run(inputs_for(options, opened), options);
  std::vector<RunOutput> outputs;
  for (size_t i = 0; i < values.size(); ++i) outputs.push_back({opened.output_name(i), values[i]});
  return outputs;
}

std::vector<TopClass> top_classes(const at::Tensor& logits) {
  std::vector<TopClass> top;
  if (logits.dim() != 2) return top;
  const auto [values, classes] = logits.max(1);
  for (int64_t i = 0; i < logits.size(0); ++i)
    top.push_back({classes[i].item<int64_t>(), values[i].item<double>()});
  return top;
}

void save_outputs(const std::filesystem::path& path, const std::vector<RunOutput>& outputs) {
  io::NamedTensors named;
  for (const RunOutput& output : outputs) named.emplace_back(output.name, output.value);
  io::save_tensors(path, named);
}

}  // namespace ulp::app
