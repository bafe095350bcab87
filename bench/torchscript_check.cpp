// What of a TorchScript file over images works: capture, and engines in fp32, bf16 and static int8.
//   torchscript_check [--size 96] FILE...
// Prints a row of a Markdown table for each file, and on stderr why something does not work. Inputs are normal
// numbers [N, 3, size, size]. Capture says "both" where the graph gives the model's bits in eval mode, and "eval"
// where the model could be captured with Modes::eval_only alone. fp32: the largest difference from the graph as a
// share of its largest number; bf16, int8: signal to noise against the fp32 graph, at its worst over the results.
#include <torch/csrc/jit/serialization/import.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/runtime/engine/engine.h"

namespace {

using Tensors = std::vector<at::Tensor>;
using Precision = ulp::LowerOptions::Precision;
using Module = std::shared_ptr<ulp::graph::GraphModule>;

/// The tensors of a result, None left out.
void flatten(const c10::IValue& value, Tensors& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) flatten(item, out);
  } else if (value.isTensorList()) {
    for (const at::Tensor& item : value.toTensorVector()) out.push_back(item);
  }
}

class Check {
 public:
  Check(const std::string& path, int64_t size)
      : name_(std::filesystem::path(path).stem().string()), size_(size), script_(torch::jit::load(path)) {
    script_.eval();
  }

  void run() {
    std::string row = "| " + name_ + " | " + attempt("capture", [&] { return captured(); });
    if (graph_ != nullptr) {
      row += " | " + attempt("fp32", [&] { return engine(*graph_, Precision::f32); });
      row += " | " + attempt("bf16", [&] { return engine(*graph_, Precision::bf16); });
      row += " | " + attempt("int8", [&] { return engine(*quantized(), Precision::f32); });
    } else {
      row += " | | | ";
    }
    std::printf("%s |\n", row.c_str());
    std::fflush(stdout);
  }

 private:
  std::string attempt(const char* stage, const std::function<std::string()>& work) const {
    std::string why;
    try {
      return work();
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    } catch (const std::exception& error) {
      why = error.what();
    }
    std::fprintf(stderr, "- %s, %s: %s\n", name_.c_str(), stage, why.substr(0, why.find('\n')).c_str());
    return "**no**";
  }

  at::Tensor images(int64_t batch, uint64_t seed) const {
    torch::manual_seed(seed);
    return torch::randn({batch, 3, size_, size_});
  }

  std::string captured() {
    const Tensors example = {images(2, 1)};
    std::string modes = "both";
    try {
      graph_ = ulp::capture(script_, example);
    } catch (const ulp::Error& error) {
      std::fprintf(stderr, "- %s, capture of both modes: %s\n", name_.c_str(), error.what());
      graph_ = ulp::capture(script_, example, {.modes = ulp::graph::Modes::eval_only});
      modes = "eval";
    }
    graph_->eval();
    const at::Tensor x = images(3, 2);
    Tensors expected;
    flatten(script_.forward({x}), expected);
    const Tensors got = graph_->forward_all({x});
    bool same = expected.size() == got.size();
    for (size_t i = 0; same && i < got.size(); ++i) same = got[i].equal(expected[i]);
    return same ? modes : modes + ", other bits";
  }

  Module quantized() const {
    const auto prepared = ulp::quant::prepare(graph_, ulp::quant::Recipe::x86_int8());
    for (uint64_t i = 0; i < 4; ++i) prepared->forward_all({images(4, 10 + i)});
    return ulp::quant::convert(prepared);
  }

  /// Against the fp32 graph.
  std::string engine(ulp::graph::GraphModule& module, Precision precision) const {
    ulp::runtime::Engine engine(ulp::lower(module, {.precision = precision}), {.threads = 2});
    double error = 0, db = INFINITY;
    for (const int64_t batch : {1, 3}) {
      const at::Tensor x = images(batch, 20);
      const Tensors expected = graph_->forward_all({x}), got = ulp::run_engine_all(engine, {x});
      for (size_t i = 0; i < expected.size(); ++i) {
        const double scale = expected[i].abs().max().item<double>();
        error = std::max(error, (got.at(i) - expected[i]).abs().max().item<double>() / scale);
        db = std::min(db, ulp::quant::quantization_error(expected[i], got[i]).sqnr_db);
      }
    }
    const bool exact = &module == graph_.get() && precision == Precision::f32;
    char text[32];
    std::snprintf(text, sizeof text, exact ? "%.1e" : "%.1f", exact ? error : db);
    return text;
  }

  std::string name_;
  int64_t size_;
  torch::jit::Module script_;
  Module graph_;
};

}  // namespace

int main(int argc, char** argv) {
  int first = 1;
  int64_t size = 96;
  if (argc > 2 && std::string(argv[1]) == "--size") {
    size = std::atol(argv[2]);
    first = 3;
  }
  if (argc <= first || size < 1) {
    std::fprintf(stderr, "usage: torchscript_check [--size 96] FILE...\n");
    return 2;
  }
  const torch::NoGradGuard no_grad;
  for (int i = first; i < argc; ++i) {
    try {
      Check(argv[i], size).run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      return 1;
    }
  }
  return 0;
}
