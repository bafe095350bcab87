// Every op of a plan in its plainest form, element by element; what engines are checked against.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime::plain {

/// A dense buffer of any element type, read and written as real numbers.
struct View {
  void* data = nullptr;
  TensorInfo info;

  /// Index of an element of a 4-d tensor.
  int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    const int64_t channels = info.shape[1], height = info.shape[2], width = info.shape[3];
    return info.layout == Layout::nhwc ? ((n * height + h) * width + w) * channels + c
                                       : ((n * channels + c) * height + h) * width + w;
  }
  /// u8: how many steps of the scale above zero; otherwise the number itself.
  float steps(int64_t i) const;
  float get(int64_t i) const { return steps(i) * info.scale; }
  /// Element i of i32 or i64.
  int64_t id(int64_t i) const {
    return info.type == DataType::i64 ? static_cast<const int64_t*>(data)[i]
                                      : static_cast<const int32_t*>(data)[i];
  }
  /// u8: from steps of the scale, rounded half to even and clamped.
  void set_steps(int64_t i, float value) const;
  void set(int64_t i, float value) const {
    set_steps(i, info.type == DataType::u8 ? value * (1.0F / info.scale) : value);
  }
};

/// Size of the first dimension.
inline int64_t first_of(const View& x, int64_t batch) {
  return x.info.shape[0] == kBatch ? batch : x.info.shape[0];
}

/// Index in memory of an element that is counted in logical order, the first dimension outermost.
inline int64_t logical(const View& x, int64_t i) {
  if (x.info.layout == Layout::plain) return i;
  const int64_t channels = x.info.shape[1];
  int64_t pixels = 1;
  for (size_t d = 2; d < x.info.shape.size(); ++d) pixels *= x.info.shape[d];
  return (i / pixels / channels * pixels + i % pixels) * channels + i / pixels % channels;
}

/// Calls f(n, c, h, w) for each element of an image tensor.
template <typename F>
void each_pixel(const View& y, int64_t batch, F f) {
  for (int64_t n = 0; n < first_of(y, batch); ++n) {
    for (int64_t c = 0; c < y.info.shape[1]; ++c) {
      for (int64_t h = 0; h < y.info.shape[2]; ++h) {
        for (int64_t w = 0; w < y.info.shape[3]; ++w) f(n, c, h, w);
      }
    }
  }
}

/// Runs one step of a verified plan.
void run_step(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

/// lstm and gru, for run_step.
void recurrent(const Plan& plan, const Step& step, const std::vector<View>& inputs, const View& y,
               int64_t batch);

/// The general steps that read in any strided form, for run_step.
void move(const Step& step, const View& x, const View& y, int64_t batch);
void move_batch(const Step& step, const View& x, const View& y, int64_t batch);
void pad(const Step& step, const View& x, const View& y, int64_t batch);
void reduce(const Step& step, const View& x, const View& y, int64_t batch);
void cumsum(const Step& step, const View& x, const View& y, int64_t batch);
void matmul(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

/// The steps on ids, for run_step.
void gather(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);
void scatter(const Step& step, const std::vector<View>& x, const View& y, int64_t batch);
void sort(const Step& step, const View& x, const View& y, int64_t batch);

/// The steps that make images of another size, for run_step.
void resize(const Step& step, const View& x, const View& y, int64_t batch);
void grid_sample(const Step& step, const View& x, const View& grid, const View& y, int64_t batch);

/// The steps over signs, for run_step.
void binarize(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch);
void binary_conv(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                 int64_t batch);
void binary_linear(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                   int64_t batch);

/// pointwise, for run_step.
void pointwise(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

}  // namespace ulp::runtime::plain
