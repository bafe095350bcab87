// Reads the ONNX files of a folder that bench/peers/onnx_export.py wrote, compares each graph with what is
// recorded beside its file, and trains it for one step:
//   onnx_import FOLDER
// For a float file the largest difference as a share of the largest result; where the result is
// dequantized, in steps of its scale. Training is one step of plain SGD on the mean of the squared results,
// in train mode; QuantizeLinear and DequantizeLinear become fake quantization for it. "engine": whether the
// graph lowers, and the engine's difference.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/exchange/import_onnx.h"
#include "ulp/io/npy.h"
#include "ulp/lower/evaluate.h"
#include "ulp/ulp.h"

namespace {

namespace fs = std::filesystem;
using Module = std::shared_ptr<ulp::graph::GraphModule>;
using Tensors = std::vector<torch::Tensor>;

Tensors recorded(const fs::path& model, int run, char what) {
  Tensors all;
  for (int i = 0;; ++i) {
    const fs::path file =
        fs::path(model).replace_extension(std::to_string(run) + "." + what + std::to_string(i) + ".npy");
    if (!fs::exists(file)) return all;
    all.push_back(ulp::io::load_npy(file));
  }
}

/// The scale of the last quantizer, if the result is made of its codes.
double step_of(const ulp::graph::Graph& graph) {
  const ulp::graph::Node* end = graph.output_node()->args.at(0).value->producer;
  return end->is("ulp::dequantize") ? graph.attribute_tensor(end->arg("scale").value).item<double>() : 0;
}

struct Difference {
  double relative = 0, steps = 0, share = 0;
};

void widen(Difference& found, const torch::Tensor& ours, const torch::Tensor& theirs, double step) {
  const torch::Tensor apart = (ours.to(torch::kDouble) - theirs.to(torch::kDouble)).abs();
  found.relative = std::max(found.relative, apart.max().item<double>() / theirs.abs().max().item<double>());
  if (step == 0) return;
  const torch::Tensor steps = (apart / step).round();
  found.steps = std::max(found.steps, steps.max().item<double>());
  found.share = std::max(found.share, (steps > 0).to(torch::kDouble).mean().item<double>());
}

void print(const char* what, const Difference& found, double step) {
  std::printf(", %s %.1e", what, found.relative);
  if (step > 0) std::printf(" (%.0f steps, %.1f %% of elements)", found.steps, 100 * found.share);
}

void compare_engine(Module& module, const fs::path& path, double step) {
  try {
    ulp::runtime::Engine engine(ulp::lower(*module));
    Difference found;
    for (const int run : {0, 1}) {
      const Tensors x = recorded(path, run, 'x');
      std::vector<std::vector<int64_t>> shapes;
      for (const torch::Tensor& one : x) shapes.push_back(one.sizes().vec());
      engine.set_sizes(engine.sizes_for(shapes));
      widen(found, ulp::run_engine_all(engine, x).at(0), recorded(path, run, 'y').at(0), step);
    }
    print("engine", found, step);
  } catch (const ulp::Error& error) {
    std::printf(", no engine: %.160s", error.what());
  }
}

/// Share of the parameters that a gradient reached, and the loss before and after a step.
void train(const fs::path& path) {
  const Module module =
      ulp::exchange::import_onnx(path, {.longest = 32, .qdq = ulp::exchange::QdqForm::fake});
  module->train();
  const Tensors x = recorded(path, 1, 'x');
  torch::manual_seed(0);
  const auto loss = [&] { return module->forward(x).square().mean(); };
  const torch::Tensor before = loss();
  before.backward();
  size_t reached = 0, all = 0;
  const torch::NoGradGuard no_grad;
  double square = 0;
  for (const torch::Tensor& parameter : module->parameters()) {
    ++all;
    const torch::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || !gradient.isfinite().all().item<bool>()) continue;
    ++reached;
    square += gradient.square().sum().item<double>();
  }
  const double rate = 0.1 * before.item<double>() / std::max(square, 1e-12);
  for (torch::Tensor& parameter : module->parameters()) {
    if (parameter.grad().defined()) parameter -= rate * parameter.grad();
  }
  torch::manual_seed(0);
  std::printf(", trained: %zu of %zu parameters, loss %.5f -> %.5f\n", reached, all, before.item<double>(),
              loss().item<double>());
}

bool check(const fs::path& path) {
  std::printf("%s", path.stem().c_str());
  try {
    Module module = ulp::exchange::import_onnx(path, {.longest = 32});
    const double step = step_of(std::as_const(*module).graph());
    Difference found;
    {
      const torch::NoGradGuard no_grad;
      for (const int run : {0, 1})
        widen(found, module->forward(recorded(path, run, 'x')), recorded(path, run, 'y').at(0), step);
    }
    print("graph", found, step);
    compare_engine(module, path, step);
    train(path);
    return true;
  } catch (const std::exception& error) {
    std::printf(": %s\n", error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: onnx_import FOLDER\n");
    return 2;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  bool fine = true;
  for (const fs::path& file : files) fine = check(file) && fine;
  return fine ? 0 : 1;
}
