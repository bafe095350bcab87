#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "error_of.h"
#include "storage_tensors.h"
#include "ulp/prune/storage/element_type.h"
#include "ulp/prune/storage/encoded_tensor.h"
#include "ulp/prune/storage/encoded_tensor_parts.h"

namespace ulp::prune {
namespace {

using test::same_bits;

constexpr uint64_t kRoom = uint64_t{1} << 30;

/// Encodes, decodes, compares bits and accounts; gives the account.
TensorAccount round_trip(const at::Tensor& tensor, const CodeOptions& options = {}) {
  const EncodedTensor coded = encode_tensor(tensor, options);
  const DecodedTensor decoded = decode_tensor(coded.bytes, kRoom);
  EXPECT_TRUE(same_bits(tensor, decoded.tensor)) << coded.account.positions << ", " << coded.account.values;
  EXPECT_EQ(coded.account, decoded.account);
  EXPECT_EQ(read_account(coded.bytes), coded.account);
  EXPECT_EQ(coded.account.bytes.total(), static_cast<int64_t>(coded.bytes.size()));
  return coded.account;
}

TEST(StorageTensor, EveryFormOfPositionsComesBack) {
  for (const double density : {0.0, 0.01, 0.08, 0.3, 0.7, 1.0}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{40, 33}, {7}, {5, 4, 3, 3}, {1}}) {
      const at::Tensor tensor = test::sparse_normal(shape, density, 7);
      round_trip(tensor);
      for (const EntropyCoder coder : {EntropyCoder::none, EntropyCoder::huffman, EntropyCoder::smallest}) {
        for (const Positions positions : {Positions::dense, Positions::bitmask, Positions::csr})
          round_trip(tensor, {coder, positions});
        for (int bits = kFewestGapBits; bits <= kMostGapBits; ++bits) {
          const TensorAccount account = round_trip(tensor, {coder, Positions::gaps, bits});
          EXPECT_EQ(account.positions, "gaps of " + std::to_string(bits) + " bits");
        }
      }
    }
  }
}

TEST(StorageTensor, SmallPrunedTensorsComeBack) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{12, 10}, {15}, {5, 3, 8}}) {
    for (const double density : {1.0, 0.9, 0.8, 0.5}) {
      for (uint64_t seed = 1; seed <= 50; ++seed) round_trip(test::sparse_normal(shape, density, seed) * 0.1);
    }
  }
}

TEST(StorageTensor, BytesAreThoseOfTheDefinition) {
  const at::Tensor tensor = test::sparse_shared({100, 100}, 0.1, 16, 1);
  const auto stored = tensor.count_nonzero().item<int64_t>();
  const auto entries = static_cast<int64_t>(std::get<0>(at::_unique(tensor)).numel()) - 1;
  ASSERT_GT(entries, 8);
  ASSERT_LE(entries, 16);
  const TensorAccount mask = round_trip(tensor, {EntropyCoder::none, Positions::bitmask});
  EXPECT_EQ(mask.stored, stored);
  EXPECT_EQ(mask.bytes.positions, 1 + 10000 / 8);
  EXPECT_EQ(mask.bytes.values, 1 + (stored * 4 + 7) / 8);
  EXPECT_EQ(mask.bytes.codebook, 1 + entries * 4);
  EXPECT_EQ(mask.values, std::to_string(entries) + " numbers F32 in 4 bits");
  const TensorAccount csr = round_trip(tensor, {EntropyCoder::none, Positions::csr});
  EXPECT_EQ(csr.bytes.positions, 4 + 100 * 4 + 2 + stored * 2);
  // One code an element, and one filler for each whole run of 31 zeros before an element.
  int64_t codes = 0, zeros = 0;
  const at::Tensor flat = tensor.flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (flat[i].item<float>() == 0) {
      ++zeros;
    } else {
      codes += zeros / 31 + 1;
      zeros = 0;
    }
  }
  const TensorAccount gaps = round_trip(tensor, {EntropyCoder::none, Positions::gaps, 5});
  EXPECT_EQ(gaps.bytes.positions, 2 + 1 + (codes * 5 + 7) / 8);  // the count of codes takes two bytes
}

TEST(StorageTensor, TheSmallestFormIsTaken) {
  const auto positions_at = [](double density) {
    return round_trip(test::sparse_normal({500, 300}, density, 3), {EntropyCoder::none}).positions;
  };
  EXPECT_EQ(positions_at(1.0), "dense");
  EXPECT_EQ(positions_at(0.5), "bitmask");
  EXPECT_EQ(positions_at(0.08), "gaps of 5 bits");
  EXPECT_EQ(positions_at(0.01), "gaps of 8 bits");
  const at::Tensor wide = test::sparse_normal({4, 60000}, 0.0005, 3);  // rows are few, gaps are long
  EXPECT_EQ(round_trip(wide, {EntropyCoder::none}).positions, "csr");
  for (const double density : {0.003, 0.05, 0.2, 0.6}) {
    const at::Tensor tensor = test::sparse_shared({60, 50}, density, 32, 4);
    const int64_t best = round_trip(tensor).bytes.total();
    for (const Positions positions :
         {Positions::dense, Positions::bitmask, Positions::gaps, Positions::csr}) {
      EXPECT_LE(best, round_trip(tensor, {EntropyCoder::smallest, positions}).bytes.total());
    }
  }
}

TEST(StorageTensor, EntropyCodersOnlyEverMakeSmaller) {
  const at::Tensor tensor = test::sparse_shared({300, 200}, 0.08, 64, 5);
  const int64_t none = round_trip(tensor, {EntropyCoder::none}).bytes.total();
  const int64_t huffman = round_trip(tensor, {EntropyCoder::huffman}).bytes.total();
  const int64_t smallest = round_trip(tensor, {EntropyCoder::smallest}).bytes.total();
  EXPECT_LT(huffman, none);
  EXPECT_LE(smallest, huffman);
  // Whole rows of zeros: a pattern that deflate sees.
  at::Tensor rows = torch::ones({256, 256});
  rows.index_put_({torch::arange(0, 256, 2)}, torch::zeros({}));
  EXPECT_LT(round_trip(rows).bytes.total(), 200);
}

TEST(StorageTensor, SpecialNumbersKeepTheirBits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor tensor =
      torch::tensor({0.0F, -0.0F, inf, -inf, nan, -nan, 1e-45F, -1e-45F, 3.4e38F, 0.0F, 0.0F, 1.0F});
  EXPECT_EQ(round_trip(tensor, {EntropyCoder::smallest, Positions::bitmask}).stored, 9);
  for (const auto type : {at::kHalf, at::kBFloat16, at::kDouble}) round_trip(tensor.to(type));
  // Every bit pattern of 16 bits, as both of its types, and widened.
  const at::Tensor codes = torch::arange(65536).to(at::kUInt16);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor all = codes.view(type);
    round_trip(all);
    round_trip(all.to(at::kFloat));
  }
  // NaN with a payload.
  round_trip(torch::tensor({0x7fc12345, 0, 0x7f800001, -1}, at::kInt).view(at::kFloat));
}

TEST(StorageTensor, NumbersThatSixteenBitsHoldTakeSixteen) {
  const at::Tensor values = test::sparse_normal({64, 64}, 0.5, 8);
  const CodeOptions plain = {EntropyCoder::none, Positions::bitmask};
  EXPECT_EQ(round_trip(values, plain).values, "F32");
  const TensorAccount bf16 = round_trip(values.to(at::kBFloat16).to(at::kFloat), plain);
  EXPECT_EQ(bf16.values, "BF16");
  EXPECT_EQ(bf16.bytes.values, 2 + 2 * bf16.stored);
  EXPECT_EQ(round_trip(values.to(at::kHalf).to(at::kFloat), plain).values, "F16");
  EXPECT_EQ(round_trip(values.to(at::kHalf), plain).values, "F16");
}

TEST(StorageTensor, EveryDtypeComesBack) {
  const at::Tensor numbers = (test::sparse_normal({30, 20}, 0.2, 9) * 40).round();
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kShort,
                          at::kInt, at::kLong, at::kBool, at::kUInt16, at::kUInt32, at::kFloat8_e4m3fn,
                          at::kFloat8_e5m2, at::kComplexFloat}) {
    round_trip(numbers.abs().to(at::kByte).to(at::kLong).to(type));
  }
  round_trip(torch::tensor(5));                     // no dimension
  round_trip(torch::zeros({0, 3}));                 // no element
  round_trip(torch::empty({int64_t{1} << 40, 0}));  // a size without elements
  round_trip(numbers.t());                          // strides
  round_trip(torch::ones({1}).expand({50, 50}));    // memory of one element
  round_trip(numbers.to(at::kFloat).requires_grad_());
  EXPECT_EQ(round_trip(torch::zeros({1000, 1000})).bytes.values, 1);  // no element to store
}

TEST(StorageTensor, ACodebookHasUpTo256Entries) {
  const auto values_of = [](int64_t count) {
    return round_trip(torch::arange(count).repeat(30).to(at::kFloat) * 0.1 + 1.03, {EntropyCoder::none})
        .values;
  };
  EXPECT_EQ(values_of(1), "1 numbers F32 in 0 bits");
  EXPECT_EQ(values_of(2), "2 numbers F32 in 1 bits");
  EXPECT_EQ(values_of(256), "256 numbers F32 in 8 bits");
  EXPECT_EQ(values_of(257), "F32");
}

TEST(StorageTensor, WhatCannotBeStoredIsRefused) {
  EXPECT_ERROR(encode_tensor(at::Tensor()), "expected a tensor, got none");
  EXPECT_ERROR(encode_tensor(torch::zeros({2}, at::kComplexDouble)),
               "expected a dtype that safetensors files have");
  EXPECT_ERROR(encode_tensor(torch::eye(3).to_sparse()), "expected a dense tensor");
  EXPECT_ERROR(encode_tensor(torch::ones({2}), {.gap_bits = 9}), "expected gap_bits in [2, 8], got 9");
  EXPECT_ERROR(encode_tensor(torch::ones({1, 65537}), {.positions = Positions::csr}),
               "at most 65536 elements");
  EXPECT_EQ(round_trip(torch::ones({2, 65536}), {.positions = Positions::csr}).positions, "csr");
}

/// Small tensors whose bytes have every form.
std::vector<Bytes> specimens() {
  const at::Tensor free = test::sparse_normal({9, 10}, 0.4, 10),
                   shared = test::sparse_shared({20, 30}, 0.1, 5, 11);
  std::vector<Bytes> made;
  for (const at::Tensor& tensor : {free, shared, free.to(at::kHalf).to(at::kFloat), shared.to(at::kBool)}) {
    for (const EntropyCoder coder : {EntropyCoder::none, EntropyCoder::huffman, EntropyCoder::smallest}) {
      for (const Positions positions :
           {Positions::dense, Positions::bitmask, Positions::gaps, Positions::csr})
        made.push_back(encode_tensor(tensor, {coder, positions}).bytes);
    }
  }
  return made;
}

TEST(StorageTensor, EveryTruncationIsRefused) {
  for (const Bytes& bytes : specimens()) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      const auto part = std::span(bytes).first(size);
      EXPECT_THROW(decode_tensor(part, kRoom), FileError) << size;
      EXPECT_THROW(read_account(part), FileError) << size;
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THROW(decode_tensor(longer, kRoom), FileError);
    EXPECT_ERROR(read_account(longer), "1 bytes are left at the end");
  }
}

TEST(StorageTensor, ChangedBytesAreRefusedOrAnotherTensor) {
  constexpr uint64_t kLittle = 1 << 20;
  std::mt19937 random(12);
  int refused = 0, read = 0;
  for (const Bytes& bytes : specimens()) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const int value : {0, 255, static_cast<int>(random() % 256)}) {
        Bytes changed = bytes;
        changed[at] = static_cast<std::byte>(value);
        try {
          const DecodedTensor decoded = decode_tensor(changed, kLittle);
          EXPECT_LE(decoded.tensor.nbytes(), kLittle);
          EXPECT_EQ(decoded.account.bytes.total(), static_cast<int64_t>(bytes.size()));
          EXPECT_EQ(read_account(changed), decoded.account);
          ++read;
        } catch (const FileError&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 1000);
}

Bytes bytes_of(const std::vector<int>& values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(StorageTensor, HostileHeadersAreRefused) {
  const auto refusal = [](const std::vector<int>& values) {
    return test::error_of([&] { decode_tensor(bytes_of(values), 1000); });
  };
  constexpr int kF32 = 6;
  EXPECT_SAYS(refusal({}), "expected 1 more bytes");
  EXPECT_SAYS(refusal({200}), "unknown dtype 200");
  EXPECT_SAYS(refusal({10, 0, 0}), "unknown dtype 10");  // complex of 128 bits
  EXPECT_SAYS(refusal({kF32, 65}), "65 dimensions");
  EXPECT_SAYS(refusal({kF32, 1, 251, 1}), "at most 1000 bytes, got 1004");
  EXPECT_SAYS(refusal({kF32, 2, 255, 255, 255, 255, 255, 127, 255, 255, 255, 255, 127}), "overflows");
  EXPECT_SAYS(refusal({kF32, 3, 0, 255, 255, 255, 255, 255, 127, 255, 255, 255, 255, 127}), "overflows");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00100000}), "unknown forms");  // bits of gaps without gaps
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00011000}), "unknown forms");  // the fourth kind of numbers
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00000010}), "unknown forms");  // gaps of one bit
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00000001, 5}), "at most 4 stored elements, got 5");
  EXPECT_SAYS(refusal({kF32, 1, 0, 0b00000001, 0}), "positions of no elements");
  EXPECT_SAYS(refusal({0, 1, 4, 0b00001000}), "only F32");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00000001, 2, 0, 0b11100000}), "expected 2 positions, got 3");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00000001, 2, 0, 0b11000001}), "bits past the last element");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00100010, 2, 5}), "at most 4 gaps, got 5");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00100010, 2, 2, 0, 0b10110000}), "past the last element");
  EXPECT_SAYS(refusal({kF32, 1, 4, 0b00100010, 1, 3, 0, 0b00111100}), "past the last element");
  // csr of [1, 4]: the row ends at 2, but the columns are 1, 1; then 1, 4; then the row ends at 3.
  const auto csr = [&](int end, int first, int second) {
    return refusal({kF32, 2, 1, 4, 3, 2, 0, end, 0, 0, 0, 0, 0, 0, 0, first, second, 0, 0, 0});
  };
  EXPECT_SAYS(csr(2, 1, 1), "columns of a row do not rise");
  EXPECT_SAYS(csr(2, 1, 4), "columns of a row do not rise");
  EXPECT_SAYS(csr(3, 1, 2), "ends of rows");
  // A codebook of two entries and codes of one bit is fine; of three entries, the code 3 is not.
  EXPECT_SAYS(refusal({0, 1, 4, 0b00000100, 2, 7, 8, 9, 0, 0b11000000}), "codes below 3, got 3");
  EXPECT_SAYS(refusal({11, 1, 1, 0, 0, 2}), "other values than 0 and 1");
}

TEST(StorageTensor, FewBytesForManyZerosNeedRoom) {
  const EncodedTensor coded = encode_tensor(torch::zeros({1000, 1000}));
  EXPECT_LT(coded.bytes.size(), 20U);
  EXPECT_NO_THROW(decode_tensor(coded.bytes, 4000000));
  EXPECT_ERROR(decode_tensor(coded.bytes, 3999999),
               "expected a tensor of at most 3999999 bytes, got 4000000");
  EXPECT_EQ(read_account(coded.bytes).dense_bytes, 4000000);
}

}  // namespace
}  // namespace ulp::prune
