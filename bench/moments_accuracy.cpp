// The loss of a small GPT-2 over bytes after the same steps of AdamW with moments in each format.
//
// moments_accuracy TEXT [STEPS [SEEDS]]: the last tenth of the text is held out. The same seeds, batches and schedule (constant)
// for each format; embeddings keep fp32 moments in the rows marked so. Prints Markdown rows.
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/models/text_registry.h"

namespace {

using ulp::amp::MomentFormat;

constexpr int64_t kBatch = 8, kLength = 64;

/// Windows of one byte more than the length, from places that the seed draws.
at::Tensor draw(const at::Tensor& text, int64_t windows, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor begins = torch::randint(0, text.numel() - kLength, {windows, 1}, generator, torch::kLong);
  return text.index({begins + torch::arange(kLength + 1)}).to(torch::kLong);
}

at::Tensor loss_of(ulp::models::TextModel& model, const at::Tensor& windows) {
  const at::Tensor logits = model.forward(windows.narrow(1, 0, kLength));
  return torch::cross_entropy_loss(logits.flatten(0, 1), windows.narrow(1, 1, kLength).flatten());
}

struct Result {
  double loss = 0;            ///< held-out
  double bytes_of_state = 0;  ///< for a parameter
};

Result run(const at::Tensor& text, int64_t steps, uint64_t seed, MomentFormat moments, bool embeddings) {
  torch::manual_seed(static_cast<int64_t>(seed));
  const auto model = ulp::models::make_text_model("gpt2", {.max_length = kLength});
  ulp::amp::FusedGroup group{model->parameters(), ulp::amp::AdamWRule{.lr = 1e-3}};
  group.moments = moments;
  std::vector<at::Tensor> wide;
  for (const auto& parameter : model->named_parameters()) {
    const bool embedding = parameter.key().ends_with("wte.weight") || parameter.key().ends_with("wpe.weight");
    if (embeddings && embedding) wide.push_back(parameter.value());
  }
  ulp::amp::FusedOptimizer optimizer(ulp::amp::with_fp32_moments({group}, wide));
  const int64_t held = text.numel() / 10;
  const at::Tensor training = text.narrow(0, 0, text.numel() - held);
  const at::Tensor test = draw(text.narrow(0, text.numel() - held, held), 64, 7);
  model->train();
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(*model, draw(training, kBatch, seed * 1'000'000 + static_cast<uint64_t>(step))).backward();
    ulp::amp::fused_step(optimizer, nullptr, {.max_norm = 1.0});
  }
  model->eval();
  const torch::NoGradGuard no_grad;
  int64_t parameters = 0;
  for (const at::Tensor& each : model->parameters()) parameters += each.numel();
  return {loss_of(*model, test).item<double>(),
          static_cast<double>(optimizer.state_bytes()) / static_cast<double>(parameters)};
}

/// Prints the row of a format; returns the mean loss.
double row(const at::Tensor& text, int64_t steps, uint64_t seeds, MomentFormat moments, bool embeddings,
           double fp32) {
  double mean = 0;
  Result result;
  std::printf("| %s%s |", to_string(moments), embeddings ? ", embeddings fp32" : "");
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    result = run(text, steps, seed, moments, embeddings);
    mean += result.loss / static_cast<double>(seeds);
    std::printf(" %.4f |", result.loss);
    std::fflush(stdout);
  }
  if (fp32 == 0) fp32 = mean;
  std::printf(" %.4f | %+.2f %% | %.3f |\n", mean, 100 * (mean / fp32 - 1), result.bytes_of_state);
  return mean;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: moments_accuracy TEXT [STEPS [SEEDS]]\n";
    return 2;
  }
  ulp::amp::prepare_training_memory();
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < 20 * kLength) {
    std::cerr << "expected a text of at least " << 20 * kLength << " bytes, got '" << argv[1] << "'\n";
    return 3;
  }
  at::Tensor text = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kByte);
  std::copy(bytes.begin(), bytes.end(), text.data_ptr<uint8_t>());
  const int64_t steps = argc > 2 ? std::stoll(argv[2]) : 1000;
  const uint64_t seeds = argc > 3 ? std::stoull(argv[3]) : 1;
  const double fp32 = row(text, steps, seeds, MomentFormat::fp32, false, 0);
  row(text, steps, seeds, MomentFormat::int8, false, fp32);
  row(text, steps, seeds, MomentFormat::int8, true, fp32);
  row(text, steps, seeds, MomentFormat::int4, true, fp32);
}
