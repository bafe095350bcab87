// NumPy's files: what NumPy itself wrote, and what it never would.
#include "ulp/io/npy.h"

#include <torch/torch.h>
#include <zip.h>

#include "temp_folder.h"
#include "ulp/io/unpacked_bytes.h"

namespace {

using ulp::io::load_npy;
using ulp::io::load_npz;

const std::filesystem::path kGolden = ULP_SOURCE_DIR "/tests/golden/numpy";

at::Tensor zero_to_23(at::ScalarType type) {
  return torch::arange(24).reshape({2, 3, 4}).to(type);
}

TEST(Npz, ReadsWhatNumpyWrites) {
  const auto arrays = load_npz(kGolden / "arrays.npz");
  ASSERT_EQ(arrays.size(), 13u);
  const std::map<std::string, at::ScalarType> whole = {
      {"u1", at::kByte}, {"i1", at::kChar}, {"i2", at::kShort}, {"i4", at::kInt}, {"i8", at::kLong}};
  for (const auto& [name, type] : whole) {
    EXPECT_EQ(arrays.at(name).scalar_type(), type);
    EXPECT_TRUE(torch::equal(arrays.at(name), zero_to_23(type))) << name;
  }
  const auto eighths = torch::arange(24).reshape({4, 6}).to(at::kDouble) / 8 - 1;
  for (const auto& [name, type] :
       std::map<std::string, at::ScalarType>{{"f2", at::kHalf}, {"f4", at::kFloat}, {"f8", at::kDouble}}) {
    EXPECT_EQ(arrays.at(name).scalar_type(), type);
    EXPECT_TRUE(torch::equal(arrays.at(name), eighths.to(type))) << name;
  }
  EXPECT_TRUE(torch::equal(arrays.at("b1"), torch::arange(24).remainder(3).eq(0)));
  EXPECT_TRUE(torch::equal(arrays.at("scalar"), torch::tensor(2.5f)));
  EXPECT_EQ(arrays.at("empty").sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(torch::equal(arrays.at("one"), torch::tensor({int64_t{7}})));
  EXPECT_TRUE(torch::equal(arrays.at("fortran"), zero_to_23(at::kFloat)));
}

TEST(Npz, ReadsStoredArchivesAndFortranOrder) {
  const auto stored = load_npz(kGolden / "stored.npz");
  EXPECT_TRUE(torch::equal(stored.at("x_train"), zero_to_23(at::kByte)));
  EXPECT_TRUE(torch::equal(stored.at("y_train"), zero_to_23(at::kLong)));
  const auto fortran = load_npy(kGolden / "fortran.npy");
  EXPECT_TRUE(fortran.is_contiguous());
  EXPECT_TRUE(torch::equal(fortran, zero_to_23(at::kFloat)));
}

/// A file of version 1 with this header and these values.
std::string npy(const std::string& header, const std::string& values, int version = 1) {
  std::string file = "\x93NUMPY";
  file += {static_cast<char>(version), '\0', static_cast<char>(header.size() & 255),
           static_cast<char>(header.size() >> 8)};
  if (version > 1) file += std::string(2, '\0');
  return file + header + values;
}

std::string dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }   \n";
}

class Npy : public TempFolder {
 protected:
  void refuse(const std::string& file, const std::string& what) {
    write("bad.npy", file);
    expect_file_error(what, [&] { load_npy(at("bad.npy")); });
    expect_file_error("bad.npy", [&] { load_npy(at("bad.npy")); });
  }
};

TEST_F(Npy, ReadsEveryVersionAndWaysOfWritingTheHeader) {
  const auto expected = torch::tensor({{1, 2}}, torch::kByte);
  for (int version : {1, 2, 3}) {
    write("v.npy", npy(dictionary("|u1", "(1, 2)"), "\1\2", version));
    EXPECT_TRUE(torch::equal(load_npy(at("v.npy")), expected)) << version;
  }
  write("terse.npy", npy("{\"shape\":(1,2),\"fortran_order\":False,\"descr\":\"<u1\"}", "\1\2"));
  EXPECT_TRUE(torch::equal(load_npy(at("terse.npy")), expected));
}

TEST_F(Npy, RefusesWhatIsNoArray) {
  refuse("", "too short");
  refuse("\x93NUMP", "too short");
  refuse("PK\3\4 a zip archive", "not an array");
  refuse(npy(dictionary("<f4", "(1,)"), "1234", 4), "version");
  refuse(std::string("\x93NUMPY\1\0\xff", 9), "ends early");
  expect_file_error("nowhere", [&] { load_npy(at("nowhere")); });
  expect_file_error("expected a file", [&] { load_npy(folder_); });
}

TEST_F(Npy, RefusesEveryTruncation) {
  const std::string whole = npy(dictionary("<f4", "(2, 3)"), std::string(24, 'x'));
  write("whole.npy", whole);
  EXPECT_EQ(load_npy(at("whole.npy")).numel(), 6);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write("cut.npy", whole.substr(0, bytes));
    EXPECT_THROW(load_npy(at("cut.npy")), ulp::FileError) << bytes << " bytes of " << whole.size();
  }
  refuse(whole + "x", "1 bytes more");
}

TEST_F(Npy, RefusesHeadersOfImmenseOrFalseSizes) {
  refuse(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13), "claims 4294967295 bytes");
  refuse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}" + std::string(65000, ' '), "1234", 1)
             .substr(0, 30000),
         "claims");
  refuse(npy(dictionary("<f8", "(1152921504606846976, 16)"), ""), "promises more");
  refuse(npy(dictionary("<f8", "(0, 1152921504606846976, 16)"), ""), "promises more");
  refuse(npy(dictionary("<f4", "(99999999999999999999,)"), ""), "shape");
  refuse(npy(dictionary("<f4", "(-1,)"), "1234"), "shape");
  std::string many = "(";
  for (int i = 0; i < 33; ++i) many += "1,";
  refuse(npy(dictionary("|u1", many + ")"), "1"), "dimensions");
}

TEST_F(Npy, RefusesOtherTypesByName) {
  refuse(npy(dictionary("|O", "(1,)"), "12345678"), "objects");
  refuse(npy(dictionary("<U3", "(1,)"), std::string(12, 'x')), "<U3");
  refuse(npy(dictionary("<c8", "(1,)"), std::string(8, 'x')), "<c8");
  refuse(npy(dictionary(">f4", "(1,)"), "1234"), "little-endian");
  refuse(npy(dictionary("|f4", "(1,)"), "1234"), "|f4");
  refuse(npy(dictionary("", "(1,)"), "1"), "expected one of");
  refuse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"), "records");
  refuse(npy(dictionary("|b1", "(2,)"), "\1\2"), "neither false nor true");
}

TEST_F(Npy, RefusesDamagedHeaders) {
  for (const std::string header :
       {"", "{", "{}", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2 3)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}", "{'descr: <f4, (1,)}",
        "{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}"}) {
    refuse(npy(header, "1234"), "damaged");
  }
}

class NpzFile : public TempFolder {
 protected:
  /// An archive with one stored entry; returns its bytes.
  std::string archive(const std::string& name, const std::string& content) {
    std::filesystem::remove(at("made.npz"));
    zip_t* zip = zip_open(at("made.npz").c_str(), ZIP_CREATE, nullptr);
    zip_source_t* source = zip_source_buffer(zip, content.data(), content.size(), 0);
    const zip_int64_t index = zip_file_add(zip, name.c_str(), source, 0);
    zip_set_file_compression(zip, static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
    EXPECT_EQ(zip_close(zip), 0);
    return read("made.npz");
  }
  void refuse(const std::string& file, const std::string& what) {
    write("bad.npz", file);
    expect_file_error(what, [&] { load_npz(at("bad.npz")); });
  }
};

TEST_F(NpzFile, RefusesWhatIsNoArchiveOfArrays) {
  refuse("", "bad.npz");
  refuse("not a zip file at all", "bad.npz");
  refuse(archive("readme.txt", "hello"), "readme.txt");
  refuse(archive("x.npy", "hello"), "x.npy");
  refuse(archive("x.npy", npy(dictionary("|O", "(1,)"), "12345678")), "objects");
  refuse(archive("x.npy", npy(dictionary("<f4", "(1000000,)"), "1234")), "promises more");
  expect_file_error("nowhere", [&] { load_npz(at("nowhere")); });
  std::string compressed = archive("x.npy", "hello");
  constexpr size_t kMethod = 8,
                   kMethodInList = 10;  // behind the signatures of an entry and of its line in the list
  compressed[kMethod] = compressed[compressed.rfind("PK\1\2") + kMethodInList] = ZIP_CM_BZIP2;
  refuse(compressed, "stored or deflated, got bzip2 (method 12) for '");
}

TEST(UnpackedBytes, AreBoundedByTheFile) {
  constexpr uint64_t kRoom = uint64_t{256} << 20;
  ulp::io::check_unpacked("here", "data", 1000, 4000 + kRoom);
  expect_file_error("at most", [] { ulp::io::check_unpacked("here", "data", 1000, 4001 + kRoom); });
}

TEST_F(NpzFile, RefusesEveryTruncationAndChangedValues) {
  const std::string values(64, 'v');
  const std::string whole = archive("x.npy", npy(dictionary("|u1", "(64,)"), values));
  EXPECT_EQ(load_npz(at("made.npz")).at("x").numel(), 64);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write("cut.npz", whole.substr(0, bytes));
    EXPECT_THROW(load_npz(at("cut.npz")), ulp::FileError) << bytes << " bytes of " << whole.size();
  }
  std::string changed = whole;
  changed[changed.find(values) + 10] ^= 1;
  refuse(changed, "damaged");
}

TEST_F(NpzFile, AnyChangedByteOfTheArchiveGivesTheSameArrayOrAnError) {
  const std::string whole = archive("x.npy", npy(dictionary("<i2", "(3,)"), "aabbcc"));
  const auto expected = load_npz(at("made.npz")).at("x");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      write("changed.npz", changed);
      try {
        for (const auto& [name, array] : load_npz(at("changed.npz")))
          EXPECT_TRUE(torch::equal(array, expected));
      } catch (const ulp::FileError&) {
      }
    }
  }
}

}  // namespace
