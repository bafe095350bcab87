#include "ulp/app/run.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/app/data.h"
#include "ulp/app/runnable.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"
#include "ulp/lower/evaluate.h"

namespace ulp::app {

namespace {

constexpr const char* kWhere = "app.run";

void check_shape(const RunOptions& options, const runtime::TensorInfo& info, const at::Tensor& tensor) {
  std::vector<int64_t> expected = info.shape;
  if (!expected.empty() && expected[0] == runtime::kBatch && tensor.dim() > 0) expected[0] = tensor.size(0);
  if (tensor.sizes() != at::IntArrayRef(expected)) {
    fail_file(kWhere, "expected '", info.name, "' of shape ", at::IntArrayRef(expected), ", got ",
              tensor.sizes(), " in '", options.input, "'");
  }
}

/// LibTorch stores 8-bit floats and complex numbers, but does not compute with them as the engine would need.
void check_type(const RunOptions& options, const runtime::TensorInfo& info, const at::Tensor& tensor) {
  const bool small_float = tensor.is_floating_point() && tensor.element_size() == 1;
  if (!small_float && !tensor.is_complex()) return;
  fail_file(kWhere, "expected '", info.name, "' of a type that ", runtime::to_string(info.type),
            " is made from, got ", c10::toString(tensor.scalar_type()), " in '", options.input, "'");
}

void check_finite(const runtime::TensorInfo& info, const at::Tensor& tensor) {
  if (!tensor.is_floating_point() || torch::isfinite(tensor).all().item<bool>()) return;
  const auto bad = torch::isfinite(tensor).logical_not().sum().item<int64_t>();
  fail_file(kWhere, "expected finite numbers in '", info.name, "', got ", bad,
            " NaN or inf (allow_nonfinite runs them)");
}

std::vector<at::Tensor> inputs_from_file(const RunOptions& options, const runtime::Engine& engine) {
  const io::TensorFile file = io::load_tensors(options.input);
  std::vector<at::Tensor> inputs;
  for (const runtime::TensorInfo& info : engine.inputs()) {
    const at::Tensor* tensor = file.find(info.name);
    if (tensor == nullptr && engine.inputs().size() == 1 && file.tensors.size() == 1)
      tensor = &file.tensors[0].second;
    if (tensor == nullptr) {
      fail_file(kWhere, "expected a tensor '", info.name, "' in '", options.input,
                "', which has none of that name");
    }
    check_type(options, info, *tensor);
    if (!options.allow_nonfinite) check_finite(info, *tensor);
    check_shape(options, info, *tensor);
    inputs.push_back(*tensor);
  }
  return inputs;
}

std::vector<at::Tensor> inputs_for(const RunOptions& options, runtime::Engine& engine) {
  if (!options.input.empty()) return inputs_from_file(options, engine);
  if (!options.data.empty()) {
    const ModelSpec spec = load_runnable(options.engine).spec;
    return {first_images(load_images(options.data, io::Split::test, spec), options.count)};
  }
  engine.reserve(options.count);  // refuses what is too much before the numbers are made
  torch::manual_seed(0);
  std::vector<at::Tensor> inputs;
  for (const runtime::TensorInfo& info : engine.inputs()) inputs.push_back(random_input(info, options.count));
  return inputs;
}

}  // namespace

std::vector<RunOutput> run_engine_file(const RunOptions& options) {
  runtime::Engine engine(options.engine, {.threads = options.threads});
  const std::vector<at::Tensor> values = run_engine_all(engine, inputs_for(options, engine));
  std::vector<RunOutput> outputs;
  for (size_t i = 0; i < values.size(); ++i) outputs.push_back({engine.outputs()[i].name, values[i]});
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
