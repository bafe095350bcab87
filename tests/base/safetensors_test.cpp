#include "ulp/base/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "ulp/base/error.h"

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ulp_safetensors_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "a.safetensors";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_raw(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  /// Writes a file of this header and data, with the right length field.
  void write_file(const std::string& header, const std::string& data = "") {
    std::string length(8, '\0');
    const uint64_t size = header.size();
    std::memcpy(length.data(), &size, 8);
    write_raw(length + header + data);
  }
  std::string read_raw() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
  /// Expects a FileError that holds `what` and the file's name.
  void expect_refused(const std::string& what) {
    try {
      ulp::SafetensorsFile file(path_);
      ADD_FAILURE() << "accepted; expected a refusal with: " << what;
    } catch (const ulp::FileError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("a.safetensors"), std::string::npos) << error.what();
    }
  }
  void write_sample() const {
    const std::string floats(24, 'f'), halves(6, 'h'), none, byte(1, 'b');
    const std::vector<ulp::TensorEntry> tensors = {
        {"layer.weight", "F32", {2, 3}, bytes_of(floats)},
        {"empty", "F32", {0, 4}, bytes_of(none)},
        {"half \"quoted\" \xC3\xA9", "BF16", {3}, bytes_of(halves)},
        {"scalar", "U8", {}, bytes_of(byte)}};
    ulp::write_safetensors(path_, tensors, {{"format", "pt"}, {"note", "line\nbreak"}});
  }

  fs::path folder_, path_;
};

TEST_F(Safetensors, ReadsWhatItWrote) {
  write_sample();
  const ulp::SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 4u);
  const std::vector<std::string> order = {"layer.weight", "empty", "half \"quoted\" \xC3\xA9", "scalar"};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(file.tensors()[i].name, order[i]);
  const ulp::TensorEntry* weight = file.find("layer.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, "F32");
  EXPECT_EQ(weight->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(weight->bytes.size(), 24u);
  EXPECT_EQ(std::to_integer<char>(weight->bytes[23]), 'f');
  EXPECT_EQ(reinterpret_cast<uintptr_t>(weight->bytes.data()) % 64, 0u);
  EXPECT_EQ(file.find("empty")->bytes.size(), 0u);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(file.metadata().at("note"), "line\nbreak");
}

TEST_F(Safetensors, AFileWithoutTensorsIsValid) {
  ulp::write_safetensors(path_, {}, {});
  EXPECT_TRUE(ulp::SafetensorsFile(path_).tensors().empty());
}

TEST_F(Safetensors, EntriesComeInTheOrderOfTheirBytes) {
  write_file(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"shape":[1],"dtype":"I8","data_offsets":[0,1]}}   )",
      "xyz");
  const ulp::SafetensorsFile file(path_);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "b");
}

TEST_F(Safetensors, ReadsAFileOfTheReferenceImplementation) {
  const ulp::SafetensorsFile file(ULP_SOURCE_DIR "/tests/golden/reference.safetensors");
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.metadata().at("made_by"), "reference");
  ASSERT_EQ(file.find("weight")->shape, (std::vector<int64_t>{2, 3}));
  float last = 0;
  std::memcpy(&last, file.find("weight")->bytes.data() + 20, 4);
  EXPECT_EQ(last, 5.0f);
  int64_t step = 0;
  std::memcpy(&step, file.find("steps")->bytes.data() + 8, 8);
  EXPECT_EQ(step, -2);
  EXPECT_EQ(file.find("half")->dtype, "F16");
  EXPECT_EQ(std::to_integer<int>(file.find("scalar")->bytes[0]), 7);
  EXPECT_EQ(file.find("none")->shape, (std::vector<int64_t>{0, 3}));
}

TEST_F(Safetensors, MovedFromStateFollowsTheObject) {
  write_sample();
  ulp::SafetensorsFile first(path_);
  const ulp::SafetensorsFile second = std::move(first);
  EXPECT_EQ(std::to_integer<char>(second.find("scalar")->bytes[0]), 'b');
}

TEST_F(Safetensors, SizesOfDtypes) {
  EXPECT_EQ(ulp::safetensors_element_size("F64"), 8u);
  EXPECT_EQ(ulp::safetensors_element_size("F8_E4M3"), 1u);
  EXPECT_EQ(ulp::safetensors_element_size("F4"), 0u);
  EXPECT_EQ(ulp::safetensors_element_size("f32"), 0u);
  write_file(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", "xyz");
  EXPECT_EQ(ulp::SafetensorsFile(path_).find("a")->bytes.size(), 3u);
  write_file(R"({"a":{"dtype":"F4","shape":[5],"data_offsets":[0,3]}})", "xyz");
  expect_refused("whole byte");
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  expect_refused("No such file");
  fs::create_directory(path_);
  expect_refused("not one");
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused("not one");
}

TEST_F(Safetensors, RefusesBadLengths) {
  write_raw("");
  expect_refused("at least 8 bytes");
  write_raw("1234567");
  expect_refused("at least 8 bytes");
  write_raw(std::string("\x02\0\0\0\0\0\0\0", 8));
  expect_refused("truncated");
  write_raw(std::string(8, '\xff') + "{}");
  expect_refused("limit");
  write_raw(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}");  // 100,000,001
  expect_refused("limit");
  write_raw(std::string(8, '\0') + "{}");
  expect_refused("start with '{'");
}

TEST_F(Safetensors, RefusesBadJson) {
  struct Case {
    const char* header;
    const char* reason;
  };
  const Case cases[] = {
      {"[]", "start with '{'"},
      {" {}", "start with '{'"},
      {"{", "valid JSON"},
      {"{} {}", "valid JSON"},
      {"{\"a\xff\":1}", "valid JSON"},
      {R"({"a":1})", "not an object"},
      {R"({"a":[]})", "not an object"},
      {R"({"a":null})", "not an object"},
      {R"({"a":{}})", "no dtype"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", "no shape"},
      {R"({"a":{"dtype":"U8","shape":[0]}})", "no data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})", "two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})", "two data_offsets"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "repeated"},
      {R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", "repeated"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":{}}})", "unexpected"},
      {R"({"a":{"dtype":"U8","shape":[0.5],"data_offsets":[0,0]}})", "64-bit integer"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", "negative"},
      {R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})", "an array"},
      {R"({"a":{"dtype":"X9","shape":[0],"data_offsets":[0,0]}})", "unknown dtype"},
      {R"({"a":{"dtype":7,"shape":[0],"data_offsets":[0,0]}})", "a number"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       "duplicate name 'a'"},
      {R"({"__metadata__":{"a":1}})", "not a string"},
      {R"({"__metadata__":{"a":{}}})", "not a string"},
      {R"({"__metadata__":"a"})", "not an object"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", "duplicate metadata key"},
      {R"({"__metadata__":{},"__metadata__":{}})", "duplicate name"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.header);
    write_file(one.header);
    expect_refused(one.reason);
  }
  write_file(std::string("{}\0garbage", 10));
  expect_refused("zero byte");
}

TEST_F(Safetensors, RefusesDeepNesting) {
  write_file(std::string("{\"a\":").append(5'000'000, '['));
  expect_refused("not an object");
  write_file(std::string("{\"a\":{\"shape\":").append(5'000'000, '['));
  expect_refused("an array");
}

TEST_F(Safetensors, RefusesMoreNamesThanMemoryShouldHold) {
  std::string header = R"({"__metadata__":{"a":"")";
  for (int i = 0; i < (1 << 19); ++i) header += ",\"" + std::to_string(i) + "\":\"\"";
  write_file(header + "}}");
  expect_refused("more than 524288");
}

TEST_F(Safetensors, RefusesBadOffsets) {
  struct Case {
    const char* tensors;
    const char* reason;
  };
  const Case cases[] = {
      {R"("a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]})", "outside"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]})", "outside"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]})",
       "outside"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]})", "64-bit integer"},
      {R"("a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]})", "hole of 1"},
      {R"("a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]})", "belong to no tensor"},
      {R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "need 4"},
      {R"("a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})",
       "overlaps"},
      {R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})",
       "overlaps"},
      {R"("a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8]})", "overflows"},
      {R"("a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]})", "overflows"},
      {R"("a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", "overflows"},
      {R"("a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]})", "63 bits"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.tensors);
    write_file(std::string("{").append(one.tensors).append("}"), "12345678");
    expect_refused(one.reason);
  }
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  write_sample();
  const std::string whole = read_raw();
  for (size_t size = 0; size < whole.size(); ++size) {
    write_raw(whole.substr(0, size));
    EXPECT_THROW(ulp::SafetensorsFile file(path_), ulp::FileError) << "at " << size << " bytes";
  }
  write_raw(whole + "x");
  expect_refused("belong to no tensor");
}

TEST_F(Safetensors, DamagedBytesNeverCrash) {
  write_sample();
  const std::string whole = read_raw();
  const size_t header_end = whole.size() - 31;
  std::mt19937 random(7);
  int refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string damaged = whole;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      damaged[random() % header_end] = static_cast<char>(random());
    }
    write_raw(damaged);
    try {
      const ulp::SafetensorsFile file(path_);
      size_t total = 0, sum = 0;
      for (const auto& tensor : file.tensors()) {
        total += tensor.bytes.size();
        for (std::byte byte : tensor.bytes) sum += std::to_integer<size_t>(byte);
      }
      EXPECT_EQ(total, 31u) << "trial " << trial;
      EXPECT_GT(sum, 0u);
    } catch (const ulp::FileError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(Safetensors, WritingRefusesWhatTheFormatDoesNotAllow) {
  const std::string four(4, 'x');
  const auto write = [&](std::vector<ulp::TensorEntry> tensors) {
    ulp::write_safetensors(path_, tensors, {});
  };
  EXPECT_THROW(write({{"a", "F32", {1}, bytes_of(four)}, {"a", "F32", {1}, bytes_of(four)}}), ulp::Error);
  EXPECT_THROW(write({{"__metadata__", "F32", {1}, bytes_of(four)}}), ulp::Error);
  EXPECT_THROW(write({{"a", "float", {1}, bytes_of(four)}}), ulp::Error);
  EXPECT_THROW(write({{"a", "F32", {2}, bytes_of(four)}}), ulp::Error);
  EXPECT_THROW(write({{"a", "F32", {-1}, bytes_of(four)}}), ulp::Error);
  EXPECT_THROW(write({{"bad\xff", "F32", {1}, bytes_of(four)}}), ulp::Error);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Safetensors, AFailedWriteLeavesTheOldFile) {
  write_sample();
  const std::string before = read_raw();
  const std::string four(4, 'x');
  const std::vector<ulp::TensorEntry> bad = {{"a", "F32", {9}, bytes_of(four)}};
  EXPECT_THROW(ulp::write_safetensors(path_, bad, {}), ulp::Error);
  EXPECT_EQ(read_raw(), before);
}

}  // namespace
