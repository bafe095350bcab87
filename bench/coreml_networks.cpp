// Writes reference networks as Core ML packages, with random weights, and beside each what it computes here:
//   coreml_networks FOLDER FORM [NETWORK...]
// FORM is float, fp16 (y is what float gives) or weights8 (of texts y is what the same codes give here, of images what float
// gives). FOLDER/NAME.mlpackage, and for its batch of 1 FOLDER/NAME.1.x.npy and FOLDER/NAME.1.y.npy. bench/peers/coreml_check.py
// compares coremltools with them.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/network_cases.h"
#include "bench/random_networks.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/weights/weights.h"

namespace {

void write_case(const std::filesystem::path& folder, const std::string& name, const std::string& form) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const ulp::bench::Case made = ulp::bench::network_case(name);
  const auto texts = ulp::models::text_model_names();
  const bool text = std::ranges::find(texts, name) != texts.end(), codes = form == "weights8";
  const ulp::bench::Module module = codes && text ? ulp::quant::quantize_weights(made.module) : made.module;
  ulp::exchange::export_coreml(*module, folder / (name + ".mlpackage"),
                               {.fp16 = form == "fp16", .int8_weights = codes && !text});
  const torch::Tensor x = made.input(1);
  ulp::bench::write_npy(folder / (name + ".1.x.npy"), x);
  ulp::bench::write_npy(folder / (name + ".1.y.npy"), module->forward_all({x}).at(0));
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) return std::fputs("coreml_networks FOLDER FORM [NETWORK...]\n", stderr), 2;
    const std::string form = argv[2];
    const std::vector<std::string> forms = {"float", "fp16", "weights8"};
    if (std::ranges::find(forms, form) == forms.end())
      return std::fputs("coreml_networks: no such form\n", stderr), 2;
    std::vector<std::string> names(argv + 3, argv + argc);
    if (names.empty()) {
      names = ulp::models::model_names();
      for (const std::string& text : ulp::models::text_model_names()) names.push_back(text);
    }
    std::filesystem::create_directories(argv[1]);
    for (const std::string& name : names) write_case(argv[1], name, form);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "coreml_networks: %s\n", error.what());
    return 1;
  }
}
