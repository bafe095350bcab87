// A call of each op of the Core ATen opset, to try what can be done with it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ulp::test {

/// What the call is given.
enum class Given : uint8_t {
  rows,      ///< [N, 6]
  sequence,  ///< [N, 5, 6]
  image,     ///< [N, 4, 6, 6]
  volume,    ///< [N, 2, 4, 4, 4]
  ids        ///< integers in [0, 6) of sizes [N, 5]
};

/// How a call reaches its op.
enum class Reach : uint8_t {
  directly,  ///< it is a call of the op
  inside,    ///< LibTorch runs the op inside of what is called
  exported   ///< torch.export makes the op of the call; LibTorch itself runs another one
};

/// What a call needs besides its input; the same at every call of a network.
class SampleLayer : public torch::nn::Module {
 public:
  /// The next parameter, of normal numbers.
  at::Tensor weight(std::vector<int64_t> sizes);
  /// The next constant: any numbers, one element after the other, that are no parameters.
  at::Tensor indices(std::vector<int64_t> sizes, int64_t below);
  /// The next buffer, of numbers from 0.5 to 1.5.
  at::Tensor statistics(std::vector<int64_t> sizes);
  /// Call before each forward.
  void restart() { next_ = 0; }

 private:
  std::vector<at::Tensor> made_;
  size_t next_ = 0;
};

/// One call.
struct Sample {
  const char* op;  ///< with the overload, as in "aten::add.Tensor"
  Reach reach;
  Given given;
  const char* call;  ///< the code of `forward`
  at::Tensor (*forward)(SampleLayer& layer, const at::Tensor& x);
};

/// All of them, in the order of the page.
std::span<const Sample> samples();

}  // namespace ulp::test
