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
  if (x.info.shape.size() != 4) return i;
  const int64_t channels = x.info.shape[1], height = x.info.shape[2], width = x.info.shape[3];
  return x.at(i / width / height / channels, i / width / height % channels, i / width % height, i % width);
}

/// Runs one step of a verified plan.
void run_step(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

/// lstm and gru, for run_step.
void recurrent(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch);

/// The general steps that read in any strided form, for run_step.
void move(const Step& step, const View& x, const View& y, int64_t batch);
void pad(const Step& step, const View& x, const View& y, int64_t batch);
void reduce(const Step& step, const View& x, const View& y, int64_t batch);
void cumsum(const Step& step, const View& x, const View& y, int64_t batch);
void matmul(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

/// The steps on ids, for run_step.
void gather(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);
void scatter(const Step& step, const std::vector<View>& x, const View& y, int64_t batch);
void sort(const Step& step, const View& x, const View& y, int64_t batch);

/// pointwise, for run_step.
void pointwise(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch);

}  // namespace ulp::runtime::plain
