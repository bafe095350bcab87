// The blocks of MobileNetV2 and of ResNet-50, a depthwise or a dense convolution between 1x1 layers, run some rows at a time
// beside the same layers one by one:
//
//   block_bench [f32|bf16|u8] [IMAGES] [THREADS]
//
// Each line is a block: its image, its channels, the best of many calls both ways; none where the kernels do not run by rows.
// Results are compared bit by bit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/read_bandwidth.h"
#include "ulp/kernels/conv/conv_block.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::DataType;
using namespace ulp::kernels;
using ulp::bench::seconds;

constexpr int kTurns = 20;

struct Case {
  int64_t size, in, middle, out, stride;
  bool dense = false;  ///< ResNet-50's, with a residual where the block keeps its shape
};
constexpr Case kBlocks[] = {
    {112, 32, 32, 16, 1},           {112, 16, 96, 24, 2},          {56, 24, 144, 24, 1},
    {56, 24, 144, 32, 2},           {28, 32, 192, 32, 1},          {28, 32, 192, 64, 2},
    {14, 64, 384, 64, 1},           {14, 64, 384, 96, 1},          {14, 96, 576, 96, 1},
    {14, 96, 576, 160, 2},          {7, 160, 960, 160, 1},         {7, 160, 960, 320, 1},
    {56, 64, 64, 256, 1, true},     {56, 256, 64, 256, 1, true},   {56, 256, 128, 512, 2, true},
    {28, 512, 128, 512, 1, true},   {28, 512, 256, 1024, 2, true}, {14, 1024, 256, 1024, 1, true},
    {14, 1024, 512, 2048, 2, true}, {7, 2048, 512, 2048, 1, true}};

struct Weights {
  std::vector<float> floats, scale;
  std::vector<int8_t> codes;
};

bool has_residual(const Case& c) {
  return c.dense && c.in == c.out;
}

/// The layers of a block on random weights.
class Layers {
 public:
  Layers(const Case& c, DataType type) : type_(type) {
    const ulp::Activation between = c.dense ? ulp::Activation::relu : ulp::Activation::relu6;
    if (c.in != c.middle || c.dense) add(c.size, c.in, c.middle, 1, 1, 1, between);
    add(c.size, c.middle, c.middle, 3, c.stride, c.dense ? 1 : c.middle, between);
    add((c.size - 1) / c.stride + 1, c.middle, c.out, 1, 1, 1, c.dense ? between : ulp::Activation::none);
    layers_.back().config.residual = has_residual(c);
    layers_.back().config.residual_type = type;
    layers_.back().config.residual_q = {0.02F, 10};
  }
  const std::vector<BlockLayer>& all() const { return layers_; }

 private:
  void add(int64_t size, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups,
           ulp::Activation activation) {
    BlockLayer layer;
    layer.config.shape = {size,   size,       in,         out, kernel, kernel, stride,
                          stride, kernel / 2, kernel / 2, 1,   1,      groups};
    layer.config.input = layer.config.output = type_;
    layer.config.activation = activation;
    layer.config.input_q = {0.02F, 10};
    layer.config.output_q = {0.05F, 10};
    const auto count = static_cast<size_t>(in / groups * out * kernel * kernel);
    auto weights = std::make_unique<Weights>();
    std::normal_distribution<float> draw(0, 0.1F);
    for (size_t i = 0; i < count; ++i) {
      weights->floats.push_back(draw(random_));
      weights->codes.push_back(static_cast<int8_t>(static_cast<int>(random_() % 255) - 127));
    }
    weights->scale.assign(static_cast<size_t>(out), 0.01F);
    layer.weights.f32 = weights->floats.data();
    layer.weights.i8 = weights->codes.data();
    layer.weights.scale = weights->scale.data();
    weights_.push_back(std::move(weights));
    layers_.push_back(layer);
  }

  DataType type_;
  std::mt19937 random_{1};
  std::vector<BlockLayer> layers_;
  std::vector<std::unique_ptr<Weights>> weights_;
};

struct Buffer {
  explicit Buffer(size_t bytes)
      : bytes(bytes), data(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes / 64 + 2) * 64))) {}
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  size_t bytes;
  uint8_t* data;
};

void fill(Buffer& buffer, DataType type) {
  std::mt19937 random(2);
  std::normal_distribution<float> draw(0, 1);
  for (size_t i = 0; i + 4 <= buffer.bytes; i += 4) {
    const float number = draw(random);
    const uint32_t bytes = type == DataType::u8 ? random() : 0x3f803f80U ^ (random() & 0x800f800fU);
    std::memcpy(buffer.data + i, type == DataType::f32 ? static_cast<const void*>(&number) : &bytes, 4);
  }
}

struct Times {
  double apart, joined;
};

Times measure(const Case& c, DataType type, int64_t images, const ulp::Parallel& parallel) {
  const Layers layers(c, type);
  const Isa isa = selected_isa();
  const std::unique_ptr<Conv> block = make_conv_block(layers.all(), isa);
  if (block == nullptr) return {0, 0};
  const std::unique_ptr<Conv> apart = make_layers_apart(layers.all(), isa);
  const int workers = parallel.workers();
  const size_t scratch =
      std::max(block->workspace_bytes(images, workers), apart->workspace_bytes(images, workers));
  const auto bytes = [&](int64_t numbers) {
    return static_cast<size_t>(images * numbers * ulp::element_bytes(type));
  };
  const ConvShape& last = layers.all().back().config.shape;
  Buffer x(bytes(c.size * c.size * c.in));
  fill(x, type);
  const Buffer one_by_one(bytes(last.out_h() * last.out_w() * last.out_channels)), by_rows(one_by_one.bytes),
      workspace(scratch);
  const void* residual = has_residual(c) ? x.data : nullptr;
  constexpr double kLong = std::numeric_limits<double>::infinity();
  Times best{kLong, kLong};
  for (int turn = 0; turn < kTurns; ++turn) {
    const double begin = seconds();
    apart->run(images, x.data, residual, one_by_one.data, workspace.data, parallel);
    const double middle = seconds();
    block->run(images, x.data, residual, by_rows.data, workspace.data, parallel);
    best = {std::min(best.apart, middle - begin), std::min(best.joined, seconds() - middle)};
  }
  if (std::memcmp(by_rows.data, one_by_one.data, by_rows.bytes) != 0) {
    std::fprintf(stderr, "the results are not the same\n");
    std::exit(1);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "f32";
  const int64_t images = argc > 2 ? std::atoll(argv[2]) : 4;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  if ((word != "f32" && word != "bf16" && word != "u8") || images < 1 || threads < 1) {
    std::fprintf(stderr, "expected block_bench [f32|bf16|u8] [IMAGES] [THREADS]\n");
    return 2;
  }
  const DataType type = word == "f32" ? DataType::f32 : word == "bf16" ? DataType::bf16 : DataType::u8;
  const ulp::runtime::ThreadPool pool(threads);
  std::printf("%s, %lld images, %d threads, %s\n", word.c_str(), static_cast<long long>(images), threads,
              to_string(selected_isa()));
  std::printf("| image | channels | stride | one by one, ms | by rows, ms | |\n|--:|---|--:|--:|--:|--:|\n");
  Times all{0, 0};
  for (const Case& c : kBlocks) {
    const Times times = measure(c, type, images, pool);
    if (times.joined == 0) continue;
    std::printf("| %lld | %lld, %lld, %lld | %lld | %.3f | %.3f | %.2fx |\n", static_cast<long long>(c.size),
                static_cast<long long>(c.in), static_cast<long long>(c.middle), static_cast<long long>(c.out),
                static_cast<long long>(c.stride), 1e3 * times.apart, 1e3 * times.joined,
                times.apart / times.joined);
    all.apart += times.apart;
    all.joined += times.joined;
  }
  if (all.joined == 0) {
    std::fprintf(stderr, "no kernel of %s runs by rows\n", to_string(selected_isa()));
    return 1;
  }
  std::printf("| all | | | %.2f | %.2f | %.2fx |\n", 1e3 * all.apart, 1e3 * all.joined,
              all.apart / all.joined);
  return 0;
}
