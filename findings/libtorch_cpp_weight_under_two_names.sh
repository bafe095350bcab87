#!/bin/sh
# LibTorch 2.13 in C++: a weight under two names is updated twice a step, without a word.
#
# Guess: a module that registers one tensor under two names (tied embeddings) lists it once in parameters(), as Python's
# Module.parameters() does, or the optimizer refuses or warns, as Python's does for a list with duplicates.
# Seen: Module::parameters() lists it twice, torch::optim::SGD and Adam take the list, and each step applies the update
# twice: SGD with a rate of 1 and a gradient of 1 takes 1 to -1. Two parameter groups with the tensor are taken, too.
# clip_grad_norm_ counts the gradient twice, too: the norm of (3, 4) is 7.07. A model that is moved from Python to C++
# trains its tied weights at twice the rate.
#
# Ends with 0 where that is still so. Needs a C++ compiler (c++).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.1 >/dev/null
torch=$("$folder/venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
cat >"$folder/tied.cpp" <<'CPP'
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

struct Tied : torch::nn::Module {
  torch::Tensor first = register_parameter("first", torch::ones({1}));
  torch::Tensor second = register_parameter("second", first);
};

template <typename Optimizer, typename Options>
double after_one_step(Options options) {
  Tied model;
  Optimizer optimizer(model.parameters(), options);
  model.first.sum().backward();
  optimizer.step();
  return model.first.item<double>();
}

int main() {
  std::printf("torch %s\n", TORCH_VERSION);
  Tied model;
  const size_t listed = model.parameters().size();
  const double sgd = after_one_step<torch::optim::SGD>(torch::optim::SGDOptions(1.0));
  const double adam = after_one_step<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  bool refused = false;
  try {
    torch::optim::SGD apart({torch::optim::OptimizerParamGroup({model.first}), torch::optim::OptimizerParamGroup({model.first})},
                            torch::optim::SGDOptions(1.0));
  } catch (const c10::Error&) {
    refused = true;
  }
  torch::Tensor weight = torch::ones({2}, torch::requires_grad());
  (weight * torch::tensor({3.0F, 4.0F})).sum().backward();
  const double norm = torch::nn::utils::clip_grad_norm_({weight, weight}, 100.0);
  std::printf("parameters() lists %zu; one step of SGD: 1 -> %g; of Adam: 1 -> %g; two groups refused: %d; norm %.2f\n", listed, sgd, adam,
              refused, norm);
  const bool same = listed == 2 && sgd == -1 && std::abs(adam - 0.8) < 1e-3 && !refused && std::abs(norm - 7.07) < 0.01;
  std::puts(same ? "as found" : "changed");
  return same ? 0 : 1;
}
CPP
c++ -std=c++17 -w -I"$torch/include" -I"$torch/include/torch/csrc/api/include" "$folder/tied.cpp" -o "$folder/tied" \
  -L"$torch/lib" -ltorch -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib"
"$folder/tied"
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import torch

module = torch.nn.Module()
module.first = torch.nn.Parameter(torch.ones(1))
module.second = module.first
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.optim.SGD([module.first, module.first], lr=1.0)
print(f"Python: parameters() lists {len(list(module.parameters()))}; a list with duplicates warns: {bool(seen)}")
PYTHON
