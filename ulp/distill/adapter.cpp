#include "ulp/distill/adapter.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/libtorch/keeps_float.h"

namespace ulp::distill {

namespace {

class LinearAdapter final : public libtorch::TensorModule, public libtorch::KeepsFloat {
 public:
  LinearAdapter(int64_t from, int64_t to) : layer_(register_module("linear", torch::nn::Linear(from, to))) {}
  at::Tensor forward(const at::Tensor& x) override { return layer_(x.to(torch::kFloat)); }

 private:
  torch::nn::Linear layer_;
};

class ImageAdapter final : public libtorch::TensorModule, public libtorch::KeepsFloat {
 public:
  ImageAdapter(int64_t from, int64_t to, int64_t most_rows, int64_t most_columns)
      : most_rows_(most_rows),
        most_columns_(most_columns),
        layer_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 1)))) {}
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor y = layer_(x.to(torch::kFloat));
    const int64_t rows = std::min(y.size(2), most_rows_), columns = std::min(y.size(3), most_columns_);
    return rows == y.size(2) && columns == y.size(3) ? y : at::adaptive_avg_pool2d(y, {rows, columns});
  }

 private:
  int64_t most_rows_, most_columns_;
  torch::nn::Conv2d layer_;
};

}  // namespace

std::shared_ptr<libtorch::TensorModule> make_adapter(const at::Tensor& from, const at::Tensor& to,
                                                     const std::string& places) {
  const auto refuse = [&] {
    fail("distill.make_adapter", "expected values that a linear layer or a 1x1 convolution joins at ", places,
         ", got shapes ", from.sizes(), " of the student and ", to.sizes(), " of the teacher");
  };
  if (from.dim() != to.dim() || from.dim() < 2 || from.dim() > 4 || from.size(0) != to.size(0) ||
      !from.is_floating_point() || !to.is_floating_point())
    refuse();
  if (from.dim() == 4)
    return std::make_shared<ImageAdapter>(from.size(1), to.size(1), to.size(2), to.size(3));
  if (from.dim() == 3 && from.size(1) != to.size(1)) refuse();
  return std::make_shared<LinearAdapter>(from.size(-1), to.size(-1));
}

at::Tensor pooled_to(const at::Tensor& teacher, const at::Tensor& student) {
  if (teacher.dim() != 4 || student.dim() != 4) return teacher;
  const int64_t rows = std::min(teacher.size(2), student.size(2));
  const int64_t columns = std::min(teacher.size(3), student.size(3));
  if (rows == teacher.size(2) && columns == teacher.size(3)) return teacher;
  return at::adaptive_avg_pool2d(teacher, {rows, columns});
}

}  // namespace ulp::distill
