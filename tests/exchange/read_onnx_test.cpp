// Hostile and broken ONNX files: an error that names the file and the place, and no memory beyond what is
// there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "error_of.h"
#include "onnx_message.h"
#include "temporary_folder.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/proto/wire_reader.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

namespace {

using exchange::import_onnx;
using exchange::WireWriter;

/// x [batch, 2] W + b.
OnnxText small_onnx() {
  return OnnxText()
      .input("x", {-1, 2})
      .floats("fc.weight", {2, 2}, {1, 2, 3, 4})
      .floats("fc.bias", {2}, {5, 6})
      .node("MatMul", {"x", "fc.weight"}, {"product"})
      .node("Add", {"product", "fc.bias"}, {"y"})
      .output("y");
}

std::string refusal(const std::string& bytes) {
  try {
    import_onnx(bytes, "model.onnx");
  } catch (const FileError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a FileError";
  return "";
}

OnnxText one_node(const std::string& op, const std::vector<std::string>& inputs) {
  return OnnxText().input("x", {-1, 2}).node(op, inputs, {"y"}).output("y");
}

}  // namespace

TEST(WireReader, ReadsWhatTheWriterWrites) {
  const std::string bytes = message_of([](WireWriter& out) {
    out.integer(1, -7);
    out.number(2, 0.5F);
    out.text(1000, "word");
  });
  exchange::WireReader reader(bytes, "a message");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.integer(), -7);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 0.5F);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1000);
  EXPECT_EQ(reader.text(), "word");
  EXPECT_FALSE(reader.next());
}

TEST(WireReader, RefusesWhatIsNoMessage) {
  const auto read_all = [](const std::string& bytes) {
    exchange::WireReader reader(bytes, "a message");
    while (reader.next()) {
    }
  };
  EXPECT_ERROR(read_all("\x08"), "a number ends early in a message");
  EXPECT_ERROR(read_all(std::string("\x08") + std::string(11, '\xff')), "more than ten bytes");
  EXPECT_ERROR(read_all("\x0a\x05"
                        "abc"),
               "field 1 of a message has 5 bytes, of which 3 are there");
  EXPECT_ERROR(read_all("\x0b"), "a kind that is not known, in field 1 of a message");
  EXPECT_ERROR(read_all(std::string("\x00\x01", 2)), "the number 0");
  exchange::WireReader reader("\x0a\x01\x07", "a message");
  reader.next();
  EXPECT_ERROR(reader.integer(), "expected a whole number in field 1 of a message");
  EXPECT_ERROR(reader.text(), "UTF-8 without control characters");
}

TEST(WireReader, KnowsPlainText) {
  for (const char* text : {"", "a.b/c:0", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(exchange::is_plain_text(text)) << text;
  for (const char* text :
       {"\n", "\x7f", "\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    EXPECT_FALSE(exchange::is_plain_text(text)) << text;
}

TEST(ReadOnnx, NamesTheFileAndTheNode) {
  EXPECT_SAYS(refusal(one_node("Frobnicate", {"x"}).bytes()),
              "'model.onnx': node 'the_Frobnicate' (Frobnicate): no form of it is known");
  EXPECT_SAYS(refusal(one_node("RoundEven", {"x"}).bytes()),
              "(RoundEven): no form of it is known; the names nearest to it with one are Round, ");
  EXPECT_SAYS(refusal(one_node("Relu", {"nobody"}).bytes()), "made before they are read, got 'nobody'");
  EXPECT_SAYS(refusal(one_node("Relu", {}).bytes()), "expected an input 0");
  EXPECT_SAYS(refusal(one_node("Reshape", {"x", "x"}).bytes()), "follows the numbers of the inputs");
  EXPECT_SAYS(refusal(small_onnx().bytes(99)), "version 6 to 28, got 99");
  EXPECT_SAYS(refusal(""), "expected an ONNX model, got no graph");
  EXPECT_ERROR(import_onnx(std::filesystem::path("nothing.onnx")), "expected a file, got 'nothing.onnx'");
}

TEST(ReadOnnx, RefusesCycles) {
  const OnnxText text =
      OnnxText().input("x", {-1, 2}).node("Add", {"x", "b"}, {"a"}).node("Relu", {"a"}, {"b"}).output("b");
  EXPECT_SAYS(refusal(text.bytes()),
              "node 'the_Add' (Add): expected values that are made before they are read, got 'b'");
}

TEST(ReadOnnx, EveryPrefixIsAnError) {
  const std::string bytes = small_onnx().bytes();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(import_onnx(bytes.substr(0, length), "model.onnx"), FileError) << length;
}

TEST(ReadOnnx, ChangedBytesAreReadOrRefused) {
  const std::string bytes = small_onnx().bytes();
  std::mt19937 random(1);  // NOLINT: the same changes each time
  int read = 0;
  constexpr int kTries = 1500;
  for (int i = 0; i < kTries; ++i) {
    std::string changed = bytes;
    for (uint32_t k = 0; k <= random() % 3; ++k)
      changed[random() % changed.size()] = static_cast<char>(random());
    try {
      import_onnx(changed, "model.onnx", {.max_bytes = 1 << 20});
      ++read;
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, kTries);
}

TEST(ReadOnnx, SizesBeyondTheBytesAreRefusedBeforeMemoryIsTaken) {
  const auto claimed = [](const std::vector<int64_t>& sizes) {
    return small_onnx().tensor<float>("more", 1, sizes, {1}).bytes();
  };
  EXPECT_SAYS(refusal(claimed({1 << 30})), "'more' in bytes in the file");
  EXPECT_SAYS(refusal(claimed({int64_t{1} << 40, int64_t{1} << 40})), "sizes that a file can hold");
  EXPECT_SAYS(refusal(claimed({-1})), "got a size of -1");
}

TEST(ReadOnnx, ResultsAreMeasuredBeforeTheyAreComputed) {
  const auto large = [](const std::string& op, const std::vector<int64_t>& sizes) {
    return OnnxText().input("x", {-1, 1}).ints("to", sizes).node(op, {"x", "to"}, {"y"}).output("y").bytes();
  };
  for (const char* op : {"Expand", "Tile"})
    EXPECT_SAYS(refusal(large(op, {1 << 20, 1 << 20})),
                "expected values of 4294967296 bytes in one run at most")
        << op;
  const OnnxText filled = OnnxText().input("x", {-1, 1}).ints("to", {1 << 20, 1 << 20});
  EXPECT_SAYS(refusal(OnnxText(filled).node("ConstantOfShape", {"to"}, {"y"}).output("y").bytes()),
              "at most, got more");
  OnnxText doubled = OnnxText().input("x", {-1, 1});
  std::string last = "x";
  for (int i = 0; i < 60; ++i) {
    doubled.node("Concat", {last, last}, {"v" + std::to_string(i)}, {{"axis", 1}});
    last = "v" + std::to_string(i);
  }
  EXPECT_SAYS(refusal(doubled.output(last).bytes()), "(Concat): expected values of");
  const OnnxText outer =
      OnnxText().input("x", {1 << 20, 1}).node("Transpose", {"x"}, {"t"}).node("MatMul", {"x", "t"}, {"y"});
  EXPECT_SAYS(refusal(OnnxText(outer).output("y").bytes()), "(MatMul): expected values of");
}

TEST(ReadOnnx, GraphsInsideEachOtherHaveALimit) {
  std::string graph;
  for (int i = 0; i < 40; ++i) {
    graph = message_of([&](WireWriter& out) {
      out.message(1, [&](WireWriter& node) {
        node.text(4, "If");
        node.message(5, [&](WireWriter& attribute) {
          attribute.text(1, "then_branch");
          attribute.bytes(6, graph.data(), graph.size());
        });
      });
    });
  }
  const std::string bytes = message_of([&](WireWriter& out) {
    out.integer(1, 8);
    out.bytes(7, graph.data(), graph.size());
  });
  EXPECT_SAYS(refusal(bytes), "expected at most 8 graphs inside each other");
}

TEST(ReadOnnx, ManyEmptyPartsAreRefused) {
  std::string graph;
  for (int i = 0; i < 3'000'000; ++i) graph += std::string("\x6a\0", 2);  // value_info: skipped
  for (int i = 0; i < 3'000'000; ++i) graph += std::string("\x5a\0", 2);  // inputs
  const std::string bytes = message_of([&](WireWriter& out) {
    out.integer(1, 8);
    out.bytes(7, graph.data(), graph.size());
  });
  EXPECT_SAYS(refusal(bytes), "expected fewer parts for its size");
}

namespace {

/// small_onnx() with its weight in another file.
std::string with_external(const std::string& location, const std::string& offset = "0") {
  const auto entry = [](WireWriter& out, const char* key, const std::string& value) {
    out.message(13, [&](WireWriter& pair) {
      pair.text(1, key);
      pair.text(2, value);
    });
  };
  return OnnxText()
      .input("x", {-1, 2})
      .raw_tensor([&](WireWriter& out) {
        out.integer(1, 2);
        out.integer(1, 2);
        out.integer(2, 1);
        out.text(8, "w");
        entry(out, "location", location);
        entry(out, "offset", offset);
        out.integer(14, 1);
      })
      .node("MatMul", {"x", "w"}, {"y"})
      .output("y")
      .bytes();
}

}  // namespace

TEST(ReadOnnx, TensorsBesideTheFileAreReadFromItsFolderAlone) {
  const TemporaryFolder folder;
  const std::filesystem::path inner = folder / "inner";
  std::filesystem::create_directories(inner);
  const float values[] = {0, 1, 2, 3, 4};
  for (const auto& file : {folder / "outside.bin", inner / "weights.bin"})
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof values);
  std::filesystem::create_symlink(folder / "outside.bin", inner / "link.bin");
  const auto load = [&](const std::string& location, const std::string& offset) {
    return import_onnx(with_external(location, offset), inner / "model.onnx");
  };
  const auto model = load("weights.bin", "4");
  EXPECT_EQ(model->named_parameters()["w"].sum().item<float>(), 1 + 2 + 3 + 4);
  for (const char* path : {"../outside.bin", "/etc/hostname", "a/../../outside.bin", ""})
    EXPECT_ERROR(load(path, "0"), "expected a file inside the model's folder");
  EXPECT_ERROR(load("link.bin", "0"), "a link out of it");
  EXPECT_ERROR(load("missing.bin", "0"), "expected the file 'missing.bin'");
  EXPECT_ERROR(load(".", "0"), "");
  EXPECT_ERROR(load("weights.bin", "8"), "expected 16 bytes from byte 8 on");
  EXPECT_ERROR(load("weights.bin", "8"), "got 20 bytes in all of 'weights.bin'");
  EXPECT_ERROR(load("weights.bin", "-1"), "expected a number as the offset");
}

}  // namespace ulp::test
