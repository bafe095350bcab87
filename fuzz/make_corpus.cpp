// Writes the files that fuzzing starts from, with the runtime's own writers: make_corpus FOLDER
#include <filesystem>
#include <iostream>

#include "runtime/support.h"
#include "ulp/base/safetensors.h"

namespace {

namespace fs = std::filesystem;
using namespace ulp::runtime;
using namespace ulp::runtime::testing;

/// Views, upsampling, and a table and a layer with codes of 4 bits: the ops that the networks of the tests lack.
Plan small_views() {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 4, 8});
  const int32_t wide = b.op(Op::unsqueeze, {x});
  const int32_t image = b.text({.op = Op::convert, .inputs = {wide}}, {}, Layout::nhwc);
  const int32_t deep = b.op(Op::resize_nearest, {image}, NearestAttributes{4, 8});
  const int32_t large = b.op(Op::depth_to_space, {deep}, DepthToSpaceAttributes{{2, 2}, 8, 16});
  b.output(b.leave(b.op(Op::resize_bilinear, {large}, BilinearAttributes{3, 5})));
  return b.plan;
}

Plan small_codes() {
  Builder b(Numbers::f32);
  const int32_t ids = b.input({kBatch, 5}, DataType::i32);
  const int32_t words = b.text({.op = Op::embedding, .inputs = {ids}}, {{"weight", {9, 24}}});
  const int32_t wide = b.linear(words, 19, Activation::gelu);
  b.output(b.text({.op = Op::token_mean, .inputs = {wide, ids}, .attributes = TokenAttributes{0}}));
  const auto floats = [](int64_t rows, float value) {
    return constant_of(DataType::f32, {rows, 3}, std::vector<float>(static_cast<size_t>(rows * 3), value));
  };
  const auto code = [&](Step& step, int64_t rows) {
    b.plan.constants.at(step.constants.at("weight")) = constant_of(
        DataType::u8, {rows, 3, 4}, std::vector<uint8_t>(static_cast<size_t>(rows * 3 * 4), 0x6a));
    step.constants["weight_scale"] = step.name + ".scale";
    b.plan.constants[step.name + ".scale"] = floats(rows, 0.25F);
  };
  Step &table = b.plan.steps[0], &layer = b.plan.steps[1];
  code(table, 9);
  table.constants["weight_minimum"] = "minimum";
  b.plan.constants["minimum"] = floats(9, 0.75F);
  code(layer, 19);
  layer.constants["weight_zero"] = "zero";
  b.plan.constants["zero"] = constant_of(DataType::u8, {19, 3}, std::vector<uint8_t>(19 * 3, 8));
  return b.plan;
}

/// Sequences with the batch behind time, states that go in and come out.
Plan small_sequences() {
  Builder b(Numbers::f32);
  const int32_t x = b.input({5, kBatch, 9}), h = b.input({kBatch, 10}), c = b.input({kBatch, 10});
  const int32_t rows = b.text({.op = Op::move_batch, .inputs = {x}, .attributes = MoveBatchAttributes{0}});
  const int32_t states = b.recurrent_from(Op::lstm, rows, {h, c}, false, false);
  b.output(b.text({.op = Op::move_batch, .inputs = {states}, .attributes = MoveBatchAttributes{1}}));
  return b.plan;
}

void write_engines(const fs::path& folder) {
  fs::create_directories(folder);
  small_network(Numbers::f32).save(folder / "images_f32");
  small_network(Numbers::bf16).save(folder / "images_bf16");
  small_network(Numbers::u8).save(folder / "images_u8");
  small_text_network().save(folder / "text");
  small_binary_network().save(folder / "signs");
  small_views().save(folder / "views");
  small_codes().save(folder / "codes");
  small_sequences().save(folder / "sequences");
}

void write_containers(const fs::path& folder) {
  fs::create_directories(folder);
  const std::vector<std::byte> bytes(48, std::byte{7});
  const std::span<const std::byte> all(bytes);
  ulp::write_safetensors(folder / "empty", {}, {});
  const std::vector<ulp::TensorEntry> entries = {{"wide", "F64", {2, 3}, all},
                                                 {"none", "F32", {0, 4}, {}},
                                                 {"scalar", "BF16", {}, all.first(2)},
                                                 {"half bytes", "F4", {6}, all.first(3)},
                                                 {"codes", "I8", {5}, all.first(5)}};
  ulp::write_safetensors(folder / "tensors", entries, {{"format", "pt"}, {"note", "a \"text\""}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus FOLDER\n";
    return 2;
  }
  write_engines(fs::path(argv[1]) / "engine");
  write_containers(fs::path(argv[1]) / "safetensors");
  return 0;
}
