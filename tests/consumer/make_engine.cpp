// Writes a small classifier as an engine file, for the tests that run one: make_engine PATH
#include <ulp/runtime.h>

#include <cstring>
#include <iostream>
#include <vector>

namespace rt = ulp::runtime;

namespace {

rt::Constant constant(std::vector<int64_t> shape, const std::vector<float>& values) {
  rt::Constant made{rt::DataType::f32, std::move(shape),
                    std::vector<std::byte>(values.size() * sizeof(float))};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  rt::Plan plan;
  plan.tensors = {{.name = "image", .shape = {rt::kBatch, 1, 4, 4}},
                  {.name = "flat", .shape = {rt::kBatch, 16}},
                  {.name = "scores", .shape = {rt::kBatch, 3}},
                  {.name = "probabilities", .shape = {rt::kBatch, 3}}};
  // Class 2 always wins by its bias.
  plan.constants["weight"] = constant({3, 16}, std::vector<float>(48, 0.01F));
  plan.constants["bias"] = constant({3}, {0.0F, 1.0F, 5.0F});
  plan.steps = {{.op = rt::Op::flatten, .name = "flatten", .inputs = {0}, .output = 1},
                {.op = rt::Op::linear,
                 .name = "fc",
                 .inputs = {1},
                 .output = 2,
                 .constants = {{"weight", "weight"}, {"bias", "bias"}}},
                {.op = rt::Op::softmax, .name = "softmax", .inputs = {2}, .output = 3}};
  plan.inputs = {0};
  plan.outputs = {3};
  plan.save(argv[1]);
}
