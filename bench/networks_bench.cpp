// The networks of tests/networks in the engine beside LibTorch's eager run of the same captured graph:
//   networks_bench [--threads N] [--seconds S] [--batch N,N] [NETWORK...]
// Prints a Markdown table: milliseconds of a call with LibTorch, and with the engine in fp32, bf16 and static
// int8, each with how many times as fast as LibTorch it is. Below it stands every figure that is slower than
// it should be (the engine than LibTorch, or bf16 or int8 than the engine's own fp32) with the three longest
// steps of that engine's profile.
//
// All of a row are measured in turn in one process, warmed up, on the same number of threads (default 2). A
// figure is the best of 31 turns of S seconds (default 0.01), which others on the machine disturb least, and
// behind it how far the median of the turns is above. Figures within 3 % count as equal. Weights, inputs and
// calibration data are random. LibTorch runs in inference mode, in plain NCHW order.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "networks/stages.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/lower.h"
#include "ulp/measure/measure.h"
#include "ulp/runtime/engine/engine.h"

namespace {

using ulp::LowerOptions;
using ulp::measure::Timing;
using ulp::runtime::Engine;
using ulp::runtime::Plan;

constexpr double kEqual = 1.03;
constexpr int kRounds = 31, kProfiles = 30;

struct Options {
  int threads = 2;
  double seconds = 0.01;
  std::vector<int64_t> batches = {1, 8};
  std::vector<std::string> names;
};

/// An engine of a network, or why there is none.
struct Variant {
  const char* precision;
  std::shared_ptr<Engine> engine;
  std::string refusal;
};

/// What run() reads and writes at one batch size.
class Buffers {
 public:
  Buffers(const Engine& engine, const std::vector<at::Tensor>& inputs, int64_t batch) {
    for (const at::Tensor& input : inputs) {
      held_.push_back(input.contiguous());
      in.push_back(held_.back().const_data_ptr());
    }
    for (const ulp::runtime::TensorInfo& info : engine.outputs()) {
      held_.push_back(
          torch::empty({static_cast<int64_t>(ulp::runtime::byte_count(info, batch))}, torch::kByte));
      out.push_back(held_.back().mutable_data_ptr());
    }
  }
  std::vector<const void*> in;
  std::vector<void*> out;

 private:
  std::vector<at::Tensor> held_;
};

template <typename MakePlan>
Variant variant(const char* precision, int threads, MakePlan make) {
  try {
    return {precision, std::make_shared<Engine>(make(), ulp::runtime::EngineOptions{.threads = threads}), ""};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {precision, nullptr, text.substr(0, std::min(text.find('\n'), text.find(". The engine has")))};
  }
}

std::vector<Variant> variants(ulp::test::Subject& subject, int threads) {
  using Precision = LowerOptions::Precision;
  const auto lowered = [&](Precision precision) {
    return [&, precision] { return ulp::lower(subject.graph(), {.precision = precision}); };
  };
  return {variant("fp32", threads, lowered(Precision::f32)),
          variant("bf16", threads, lowered(Precision::bf16)),
          variant("int8", threads, [&] { return ulp::lower(*subject.quantized()); })};
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

/// The longest steps of a run of the whole batch, each at its best of some runs:
/// "51 % conv `layer1.conv` f32 [batch, 8, 8, 8] (conv_f32_avx512)".
std::string longest_steps(Engine& engine, const Buffers& buffers, int64_t batch) {
  auto steps = engine.profile(batch, buffers.in, buffers.out);
  for (int run = 0; run < kProfiles; ++run) {
    const auto again = engine.profile(batch, buffers.in, buffers.out);
    for (size_t i = 0; i < steps.size(); ++i) steps[i].seconds = std::min(steps[i].seconds, again[i].seconds);
  }
  double total = 0;
  for (const auto& step : steps) total += step.seconds;
  const size_t count = std::min<size_t>(steps.size(), 3);
  std::ranges::partial_sort(steps, steps.begin() + static_cast<int64_t>(count), std::ranges::greater{},
                            &ulp::runtime::StepProfile::seconds);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto& step = steps[i];
    text += (i > 0 ? "; " : "") + percent(step.seconds / total) + " " + step.op + " `" + step.step + "` " +
            step.output_shape + " (" + step.kernel + ")";
  }
  return text + "; " + std::to_string(steps.size()) + " steps";
}

/// One network at one batch size.
class Row {
 public:
  Row(const std::string& network, ulp::test::Subject& subject, const std::vector<Variant>& variants,
      int64_t batch)
      : network_(network), batch_(batch), inputs_(subject.draw(batch, 90)) {
    ulp::graph::GraphModule& graph = subject.graph();
    candidates_.push_back({"LibTorch", [this, &graph](int64_t) {
                             const c10::InferenceMode inference;
                             graph.run(inputs_);
                           }});
    for (const Variant& made : variants) {
      if (made.engine == nullptr) continue;
      engines_.push_back(made.engine);
      buffers_.emplace_back(*made.engine, inputs_, batch);
      candidates_.push_back({made.precision, [this, i = engines_.size() - 1](int64_t size) {
                               engines_[i]->run(size, buffers_[i].in, buffers_[i].out);
                             }});
    }
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  void measure(double seconds) {
    // Threads of LibTorch and of engines wait actively for a few milliseconds after their last work.
    const auto settle = [](int64_t, int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
    timings_ = ulp::measure::time_in_turns(
        candidates_, batch_,
        {.rounds = kRounds, .round_seconds = seconds, .warmup_calls = 5, .attempts = 1, .progress = settle});
  }

  void print(const std::vector<Variant>& variants) const {
    std::printf("| %s | %ld |", network_.c_str(), static_cast<long>(batch_));
    print_time(timings_[0]);
    size_t at = 1;
    for (const Variant& made : variants) {
      if (made.engine == nullptr) {
        std::printf(" - | |");
        continue;
      }
      const Timing& time = timings_[at++];
      print_time(time);
      const double ratio = timings_[0].minimum / time.minimum;
      std::printf(ratio * kEqual < 1 ? " **%.2f** |" : " %.2f |", ratio);
    }
    double others = 0;
    for (const Timing& time : timings_) others = std::max(others, time.others.value_or(0));
    std::printf(" %s |\n", percent(others).c_str());
    std::fflush(stdout);
  }

  /// A line for each figure that is slower than it should be.
  std::string slower() const {
    std::string text;
    const Timing* fp32 = nullptr;
    for (size_t i = 1; i < candidates_.size(); ++i) {
      const std::string& precision = candidates_[i].name;
      const bool than_libtorch = timings_[i].minimum > kEqual * timings_[0].minimum;
      const bool than_fp32 = fp32 != nullptr && timings_[i].minimum > kEqual * fp32->minimum;
      if (precision == "fp32") fp32 = &timings_[i];
      if (!than_libtorch && !than_fp32) continue;
      text += "- " + network_ + ", batch " + std::to_string(batch_) + ", " + precision + " (slower than " +
              (than_libtorch ? "LibTorch" : "") + (than_libtorch && than_fp32 ? " and " : "") +
              (than_fp32 ? "fp32" : "") + "): " + longest_steps(*engines_[i - 1], buffers_[i - 1], batch_) +
              "\n";
    }
    return text;
  }

 private:
  static void print_time(const Timing& time) {
    std::printf(" %.4f + %s |", time.minimum * 1e3, percent(time.median / time.minimum - 1).c_str());
  }

  std::string network_;
  int64_t batch_;
  std::vector<at::Tensor> inputs_;
  std::vector<std::shared_ptr<Engine>> engines_;  // as the candidates but the first
  std::vector<Buffers> buffers_;
  std::vector<ulp::measure::Candidate> candidates_;
  std::vector<Timing> timings_;
};

std::vector<int64_t> numbers(const std::string& list) {
  std::vector<int64_t> result;
  for (size_t at = 0; at < list.size(); at = list.find(',', at) + 1) {
    result.push_back(std::atol(list.c_str() + at));
    if (list.find(',', at) == std::string::npos) break;
  }
  return result;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      options.names.push_back(word);
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument("expected a value behind " + word);
    const std::string value = argv[++i];
    if (word == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else if (word == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (word == "--batch") {
      options.batches = numbers(value);
    } else {
      throw std::invalid_argument("expected --threads, --seconds or --batch, got " + word);
    }
  }
  const bool sizes =
      !options.batches.empty() && std::ranges::all_of(options.batches, [](int64_t n) { return n > 0; });
  if (options.threads < 1 || !(options.seconds > 0) || !sizes)
    throw std::invalid_argument("expected threads, seconds and batches above 0");
  for (const std::string& name : options.names) {
    if (!std::ranges::count(ulp::test::networks(), name, &ulp::test::Network::name))
      throw std::invalid_argument("expected a network of tests/networks, got '" + name + "'");
  }
  return options;
}

void run(const Options& options) {
  at::set_num_threads(options.threads);
  std::string slower, refused;
  std::printf("| network | batch | LibTorch ms | fp32 ms | x | bf16 ms | x | int8 ms | x | others took |\n");
  std::printf("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const ulp::test::Network& network : ulp::test::networks()) {
    const auto& names = options.names;
    if (!names.empty() && std::ranges::find(names, network.name) == names.end()) continue;
    ulp::test::Subject subject(network);
    const std::vector<Variant> made = variants(subject, options.threads);
    for (const Variant& one : made) {
      if (one.engine != nullptr) continue;
      refused += "- " + network.name + ", " + one.precision + ": `" + one.refusal + "`\n";
      if (&one == &made[0]) break;  // the others say the same
    }
    if (made[0].engine == nullptr) continue;
    for (const int64_t batch : options.batches) {
      Row row(network.name, subject, made, batch);
      row.measure(options.seconds);
      row.print(made);
      slower += row.slower();
    }
  }
  std::printf("\nSlower:\n\n%s\nNot in the engine:\n\n%s", slower.c_str(), refused.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "networks_bench: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "networks_bench: %s\n", error.what());
    return 1;
  }
}
