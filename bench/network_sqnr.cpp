// The signal to quantization noise ratio of the reference networks in int8, over several draws of weights and images:
//   network_sqnr [DRAWS [NETWORK...]]
// Weights are random and the running statistics those of noise; calibration takes 8 images, the ratio 16 others.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "ulp/models/registry.h"
#include "ulp/ulp.h"

namespace {

constexpr int64_t kCalibration = 8, kTried = 16;

/// The smallest side that the network takes in its large form.
int64_t side_of(const std::string& network) {
  if (network == "inception_v3") return 75;
  return network == "resnet20" ? 32 : 64;
}

double sqnr(const std::string& network, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const int64_t side = side_of(network);
  torch::manual_seed(seed);
  const auto noise = [&](int64_t count) { return torch::randn({count, 3, side, side}); };
  const auto model = ulp::models::make_model(network, {.image_size = side});
  model->train();
  for (int i = 0; i < 3; ++i) model->forward(noise(kCalibration));
  model->eval();
  const torch::Tensor images = noise(kCalibration), tried = noise(kTried);
  const auto prepared = ulp::quant::prepare(ulp::capture(*model, {images}), ulp::quant::Recipe::x86_int8());
  prepared->forward(images);
  ulp::runtime::Engine engine(ulp::lower(*ulp::quant::convert(prepared)));
  const torch::Tensor expected = model->forward(tried).to(torch::kDouble);
  const torch::Tensor error = ulp::run_engine(engine, tried, kTried).to(torch::kDouble) - expected;
  return 10 * std::log10(expected.square().sum().item<double>() / error.square().sum().item<double>());
}

void measure(const std::string& network, int draws) {
  std::vector<double> decibels;
  for (int draw = 0; draw < draws; ++draw)
    decibels.push_back(sqnr(network, 100 + static_cast<uint64_t>(draw)));
  double sum = 0;
  for (const double value : decibels) sum += value;
  const auto [least, most] = std::minmax_element(decibels.begin(), decibels.end());
  std::printf("%-20s %5.1f dB (%.1f to %.1f)\n", network.c_str(), sum / draws, *least, *most);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int draws = argc > 1 ? std::atoi(argv[1]) : 6;
    if (draws < 1) return std::fputs("network_sqnr: expected a number of draws > 0\n", stderr), 2;
    std::vector<std::string> networks(argv + std::min(argc, 2), argv + argc);
    if (networks.empty()) {
      networks = {"resnet18",     "resnet20",  "resnet50",     "resnext50_32x4d",
                  "mobilenet_v2", "googlenet", "inception_v3", "shufflenet_v2_x1_0"};
    }
    for (const std::string& network : networks) measure(network, draws);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "network_sqnr: %s\n", error.what());
    return 1;
  }
}
