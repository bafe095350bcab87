#include "ulp/io/dataset.h"

#include <torch/torch.h>
#include <zlib.h>

#include <cstdlib>
#include <random>

#include "temp_folder.h"

namespace {

using ulp::io::read_idx;

std::string big_endian(uint32_t value) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(value >> (24 - 8 * i));
  return bytes;
}

std::string idx(char type, const std::vector<uint32_t>& shape, const std::string& values) {
  std::string file{'\0', '\0', type, static_cast<char>(shape.size())};
  for (uint32_t size : shape) file += big_endian(size);
  return file + values;
}

std::string gzip(const std::string& plain) {
  std::string packed(plain.size() + 1000, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class Idx : public TempFolder {};

TEST_F(Idx, ReadsPlainAndCompressedAlike) {
  const std::string file = idx(8, {2, 3}, std::string("\0\1\2\3\4\xff", 6));
  write("plain", file);
  write("packed", gzip(file));
  const auto expected = torch::tensor({0, 1, 2, 3, 4, 255}, torch::kByte).reshape({2, 3});
  EXPECT_TRUE(torch::equal(read_idx(at("plain")), expected));
  EXPECT_TRUE(torch::equal(read_idx(at("packed")), expected));
}

TEST_F(Idx, ReadsEveryTypeFromBigEndian) {
  write("i8", idx(9, {1}, "\xfe"));
  write("i16", idx(0x0b, {2}, std::string("\x01\x02\xff\xff", 4)));
  write("i32", idx(0x0c, {1}, std::string("\x00\x00\x01\x00", 4)));
  write("f32", idx(0x0d, {1}, std::string("\x3f\x80\x00\x00", 4)));
  write("f64", idx(0x0e, {1}, std::string("\x40\x00\x00\x00\x00\x00\x00\x00", 8)));
  EXPECT_TRUE(torch::equal(read_idx(at("i8")), torch::tensor({-2}, torch::kChar)));
  EXPECT_TRUE(torch::equal(read_idx(at("i16")), torch::tensor({258, -1}, torch::kShort)));
  EXPECT_TRUE(torch::equal(read_idx(at("i32")), torch::tensor({256}, torch::kInt)));
  EXPECT_TRUE(torch::equal(read_idx(at("f32")), torch::tensor({1.0f})));
  EXPECT_TRUE(torch::equal(read_idx(at("f64")), torch::tensor({2.0}, torch::kDouble)));
}

TEST_F(Idx, EveryTruncationIsRefused) {
  const std::string file = idx(8, {3, 4}, "abcdefghijkl");
  const std::string packed = gzip(file);
  for (const std::string& whole : {file, packed}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      write("a", whole.substr(0, size));
      EXPECT_THROW(read_idx(at("a")), ulp::FileError) << size << " of " << whole.size();
    }
  }
}

TEST_F(Idx, DamagedCompressedFilesAreRefused) {
  std::string noise(3000, '\0');
  std::mt19937 random(3);
  for (char& c : noise) c = static_cast<char>(random());
  const std::string whole = gzip(idx(8, {30, 100}, noise));
  // Behind gzip's own header and the first byte of the block, whose upper bits are padding.
  for (size_t at_byte = 11; at_byte < whole.size(); at_byte += 7) {
    std::string damaged = whole;
    damaged[at_byte] = static_cast<char>(damaged[at_byte] ^ 0x10);
    write("a", damaged);
    EXPECT_THROW(read_idx(at("a")), ulp::FileError) << "byte " << at_byte;
  }
}

TEST_F(Idx, RefusesOtherFiles) {
  expect_file_error("No such file", [&] { read_idx(at("none")); });
  expect_file_error("expected a file", [&] { read_idx(folder_); });
  write("text", "hello, world");
  expect_file_error("not an IDX file", [&] { read_idx(at("text")); });
  write("type", idx(7, {1}, "a"));
  expect_file_error("unknown type code 7", [&] { read_idx(at("type")); });
  write("no_dimensions", idx(8, {}, "a"));
  expect_file_error("not an IDX file", [&] { read_idx(at("no_dimensions")); });
  write("long", idx(8, {2}, "abc"));
  expect_file_error("more bytes", [&] { read_idx(at("long")); });
}

TEST_F(Idx, HeadersThatPromiseTooMuchAllocateNothing) {
  const std::vector<uint32_t> huge = {0xffffffff, 0xffffffff, 0xffffffff};
  write("plain", idx(8, huge, "abc"));
  write("packed", gzip(idx(8, huge, "abc")));
  write("one", idx(0x0e, {0x7fffffff}, "abc"));
  for (const char* name : {"plain", "packed", "one"}) {
    expect_file_error("promises more", [&] { read_idx(at(name)); });
  }
}

TEST_F(Idx, ImagesAndLabelsMustFitTogether) {
  write("images", idx(8, {2, 1, 2}, "abcd"));
  write("labels", idx(8, {2}, std::string("\1\2", 2)));
  write("three", idx(8, {3}, std::string("\1\2\1", 3)));
  const auto data = ulp::io::load_idx(at("images"), at("labels"), 3);
  EXPECT_EQ(data.images.sizes(), (std::vector<int64_t>{2, 1, 1, 2}));
  EXPECT_TRUE(torch::equal(data.labels, torch::tensor({1, 2}, torch::kLong)));
  expect_file_error("as many labels", [&] { ulp::io::load_idx(at("images"), at("three")); });
  expect_file_error("labels below 2, got 2 for image 1",
                    [&] { ulp::io::load_idx(at("images"), at("labels"), 2); });
  expect_file_error("(N, H, W)", [&] { ulp::io::load_idx(at("labels"), at("labels")); });
  expect_file_error("(N)", [&] { ulp::io::load_idx(at("images"), at("images")); });
}

class FashionMnist : public TempFolder {
 protected:
  void TearDown() override {
    ::unsetenv("ULP_DATA_DIR");
    TempFolder::TearDown();
  }
};

TEST_F(FashionMnist, AGivenFolderComesFirst) {
  ::setenv("ULP_DATA_DIR", folder_.c_str(), 1);
  write("t10k-images-idx3-ubyte", idx(8, {1, 28, 28}, std::string(784, '\x01')));
  write("t10k-labels-idx1-ubyte.gz", gzip(idx(8, {1}, "\x09")));
  const auto data = ulp::io::load_fashion_mnist(ulp::io::Split::test);
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.class_names[9], "Ankle boot");
  EXPECT_EQ(ulp::io::fashion_mnist_folders().front(), folder_);
}

TEST_F(FashionMnist, AnUnpackedPackageIsFound) {
  ::setenv("ULP_DATA_DIR", folder_.c_str(), 1);
  const auto folders = ulp::io::fashion_mnist_folders();
  EXPECT_EQ(folders[2], folder_ / "usr/share/datasets/fashion-mnist");
}

TEST_F(FashionMnist, TheRealDataSetHasItsKnownFigures) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "apt-get install dataset-fashion-mnist";
  }
  const auto test = ulp::io::load_fashion_mnist(ulp::io::Split::test);
  EXPECT_EQ(test.images.sizes(), (std::vector<int64_t>{10000, 1, 28, 28}));
  EXPECT_TRUE(torch::equal(torch::bincount(test.labels), torch::full({10}, 1000, torch::kLong)));
  const auto train = ulp::io::load_fashion_mnist(ulp::io::Split::train);
  EXPECT_EQ(train.size(), 60000);
  const auto scaled = train.images.to(torch::kDouble) / 255.0;
  EXPECT_NEAR(scaled.mean().item<double>(), train.mean[0], 1e-9);
  EXPECT_NEAR(scaled.std(/*unbiased=*/false).item<double>(), train.std[0], 1e-9);
}

TEST(Dataset, SlicesShareMemoryAndCheckTheirRange) {
  ulp::io::ImageDataset data;
  data.images = torch::arange(24, torch::kByte).reshape({6, 1, 2, 2});
  data.labels = torch::arange(6, torch::kLong);
  const auto part = ulp::io::slice(data, 2, 4);
  EXPECT_EQ(part.size(), 2);
  EXPECT_EQ(part.labels[0].item<int64_t>(), 2);
  EXPECT_EQ(part.images.data_ptr<uint8_t>(), data.images.data_ptr<uint8_t>() + 8);
  EXPECT_THROW(ulp::io::slice(data, 4, 7), ulp::Error);
  EXPECT_THROW(ulp::io::slice(data, 3, 3), ulp::Error);
}

}  // namespace
