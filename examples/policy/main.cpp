// A policy network that is trained from a loop of one's own, on one's own memory: points on a line are pushed left, right or
// not at all until they rest at the origin. Each round plays 16 episodes of 24 pushes with the network as it is, and makes
// one step of a policy gradient (Williams 1992, "REINFORCE") on what was played. At the end the weights go into an engine,
// which needs no LibTorch, without a file between.
//   policy [ROUNDS]
#include <torch/torch.h>
#include <ulp/train.h>
#include <ulp/ulp.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace nn = torch::nn;

constexpr int kEpisodes = 16, kPushes = 24, kActions = 3, kRows = kEpisodes * kPushes;

/// A point with its position and speed.
struct Point {
  float position = 0, speed = 0;
  /// Gives the reward of a push: near the origin and slow is best.
  float push(int64_t action) {
    speed += 0.15F * static_cast<float>(action - 1);
    position += 0.25F * speed;
    return -position * position - 0.1F * speed * speed;
  }
};

static int64_t draw(const float* logits, std::mt19937& random) {
  float weights[kActions], total = 0;
  for (int a = 0; a < kActions; ++a) total += weights[a] = std::exp(logits[a]);
  float left = std::uniform_real_distribution<float>(0, total)(random);
  for (int64_t a = 0; a + 1 < kActions; ++a) {
    if (left < weights[a]) return a;
    left -= weights[a];
  }
  return kActions - 1;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  torch::manual_seed(0);
  nn::Sequential policy(nn::Linear(2, 32), nn::Tanh(), nn::Linear(32, 32), nn::Tanh(),
                        nn::Linear(32, kActions));

  // Capture the network and compile its training step. Parameters stay those of `policy`.
  const auto graph = ulp::capture(policy, {torch::randn({4, 2})});
  ulp::amp::FusedOptimizer optimizer(graph->parameters(), ulp::amp::AdamRule{.lr = 3e-3});
  ulp::train::CompiledStep step =
      ulp::train::compile(graph, ulp::train::LossFunction::weighted_cross_entropy(), optimizer,
                          {.max_batch = kRows, .max_norm = 1.0});

  std::mt19937 random(1);
  std::uniform_real_distribution<float> start(-1, 1);
  std::vector<float> states(2 * kRows), advantages(kRows), rewards(kRows);
  std::vector<int64_t> actions(kRows);
  std::array<float, kEpisodes * kActions> logits{};
  double first = 0, last = 0, seconds = 0;
  for (int round = 0; round < rounds; ++round) {
    std::array<Point, kEpisodes> points;
    for (Point& point : points) point = {start(random), 0};
    double reward = 0;
    for (int t = 0; t < kPushes; ++t) {
      float* state = states.data() + 2 * t * kEpisodes;
      for (int e = 0; e < kEpisodes; ++e) {
        state[2 * e] = points[e].position;
        state[2 * e + 1] = points[e].speed;
      }
      step.forward(state, kEpisodes, logits.data());
      for (int e = 0; e < kEpisodes; ++e) {
        const int row = t * kEpisodes + e;
        actions[row] = draw(logits.data() + e * kActions, random);
        rewards[row] = points[e].push(actions[row]);
        reward += rewards[row];
      }
    }
    // What follows a push counts for it, beside the mean of that moment.
    std::array<float, kEpisodes> following{};
    for (int t = kPushes - 1; t >= 0; --t) {
      float mean = 0;
      for (int e = 0; e < kEpisodes; ++e)
        mean += (following[e] = rewards[t * kEpisodes + e] + 0.95F * following[e]);
      for (int e = 0; e < kEpisodes; ++e) advantages[t * kEpisodes + e] = following[e] - mean / kEpisodes;
    }
    const auto begin = std::chrono::steady_clock::now();
    step.step(states.data(), actions.data(), advantages.data(), kRows);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round < 50) first += reward / kEpisodes / 50;
    if (round >= rounds - 50) last += reward / kEpisodes / 50;
  }
  std::printf(
      "mean reward of an episode: %.2f in the first 50 rounds, %.2f in the last; a step of %d rows took %.1f "
      "us\n",
      first, last, kRows, 1e6 * seconds / rounds);

  // The weights as they are now, in an engine of the runtime.
  graph->eval();
  ulp::runtime::Engine engine(ulp::lower(*graph), {.threads = 1});
  const float state[] = {0.8F, 0.0F, -0.8F, 0.0F};
  std::array<float, 2 * kActions> result{};
  const void* in = state;
  void* out = result.data();
  engine.run(2, {&in, 1}, {&out, 1});
  const bool pushes_back = result[0] > result[2] && result[5] > result[3];
  std::printf("engine: right of the origin it pushes %s, left of it %s\n",
              result[0] > result[2] ? "left" : "right", result[5] > result[3] ? "right" : "left");
  return last > first / 2 && pushes_back ? 0 : 1;
}
