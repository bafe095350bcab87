#include "ulp/app/export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "ulp/app/export/reference_runtimes.h"
#include "ulp/app/model_io/scratch_folder.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/parse_json.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

namespace {

namespace fs = std::filesystem;
constexpr const char* kCheckExportWhere = "app.check_export";

/// Ids below this are in every table of the model.
int64_t smallest_table(const graph::Graph& graph) {
  int64_t rows = 256;
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::embedding")) continue;
    const at::Tensor table = graph.attribute_tensor(node->args.at(0).value);
    if (table.defined()) rows = std::min(rows, table.size(0));
  }
  return rows;
}

std::vector<at::Tensor> inputs_of(const graph::Graph& graph, const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> inputs;
  for (const graph::Value* input : graph.inputs()) {
    if (!input->meta) fail(kCheckExportWhere, "expected input '", input->name, "' to have known sizes");
    std::vector<int64_t> shape;
    for (const graph::SizeExpr& size : input->meta->sizes) shape.push_back(size.at(sizes));
    const at::ScalarType type = input->meta->dtype;
    inputs.push_back(at::isFloatingType(type) ? torch::randn(shape).to(type)
                                              : torch::randint(smallest_table(graph), shape).to(type));
  }
  return inputs;
}

/// Writes a tensor as plain bytes; returns how to read them.
nlohmann::json write_tensor(const fs::path& path, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(dense.const_data_ptr()), static_cast<std::streamsize>(dense.nbytes()));
  if (!out.flush()) fail(kCheckExportWhere, "could not write '", path.string(), "'");
  std::string type = c10::toString(dense.scalar_type());
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  return {{"file", path.string()}, {"type", type}, {"shape", dense.sizes().vec()}};
}

/// One run of ours, in files.
nlohmann::json record_run(const ScratchFolder& folder, graph::GraphModule& model,
                          const std::vector<int64_t>& sizes, size_t index) {
  const std::vector<at::Tensor> inputs = inputs_of(model.graph(), sizes);
  const std::vector<at::Tensor> results = model.forward_all(inputs);
  nlohmann::json run = {{"inputs", nlohmann::json::array()}, {"results", nlohmann::json::array()}};
  const auto add = [&](const char* kind, const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string name = std::to_string(index) + "." + kind + std::to_string(i);
      run[kind].push_back(write_tensor(folder / name, tensors[i]));
    }
  };
  add("inputs", inputs);
  add("results", results);
  return run;
}

/// Runs at batches of 1 and 7, or those that the model takes next to them, and, where sizes are free, at
/// their largest and one below.
nlohmann::json task_of_free_sizes(const ScratchFolder& folder, const fs::path& file,
                                  graph::GraphModule& model) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(0);
  nlohmann::json task = {{"model", file.string()}, {"runs", nlohmann::json::array()}};
  for (const int64_t batch : {1, 7}) {
    std::vector<int64_t> sizes = {model.graph().batch_range.nearest(batch)};
    for (const graph::DynamicDimension& free : model.graph().free)
      sizes.push_back(batch == 1 ? free.max : std::max(free.min, free.max - free.multiple));
    task["runs"].push_back(record_run(folder, model, sizes, task["runs"].size()));
  }
  return task;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// What a command prints; `code` is its exit code.
std::string output_of(const std::string& command, int& code) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) fail(kCheckExportWhere, "could not start ", command);
  std::string text;
  char buffer[4096];
  while (const size_t read = ::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, read);
  const int status = ::pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

/// A judge in Python.
struct Judge {
  const char* program;  ///< prints one line of JSON that starts with {"results"
  const char* name;
  const char* packages;  ///< what pip installs
};

/// What the judge says of a task.
nlohmann::json judged(const Judge& judge, const ScratchFolder& folder, const nlohmann::json& task) {
  check_interrupted();
  std::ofstream(folder / "task.json") << task.dump();
  std::ofstream(folder / "judge.py") << judge.program;
  const char* given = ::getenv("ULP_PYTHON");
  const std::string python = given != nullptr ? given : "python3";
  int code = 0;
  const std::string said = output_of(quoted(python) + " " + quoted((folder / "judge.py").string()) + " " +
                                         quoted((folder / "task.json").string()) + " 2>&1",
                                     code);
  check_interrupted();
  constexpr int kNotFound = 127, kNoModule = 4;
  if (code == kNotFound || code == kNoModule)
    fail(kCheckExportWhere, "expected ", judge.name, " in Python, which '", python,
         "' has not; `pip install ", judge.packages, "` installs it, and ULP_PYTHON names another python");
  const size_t start = said.rfind("{\"results\"");
  if (code != 0 || start == std::string::npos) fail(kCheckExportWhere, judge.name, " failed: ", said);
  return parse_json(said.substr(start));
}

/// What each runtime made of the task's runs.
ExportChecks compared(const nlohmann::json& said, const nlohmann::json& task) {
  ExportChecks checks{.done = {}, .missing = said.at("missing").get<std::vector<std::string>>()};
  for (const nlohmann::json& one : said.at("results")) {
    checks.done.push_back({.runtime = one.at("runtime"),
                           .runs = static_cast<int>(task["runs"].size()),
                           .largest = one.at("largest").is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                                  : one.at("largest").get<double>()});
  }
  return checks;
}

}  // namespace

ExportTolerance export_tolerance(const graph::GraphModule& model, bool fp16) {
  const bool codes = std::ranges::any_of(model.graph().nodes(), [](const auto& node) {
    return node->is("ulp::quantize") || node->target().starts_with("ulp::linear_dynamic");
  });
  if (codes)
    return {
        .share = 5e-2,
        .of =
            "a model whose activations are codes (without VNNI other runtimes saturate, but for weights of 7 "
            "bits)"};
  if (fp16) return {.share = 5e-3, .of = "a model in fp16"};
  return {.share = 1e-5, .of = "a model in fp32"};
}

ExportChecks check_onnx(const fs::path& file, graph::GraphModule& model) {
  const ScratchFolder folder("ulp_export");
  const nlohmann::json task = task_of_free_sizes(folder, file, model);
  const nlohmann::json said =
      judged({kOnnxJudge, "ONNX Runtime or OpenVINO", "onnxruntime numpy"}, folder, task);
  return compared(said, task);
}

ExportChecks check_pt2(const fs::path& file, graph::GraphModule& model) {
  const ScratchFolder folder("ulp_export");
  nlohmann::json task = task_of_free_sizes(folder, file, model);
  task["threads"] = at::get_num_threads();
  return compared(judged({kPt2Judge, "PyTorch 2.13", "torch==2.13.0"}, folder, task), task);
}

ExportChecks check_tflite(const fs::path& file, graph::GraphModule& model, int64_t batch) {
  const torch::NoGradGuard no_grad;
  const ScratchFolder folder("ulp_export");
  torch::manual_seed(0);
  nlohmann::json task = {{"model", file.string()}, {"runs", nlohmann::json::array()}};
  const std::array<int64_t, 2> of_the_file = {batch, batch}, free = {1, 7};
  for (const int64_t one : batch == 0 ? free : of_the_file) {
    std::vector<int64_t> sizes = {one};
    for (const graph::DynamicDimension& dimension : model.graph().free) sizes.push_back(dimension.max);
    task["runs"].push_back(record_run(folder, model, sizes, task["runs"].size()));
  }
  return compared(judged({kTfliteJudge, "LiteRT", "ai-edge-litert"}, folder, task), task);
}

ExportChecks check_coreml(const fs::path& package) {
  const ScratchFolder folder("ulp_export");
  const nlohmann::json said =
      judged({kCoreMlJudge, "coremltools", "coremltools"}, folder, {{"model", package.string()}});
  const nlohmann::json& one = said.at("results").at(0);
  return {.done = {{.runtime = one.at("runtime"), .operations = one.at("operations")}}, .missing = {}};
}

}  // namespace ulp::app
