// Writes reference networks as TensorFlow Lite files, with random weights, and beside each what it computes here:
//   tflite_networks FOLDER FORM [NETWORK...]
// FORM is float or int8 (static, profile tflite_int8, codes in and out). FOLDER/NAME.tflite, and for batches of 1 and 7 (texts: 1)
// FOLDER/NAME.BATCH.x.npy and FOLDER/NAME.BATCH.y.npy in the model's own layout. bench/peers/tflite_check.py compares LiteRT with them.
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/network_cases.h"
#include "ulp/exchange/export_tflite.h"

namespace {

void write_case(const std::filesystem::path& folder, const std::string& name, bool int8) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  ulp::bench::Case made = ulp::bench::network_case(name);
  if (int8) {
    const auto prepared = ulp::quant::prepare(made.module, ulp::quant::Recipe::tflite_int8());
    prepared->forward(made.input(8));
    made.module = ulp::quant::convert(prepared);
  }
  const bool text = !made.module->graph().free.empty();
  ulp::exchange::export_tflite(*made.module, folder / (name + ".tflite"),
                               {.batch = text ? 1 : 0, .integer_io = int8});
  for (const int64_t batch : {1, 7}) {
    if (text && batch != 1) continue;
    const torch::Tensor x = made.input(batch);
    const std::string stem = name + "." + std::to_string(batch);
    ulp::bench::write_npy(folder / (stem + ".x.npy"), x);
    ulp::bench::write_npy(folder / (stem + ".y.npy"), made.module->forward_all({x})[0]);
  }
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("tflite_networks FOLDER FORM [NETWORK...]\n", stderr), 2;
  const std::string form = argv[2];
  if (form != "float" && form != "int8") return std::fputs("tflite_networks: no such form\n", stderr), 2;
  std::vector<std::string> names(argv + 3, argv + argc);
  if (names.empty()) names = ulp::models::model_names();
  std::filesystem::create_directories(argv[1]);
  int failed = 0;
  for (const std::string& name : names) {
    try {
      write_case(argv[1], name, form == "int8");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "tflite_networks: %s: %s\n", name.c_str(), error.what());
      failed = 1;
    }
  }
  return failed;
}
