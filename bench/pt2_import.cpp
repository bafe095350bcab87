// Reads the .pt2 archives of a folder that bench/peers/pt2_export.py wrote, and compares results, gradients and buffers with those
// that PyTorch computed, bit by bit, on one thread:
//   pt2_import FOLDER
// "engine": whether a graph in eval mode lowers, and the engine's largest difference as a share of the largest result.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/exchange/import_pt2.h"
#include "ulp/io/npy.h"
#include "ulp/lower/evaluate.h"
#include "ulp/ulp.h"

namespace {

namespace fs = std::filesystem;
using Arrays = std::map<std::string, torch::Tensor>;
using Module = std::shared_ptr<ulp::graph::GraphModule>;
constexpr uint64_t kSeed = 3;

std::vector<torch::Tensor> inputs_of(const Arrays& arrays) {
  std::vector<torch::Tensor> inputs;
  for (size_t i = 0; arrays.contains("x" + std::to_string(i)); ++i)
    inputs.push_back(arrays.at("x" + std::to_string(i)));
  return inputs;
}

/// How many of the recorded tensors differ from ours in a bit, or are missing.
struct Differences {
  size_t results = 0, gradients = 0, buffers = 0, compared = 0;
  size_t sum() const { return results + gradients + buffers; }
};

void compare(size_t& different, size_t& compared, const torch::Tensor& ours, const torch::Tensor& theirs) {
  ++compared;
  different += !ours.defined() || !torch::equal(ours, theirs);
}

Differences run(const fs::path& path, const Arrays& arrays) {
  const Module module = ulp::exchange::import_pt2(path);
  torch::manual_seed(kSeed);
  const torch::Tensor result = module->forward(inputs_of(arrays));
  result.square().mean().backward();
  Differences found;
  compare(found.results, found.compared, result, arrays.at("y"));
  const auto parameters = module->named_parameters(), buffers = module->named_buffers();
  for (const auto& [name, theirs] : arrays) {
    const std::string own = name.substr(name.find('.') + 1);
    if (name.starts_with("g.")) {
      const torch::Tensor* parameter = parameters.find(own);
      compare(found.gradients, found.compared, parameter == nullptr ? torch::Tensor() : parameter->grad(),
              theirs);
    }
    if (!name.starts_with("b.")) continue;
    const torch::Tensor* buffer = buffers.find(own);
    // The count of batches, which only training reads.
    if (buffer == nullptr && !module->is_training() && own.ends_with("num_batches_tracked")) continue;
    compare(found.buffers, found.compared, buffer == nullptr ? torch::Tensor() : *buffer, theirs);
  }
  return found;
}

void compare_engine(const fs::path& path, const Arrays& arrays) {
  try {
    const Module module = ulp::exchange::import_pt2(path);
    ulp::runtime::Engine engine(ulp::lower(*module));
    const std::vector<torch::Tensor> inputs = inputs_of(arrays);
    std::vector<std::vector<int64_t>> shapes;
    for (const torch::Tensor& one : inputs) shapes.push_back(one.sizes().vec());
    engine.set_sizes(engine.sizes_for(shapes));
    const torch::Tensor ours = ulp::run_engine_all(engine, inputs).at(0), theirs = arrays.at("y");
    std::printf(", engine %.1e",
                (ours - theirs).abs().max().item<double>() / theirs.abs().max().item<double>());
  } catch (const ulp::Error& error) {
    std::printf(", no engine: %.160s", error.what());
  }
}

bool check(const fs::path& path) {
  std::printf("%s:", path.stem().c_str());
  size_t different = 0, runs = 0;
  try {
    for (const int batch : {1, 7, 64}) {
      const fs::path recorded = fs::path(path).replace_extension(std::to_string(batch) + ".npz");
      if (!fs::exists(recorded)) continue;
      const Arrays arrays = ulp::io::load_npz(recorded);
      const Differences found = run(path, arrays);
      std::printf(" batch %d: %zu of %zu tensors differ", batch, found.sum(), found.compared);
      if (found.sum() > 0)
        std::printf(" (%zu results, %zu gradients, %zu buffers)", found.results, found.gradients,
                    found.buffers);
      if (batch == 7 && path.stem().extension() == ".eval") compare_engine(path, arrays);
      std::printf(batch == 64 ? "\n" : ";");
      different += found.sum();
      ++runs;
    }
  } catch (const std::exception& error) {
    std::printf(" %s\n", error.what());
    return false;
  }
  if (runs == 0) std::printf(" expected recorded runs beside it, got none\n");
  return runs > 0 && different == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: pt2_import FOLDER\n");
    return 2;
  }
  torch::set_num_threads(1);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".pt2") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  size_t same = 0;
  for (const fs::path& file : files) same += check(file);
  std::printf("%zu of %zu archives give the same bits\n", same, files.size());
  return !files.empty() && same == files.size() ? 0 : 1;
}
