#include "ulp/kernels/conv/conv_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "ulp/kernels/conv/conv_variants.h"
#include "ulp/kernels/conv/work_split.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kSlack = 64;  // a kernel may read behind the last element

/// Layers one by one, with what lies between them in the workspace.
class LayersApart final : public Conv {
 public:
  void add(const ConvConfig& config, std::shared_ptr<const Conv> layer) {
    const ConvShape& s = config.shape;
    layers_.push_back(
        {std::move(layer), s.out_h() * s.out_w() * s.out_channels * element_bytes(config.output)});
  }

  size_t workspace_bytes(int64_t batch, int workers) const override {
    size_t own = 0;
    for (const Layer& layer : layers_) own = std::max(own, layer.conv->workspace_bytes(batch, workers));
    return static_cast<size_t>(between_bytes(batch)) + own;
  }
  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    auto* free = static_cast<uint8_t*>(workspace);
    uint8_t* own = free + between_bytes(batch);
    for (const Layer& layer : layers_) {
      const bool last = &layer == &layers_.back();
      void* result = last ? y : free;
      layer.conv->run(batch, x, last ? residual : nullptr, result, own, parallel);
      x = result;
      free += result_bytes(layer, batch);
    }
  }
  std::string name() const override {
    std::string names;
    for (const Layer& layer : layers_) names += (names.empty() ? "" : "+") + layer.conv->name();
    return names;
  }

 private:
  struct Layer {
    std::shared_ptr<const Conv> conv;
    int64_t bytes;  ///< of the result of an image
  };
  /// A kernel may read behind the last element.
  static int64_t result_bytes(const Layer& layer, int64_t batch) {
    return round_up(layer.bytes * batch + kSlack, 64);
  }
  /// Of all results but the last one.
  int64_t between_bytes(int64_t batch) const {
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < layers_.size(); ++i) sum += result_bytes(layers_[i], batch);
    return sum;
  }

  std::vector<Layer> layers_;
};

/// The layers of a block. `before` may be null.
struct Layers {
  std::shared_ptr<const RowConv> before, window, behind;
};

class ConvBlock final : public Conv {
 public:
  ConvBlock(std::span<const BlockLayer> given, Layers layers)
      : layers_(std::move(layers)),
        input_bytes_(element_bytes(given.front().config.input)),
        between_bytes_(element_bytes(given.back().config.input)),
        output_bytes_(element_bytes(given.back().config.output)),
        residual_bytes_(element_bytes(given.back().config.residual_type)),
        scratch_bytes_(most_scratch()),
        has_residual_(given.back().config.residual),
        rows_(rows_at_a_time()),
        most_parts_(most_parts()) {
    if (layers_.before) apart_.add(given.front().config, layers_.before);
    apart_.add(given[given.size() - 2].config, layers_.window);
    apart_.add(given.back().config, layers_.behind);
  }

  size_t workspace_bytes(int64_t batch, int workers) const override {
    const auto by_rows = static_cast<size_t>(workers * buffer_bytes(rows_));
    if (workers <= most_parts_) return by_rows;
    return std::max(by_rows, apart_.workspace_bytes(std::min<int64_t>(batch, workers - 1), workers));
  }

  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    if (batch < 1) return;
    const int64_t out_h = middle().out_h(), workers = parallel.workers();
    // As few parts of an image as give each worker the same number of them.
    const int64_t equal = workers / std::gcd(workers, batch), parts = std::min(equal, most_parts_);
    if (parts < equal && batch < workers) return apart_.run(batch, x, residual, y, workspace, parallel);
    parallel.run(batch * parts, [&](int64_t i, int worker) {
      const int64_t part = i % parts;
      const Task task{.image = i / parts,
                      .first = part * out_h / parts,
                      .end = (part + 1) * out_h / parts,
                      .x = static_cast<const uint8_t*>(x),
                      .residual = has_residual_ ? static_cast<const uint8_t*>(residual) : nullptr,
                      .y = static_cast<uint8_t*>(y)};
      run_task(task, static_cast<uint8_t*>(workspace) + worker * buffer_bytes(rows_));
    });
  }

  std::string name() const override { return apart_.name(); }

 private:
  struct Task {
    int64_t image, first, end;  ///< rows of the output
    const uint8_t* x;
    const uint8_t* residual;
    uint8_t* y;
  };

  const ConvShape& middle() const { return layers_.window->shape(); }

  int64_t most_scratch() const {
    const int64_t before = layers_.before ? layers_.before->scratch_bytes() : 0;
    return std::max({before, layers_.window->scratch_bytes(), layers_.behind->scratch_bytes()});
  }

  // One worker's buffer: scratch of the layer at work, input of the layer in the middle with its padding, its output, and the
  // input of the 1x1 layers where their kernels want it in another form.
  int64_t window_rows(int64_t rows) const {
    return (rows - 1) * middle().stride_h + middle().dilation_h * (middle().kernel_h - 1) + 1;
  }
  int64_t window_bytes(int64_t rows) const {
    return round_up(window_rows(rows) * layers_.window->staging().row_bytes() + kSlack, 64);
  }
  int64_t between_pixels(int64_t rows) const { return rows * middle().out_w(); }
  int64_t between_bytes(int64_t rows) const {
    return round_up(between_pixels(rows) * middle().out_channels * between_bytes_ + kSlack, 64);
  }
  int64_t staged_bytes(int64_t rows) const {
    const int64_t behind = layers_.behind->staging().bytes_for_pixels(between_pixels(rows));
    const int64_t before = layers_.before ? layers_.before->staging().bytes_for_pixels(middle().in_w) : 0;
    return std::max(behind, before);
  }
  int64_t buffer_bytes(int64_t rows) const {
    return scratch_bytes_ + window_bytes(rows) + between_bytes(rows) + staged_bytes(rows);
  }

  /// What comes in and goes out meanwhile: a residual, which is the input as a rule, is found in the cache then.
  int64_t passing_bytes(int64_t rows) const {
    const ConvShape& first = layers_.before ? layers_.before->shape() : middle();
    const int64_t in = window_rows(rows) * middle().in_w * first.in_channels * input_bytes_;
    return in + between_pixels(rows) * layers_.behind->shape().out_channels * output_bytes_;
  }

  int64_t rows_at_a_time() const {
    const int64_t most = second_level_cache() * 3 / 4;
    int64_t rows = 1;
    while (rows < middle().out_h() && buffer_bytes(rows + 1) + passing_bytes(rows + 1) <= most) ++rows;
    return rows;
  }

  /// Into how many parts an image may be cut: those rows of the first layer that two parts need are computed twice, and a
  /// third more of them is the most.
  int64_t most_parts() const {
    const int64_t out_h = middle().out_h();
    if (!layers_.before) return out_h;
    int64_t parts = 1;
    const auto pays = [&](int64_t rows) { return 3 * window_rows(rows) <= 4 * rows * middle().stride_h; };
    while (parts < out_h && pays(out_h / (parts + 1))) ++parts;
    return parts;
  }

  /// The parts of a worker's buffer.
  struct Buffers {
    uint8_t *scratch, *window, *between, *staged;
  };

  void run_task(const Task& task, uint8_t* buffer) const {
    Buffers to{.scratch = buffer, .window = buffer + scratch_bytes_, .between = nullptr, .staged = nullptr};
    to.between = to.window + window_bytes(rows_);
    to.staged = to.between + between_bytes(rows_);
    int64_t known = 0;  // rows of the window that the rows before have left at its begin
    fill_edges(to.window);
    for (int64_t first = task.first; first < task.end; first += rows_) {
      const int64_t rows = std::min(rows_, task.end - first);
      layers_.window->run_rows(input_rows(task, first, rows, known, to), rows, nullptr, to.between,
                               to.scratch);
      run_behind(task, first, rows, to);
      known = keep_rows(rows, to.window);
    }
  }

  /// The left and right padding of all rows, which stays.
  void fill_edges(uint8_t* window) const {
    if (!layers_.before) return;
    const Staging& staging = layers_.window->staging();
    const int64_t edge = middle().pad_w * middle().in_channels;
    for (int64_t row = 0; row < window_rows(rows_); ++row) {
      uint8_t* begin = window + row * staging.row_bytes();
      staging.fill(begin, edge);
      staging.fill(begin + staging.row_bytes() - edge * staging.element_bytes(), edge);
    }
  }

  /// The input of so many rows of the layer in the middle.
  const uint8_t* input_rows(const Task& task, int64_t first, int64_t rows, int64_t known,
                            const Buffers& to) const {
    const Staging& staging = layers_.window->staging();
    if (!layers_.before) return staging.rows(task.x, task.image, first, first + rows, to.window);
    const int64_t line = middle().in_w * middle().in_channels,
                  top = first * middle().stride_h - middle().pad_h;
    for (int64_t row = known; row < window_rows(rows); ++row) {
      uint8_t* at = to.window + row * staging.row_bytes() + middle().pad_w * staging.pixel_bytes();
      if (top + row < 0 || top + row >= middle().in_h) {
        staging.fill(at, line);
      } else {
        run_before(task, top + row, at, to);
      }
    }
    return to.window;
  }

  void run_before(const Task& task, int64_t row, uint8_t* y, const Buffers& to) const {
    const int64_t pixel = (task.image * middle().in_h + row) * middle().in_w;
    const uint8_t* from = task.x + pixel * layers_.before->shape().in_channels * input_bytes_;
    layers_.before->run_rows(layers_.before->staging().pixels(from, 0, middle().in_w, to.staged),
                             middle().in_w, nullptr, y, to.scratch);
  }

  void run_behind(const Task& task, int64_t first, int64_t rows, const Buffers& to) const {
    const int64_t pixels = between_pixels(rows);
    const int64_t at =
        (task.image * middle().out_h() + first) * middle().out_w() * layers_.behind->shape().out_channels;
    layers_.behind->run_rows(layers_.behind->staging().pixels(to.between, 0, pixels, to.staged), pixels,
                             task.residual == nullptr ? nullptr : task.residual + at * residual_bytes_,
                             task.y + at * output_bytes_, to.scratch);
  }

  /// Moves what the next rows need, too, to the begin of the window; returns how many rows that are.
  int64_t keep_rows(int64_t rows, uint8_t* window) const {
    const int64_t passed = rows * middle().stride_h, kept = window_rows(rows) - passed;
    if (!layers_.before || kept <= 0) return 0;
    const int64_t row_bytes = layers_.window->staging().row_bytes();
    std::memmove(window, window + passed * row_bytes, static_cast<size_t>(kept * row_bytes));
    return kept;
  }

  Layers layers_;
  int64_t input_bytes_, between_bytes_, output_bytes_, residual_bytes_, scratch_bytes_;
  bool has_residual_;
  int64_t rows_;        ///< of the output, at a time
  int64_t most_parts_;  ///< of an image
  LayersApart apart_;
};

bool is_plain(const ConvShape& s) {
  return is_flat(s) && s.groups == 1;
}

bool follows(const ConvConfig& before, const ConvConfig& next) {
  const ConvShape &from = before.shape, &to = next.shape;
  return before.output == next.input && from.out_channels == to.in_channels && from.out_h() == to.in_h &&
         from.out_w() == to.in_w;
}

bool is_block(std::span<const BlockLayer> layers) {
  if (layers.size() != 2 && layers.size() != 3) return false;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    if (layers[i].config.residual || !follows(layers[i].config, layers[i + 1].config)) return false;
  }
  const size_t middle = layers.size() - 2;
  const ConvShape& window = layers[middle].config.shape;
  const bool dense = window.groups == 1 && !is_flat(window);
  return (is_depthwise(window) || dense) && is_plain(layers.back().config.shape) &&
         (middle == 0 || is_plain(layers[0].config.shape));
}

/// Null where its kernel does not run by rows.
std::shared_ptr<const RowConv> make_rows(const BlockLayer& layer, Isa isa) {
  return std::dynamic_pointer_cast<const RowConv>(
      std::shared_ptr<const Conv>(make_conv(layer.config, layer.weights, isa)));
}

}  // namespace

std::unique_ptr<Conv> make_conv_block(std::span<const BlockLayer> layers, Isa isa) {
  for (const BlockLayer& layer : layers) check_layer(layer.config, layer.weights);
  if (!is_block(layers)) return nullptr;
  Layers made;
  if (layers.size() == 3 && !(made.before = make_rows(layers[0], isa))) return nullptr;
  const BlockLayer& middle = layers[layers.size() - 2];
  made.window = make_rows(middle, isa);
  if (!made.window) return nullptr;
  // The layer before writes into the window, which must not want its numbers in another form.
  if (made.before && made.window->staging().element_bytes() != element_bytes(middle.config.input))
    return nullptr;
  made.behind = make_rows(layers.back(), isa);
  if (!made.behind) return nullptr;
  return std::make_unique<ConvBlock>(layers, std::move(made));
}

std::unique_ptr<Conv> make_layers_apart(std::span<const BlockLayer> layers, Isa isa) {
  auto made = std::make_unique<LayersApart>();
  for (const BlockLayer& layer : layers) made->add(layer.config, make_conv(layer.config, layer.weights, isa));
  return made;
}

}  // namespace ulp::kernels
