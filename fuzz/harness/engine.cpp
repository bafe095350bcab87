// Engine files: what loads must make an engine, or a clear error, and run.
#include "ulp/runtime/engine/engine.h"

#include <algorithm>

#include "container_mutator.h"
#include "harness.h"
#include "ulp/base/fields_json.h"
#include "ulp/kernels/isa/isa.h"

namespace {

using namespace ulp::runtime;
using ulp::fuzz::Random;

constexpr int64_t kItems = 2;
constexpr double kMostBytes = 64 << 20;
constexpr double kMostWork = 4e9;  // multiplications, counted above rather than below

/// Ops and attributes of the list, and the other words of plans.
const ulp::fuzz::Vocabulary& vocabulary() {
  static const ulp::fuzz::Vocabulary all = [] {
    ulp::fuzz::Vocabulary made;
    made.words = {"batch", "nhwc", "plain"};
    for (const Op op : kOps) {
      made.words.emplace_back(to_string(op));
      const nlohmann::json fields =
          std::visit([](const auto& held) { return ulp::fields_to_json(held); }, default_attributes(op));
      for (const auto& [name, value] : fields.items()) {
        made.fields.emplace_back(name, value);
        if (!value.is_object()) continue;
        for (const auto& [inner, plain] : value.items()) made.fields.emplace_back(inner, plain);
      }
    }
    for (const char* word : ulp::enum_names<ulp::Activation>()) made.words.emplace_back(word);
    for (int i = 0; i < ulp::kDataTypeCount; ++i)
      made.words.emplace_back(to_string(static_cast<DataType>(i)));
    for (const char* role :
         {"weight", "bias", "weight_scale", "weight_zero", "weight_minimum", "addend", "weight_ih"}) {
      made.words.emplace_back(role);
    }
    return made;
  }();
  return all;
}

double elements(const TensorInfo& tensor) {
  double count = 1;
  for (const int64_t size : tensor.shape) count *= static_cast<double>(size == kBatch ? kItems : size);
  return count;
}

/// False for a plan that is right and asks for more memory or time than a fuzzer has.
bool is_small(const Plan& plan) {
  double bytes = 0, work = 0;
  for (const TensorInfo& tensor : plan.tensors) bytes += 8 * elements(tensor);
  for (const Step& step : plan.steps) {
    double each = 1;
    for (const auto& [role, name] : step.constants) {
      each += static_cast<double>(plan.constants.at(name).bytes.size());
    }
    if (const auto* pool = std::get_if<PoolAttributes>(&step.attributes)) {
      each += static_cast<double>(pool->window.kernel_h) * static_cast<double>(pool->window.kernel_w);
    }
    if (step.op == Op::attention) each += elements(plan.tensors[static_cast<size_t>(step.inputs[1])]);
    work += each * elements(plan.tensors[static_cast<size_t>(step.output)]);
  }
  return bytes <= kMostBytes && work <= kMostWork;
}

std::vector<std::byte> input_for(const TensorInfo& tensor, Random& random) {
  std::vector<std::byte> bytes(byte_count(tensor, kItems));
  const bool ids = tensor.type == DataType::i64 || tensor.type == DataType::i32;
  const auto width = static_cast<size_t>(element_bytes(tensor.type));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(!ids ? random() : i % width == 0 ? random() % 5 : 0);
  }
  return bytes;
}

void run(const Plan& plan, size_t seed) {
  const std::vector<ulp::kernels::Isa> isas = ulp::kernels::available_isas();
  Engine engine(plan, {.threads = 1, .isa = ulp::kernels::to_string(isas[seed % isas.size()])});
  if (!is_small(plan)) return;
  Random random(seed);
  std::vector<std::vector<std::byte>> inputs, outputs;
  for (const TensorInfo& tensor : engine.inputs()) inputs.push_back(input_for(tensor, random));
  for (const TensorInfo& tensor : engine.outputs()) outputs.emplace_back(byte_count(tensor, kItems));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const auto& bytes : inputs) in.push_back(bytes.data());
  for (auto& bytes : outputs) out.push_back(bytes.data());
  engine.run(kItems, in, out);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  Plan plan;
  if (!ulp::fuzz::refused([&] { plan = Plan::load(file.path()); })) {
    ulp::fuzz::refused<ulp::Error>([&] { run(plan, size); });
  }
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  return ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary());
}
