#include <torch/torch.h>

#include "temp_folder.h"
#include "ulp/base/safetensors.h"
#include "ulp/io/safetensors.h"

namespace {

using ulp::io::NamedTensors;

class TensorFiles : public TempFolder {};

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 ||
          std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0);
}

TEST_F(TensorFiles, EveryDtypeComesBackBitForBit) {
  torch::manual_seed(1);
  const auto bytes = torch::randint(0, 256, {2, 24}, torch::kByte);
  NamedTensors tensors;
  for (auto type :
       {at::kByte, at::kChar, at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e8m0fnu, at::kFloat8_e5m2fnuz,
        at::kFloat8_e4m3fnuz, at::kShort, at::kUInt16, at::kHalf, at::kBFloat16, at::kInt, at::kUInt32,
        at::kFloat, at::kComplexFloat, at::kLong, at::kUInt64, at::kDouble}) {
    tensors.emplace_back(at::toString(type), bytes.clone().view(type));
  }
  tensors.emplace_back("bool", torch::tensor({true, false, true}));
  tensors.emplace_back("scalar", torch::tensor(2.5));
  tensors.emplace_back("empty", torch::empty({0, 3}));
  ulp::io::save_tensors(at("a"), tensors, {{"k", "v"}});
  const auto file = ulp::io::load_tensors(at("a"));
  EXPECT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_NE(file.find(name), nullptr) << name;
    EXPECT_TRUE(same(*file.find(name), tensor)) << name;
  }
  EXPECT_EQ(file.metadata, (ulp::io::Metadata{{"k", "v"}}));
}

TEST_F(TensorFiles, ViewsAndChannelsLastAreStoredInRowMajorOrder) {
  const auto base = torch::arange(24, torch::kFloat).reshape({1, 2, 3, 4});
  ulp::io::save_tensors(at("a"), {{"transposed", base.transpose(2, 3)},
                                  {"channels_last", base.contiguous(torch::MemoryFormat::ChannelsLast)},
                                  {"grad", base.clone().requires_grad_()}});
  const auto file = ulp::io::load_tensors(at("a"));
  EXPECT_TRUE(torch::equal(*file.find("transposed"), base.transpose(2, 3)));
  EXPECT_TRUE(torch::equal(*file.find("channels_last"), base));
  EXPECT_FALSE(file.find("grad")->requires_grad());
}

TEST_F(TensorFiles, EveryTensorIsAlignedForItsDtype) {
  ulp::io::save_tensors(at("a"), {{"byte", torch::zeros({3}, torch::kByte)},
                                  {"half", torch::zeros({3}, torch::kHalf)},
                                  {"double", torch::zeros({3}, torch::kDouble)}});
  const ulp::SafetensorsFile file(at("a"));
  for (const auto& entry : file.tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.bytes.data()) % ulp::safetensors_element_size(entry.dtype),
              0u);
  }
}

TEST_F(TensorFiles, OneTensorUnderTwoNamesIsStoredOnceAndComesBackAsOne) {
  const auto shared = torch::randn({100});
  ulp::io::save_tensors(at("a"), {{"x", shared}, {"y", shared}, {"part", shared.slice(0, 0, 50)}});
  EXPECT_LT(std::filesystem::file_size(at("a")), 2 * 400u + 200u);
  const auto file = ulp::io::load_tensors(at("a"));
  EXPECT_TRUE(file.find("x")->is_same(*file.find("y")));
  EXPECT_TRUE(torch::equal(*file.find("y"), shared));
  EXPECT_FALSE(file.find("part")->is_alias_of(*file.find("x")));
  EXPECT_TRUE(file.metadata.empty());
}

TEST_F(TensorFiles, BadAliasesAndValuesAreRefused) {
  const std::vector<std::byte> one(1, std::byte{1}), two(1, std::byte{2});
  const auto write_entry = [&](const char* dtype, const std::vector<std::byte>& bytes,
                               const std::string& aliases) {
    const std::vector<ulp::TensorEntry> entries = {{"a", dtype, {1}, bytes}};
    ulp::write_safetensors(at("a"), entries, {{"ulp.aliases", aliases}});
  };
  const auto load = [&] { ulp::io::load_tensors(at("a")); };
  write_entry("U8", one, R"({"b":"none"})");
  expect_file_error("not there", load);
  write_entry("U8", one, R"({"a":"a"})");
  expect_file_error("also stores", load);
  write_entry("U8", one, "[");
  expect_file_error("not readable", load);
  write_entry("U8", one, R"({"a":1})");
  expect_file_error("not readable", load);
  write_entry("BOOL", two, "{}");
  expect_file_error("boolean", load);
  const std::vector<ulp::TensorEntry> deep = {{"a", "U8", std::vector<int64_t>(100, 1), one}};
  ulp::write_safetensors(at("a"), deep, {});
  expect_file_error("100 dimensions", load);
}

TEST_F(TensorFiles, WhatCannotBeStoredIsAnErrorThatNamesIt) {
  const auto refused = [&](const torch::Tensor& tensor) {
    try {
      ulp::io::save_tensors(at("a"), {{"odd", tensor}});
      ADD_FAILURE() << "accepted";
    } catch (const ulp::Error& error) {
      EXPECT_NE(std::string(error.what()).find("'odd'"), std::string::npos) << error.what();
    }
  };
  refused(torch::Tensor());
  refused(torch::zeros({2}, torch::kComplexDouble));
  refused(torch::zeros({2, 2}).to_sparse());
  refused(torch::zeros({2}, torch::kMeta));
  const auto x = torch::ones({1});
  EXPECT_THROW(ulp::io::save_tensors(at("a"), {{"n", x}, {"n", x}}), ulp::Error);
  EXPECT_THROW(ulp::io::save_tensors(at("a"), {{"n", x}, {"n", x + 1}}), ulp::Error);
  EXPECT_FALSE(std::filesystem::exists(at("a")));
}

torch::nn::Sequential small_model(int64_t hidden = 6) {
  return torch::nn::Sequential(torch::nn::Linear(4, hidden), torch::nn::BatchNorm1d(hidden),
                               torch::nn::Linear(torch::nn::LinearOptions(hidden, 2).bias(false)));
}

TEST_F(TensorFiles, AModelComesBackWithItsBuffers) {
  torch::manual_seed(1);
  auto first = small_model(), second = small_model();
  first->forward(torch::randn({8, 4}));  // moves the running statistics
  ulp::io::save_model(at("m"), *first, {{"note", "x"}});
  EXPECT_TRUE(ulp::io::load_model(at("m"), *second).ok());
  const auto expected = ulp::io::named_state(*first), state = ulp::io::named_state(*second);
  ASSERT_EQ(state.size(), expected.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, expected[i].first);
    EXPECT_TRUE(same(state[i].second, expected[i].second)) << state[i].first;
  }
  EXPECT_EQ(second->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 1);
  EXPECT_EQ(ulp::io::load_metadata(at("m")).at("note"), "x");
}

TEST_F(TensorFiles, DifferencesAreReportedByNameAndNothingIsChanged) {
  auto model = small_model(6), other = small_model(5);
  NamedTensors state = ulp::io::named_state(*other);
  state.erase(state.begin() + 1);  // 0.bias
  state.emplace_back("extra", torch::zeros({1}));
  ulp::io::save_tensors(at("m"), state);
  const auto before = model->parameters()[0].clone();
  expect_file_error("0.weight: (6, 4)", [&] { ulp::io::load_model(at("m"), *model); });
  expect_file_error("missing: 0.bias", [&] { ulp::io::load_model(at("m"), *model); });
  expect_file_error("unexpected: extra", [&] { ulp::io::load_model(at("m"), *model); });
  EXPECT_TRUE(torch::equal(before, model->parameters()[0]));

  const auto report = ulp::io::load_model(at("m"), *model, /*strict=*/false);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"0.bias"}));
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"extra"}));
  EXPECT_EQ(report.mismatched.size(), 6u);
}

TEST_F(TensorFiles, FloatingFormatsConvertAndOthersDoNot) {
  auto model = small_model(), half = small_model();
  half->to(torch::kBFloat16);
  ulp::io::save_model(at("m"), *half);
  ulp::io::load_model(at("m"), *model);
  EXPECT_EQ(model->parameters()[0].scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(model->parameters()[0], half->parameters()[0].to(torch::kFloat)));
  NamedTensors state = ulp::io::named_state(*model);
  state[0].second = state[0].second.to(torch::kInt);
  ulp::io::save_tensors(at("m"), state);
  expect_file_error("0.weight", [&] { ulp::io::load_model(at("m"), *model); });
}

/// Two layers with one weight.
struct Tied : torch::nn::Module {
  Tied() {
    first = register_parameter("first", torch::randn({3, 3}));
    second = register_parameter("second", first);
  }
  torch::Tensor first, second;
};

TEST_F(TensorFiles, TiedParametersAreStoredOnceAndStayTied) {
  Tied one, other;
  ulp::io::save_model(at("m"), one);
  EXPECT_EQ(ulp::SafetensorsFile(at("m")).tensors().size(), 1u);
  EXPECT_TRUE(ulp::io::load_model(at("m"), other).ok());
  EXPECT_TRUE(torch::equal(other.second, one.first));
  EXPECT_TRUE(other.first.is_same(other.second));
}

}  // namespace
