// A model that the tool does not know, by the file that examples/own_model makes of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::Outcome;
using ulp::test::Workshop;

TEST(OwnModel, TheToolTrainsCompressesAndRunsIt) {
  const Workshop shop;
  shop.make_data("data");
  ASSERT_EQ(std::system(("cd '" + shop.folder().string() + "' && " ULP_OWN_MODEL).c_str()), 0);
  const auto expect_done = [&](const std::string& command) {
    const Outcome outcome = shop.started(command);
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome.out;
  };
  expect_done(
      "train --init own_model.safetensors --data data --precision bf16 --epochs 2 --lr 0.05 --batch 32 "
      "--threads 1 --out t.safetensors");
  expect_done("quantize t.safetensors --data data --samples 64 --test 0 --threads 1 --out q.ulp");
  expect_done("prune t.safetensors --sparsity 0.5 --data data --out p.safetensors");
  expect_done("lower t.safetensors --out f.ulp");
  expect_done("export t.safetensors --out t.onnx");
  for (const char* file : {"t.safetensors", "f.ulp", "q.ulp", "p.safetensors", "t.onnx"}) {
    const auto json =
        nlohmann::json::parse(expect_done(std::string("run ") + file + " --data data --count 4 --json"));
    EXPECT_EQ(json[0]["shape"].get<std::vector<int64_t>>(), (std::vector<int64_t>{4, 10})) << file;
  }
  // Its names are its own.
  EXPECT_NE(ulp::test::read_file(shop / "t.safetensors").find("second.gate.weight"), std::string::npos);
}

}  // namespace
