// Runs an engine file on random input and prints the top class of each item:
//   run_engine model.ulp [batch]
#include <ulp/runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

namespace rt = ulp::runtime;

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: run_engine model.ulp [batch]\n";
    return 2;
  }
  try {
    rt::Engine engine{std::filesystem::path(argv[1])};
    const int64_t batch = argc == 3 ? std::atoll(argv[2]) : 1;
    engine.reserve(batch);

    // One dense buffer for each input and output, sized by what the engine says about it.
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> inputs, outputs;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const rt::TensorInfo& info : engine.inputs()) {
      if (info.type != rt::DataType::f32) throw ulp::Error("this example feeds f32 inputs only");
      std::vector<float>& buffer = inputs.emplace_back(rt::element_count(info, batch));
      std::ranges::generate(buffer, [&] { return normal(random); });
      in.push_back(buffer.data());
    }
    for (const rt::TensorInfo& info : engine.outputs()) {
      if (info.type != rt::DataType::f32) throw ulp::Error("this example reads f32 outputs only");
      out.push_back(outputs.emplace_back(rt::element_count(info, batch)).data());
    }

    engine.run(batch, in, out);  // the first run warms caches up
    const auto start = std::chrono::steady_clock::now();
    engine.run(batch, in, out);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;

    const auto classes = static_cast<std::ptrdiff_t>(rt::element_count(engine.outputs()[0], 1));
    for (int64_t item = 0; item < batch; ++item) {
      const auto scores = outputs[0].begin() + item * classes;
      const auto top = std::max_element(scores, scores + classes);
      std::cout << "item " << item << ": class " << top - scores << ", score " << *top << '\n';
    }
    std::cout << "batch " << batch << " took " << took.count() << " ms on " << engine.threads()
              << " threads (" << engine.isa() << ")\n";
  } catch (const ulp::FileError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
