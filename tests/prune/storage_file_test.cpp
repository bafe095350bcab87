#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "container.h"
#include "error_of.h"
#include "storage_tensors.h"
#include "temporary_folder.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/base/safetensors.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/prune/storage/compressed_file.h"

namespace ulp::prune {
namespace {

using test::same_bits;

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_content(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// A pruned layer with shared weights, a free one, a counter, codes and an alias.
NamedTensors small_state() {
  const at::Tensor tied = test::sparse_normal({6, 8}, 0.5, 2);
  return {{"fc.weight", test::sparse_shared({20, 30}, 0.1, 8, 1)},
          {"fc.bias", torch::arange(7).to(at::kFloat) * 0.37},
          {"embedding.weight", tied},
          {"steps", torch::tensor(12)},
          {"codes", torch::arange(11).to(at::kByte)},
          {"head.weight", tied}};
}

void expect_same(const NamedTensors& expected, const CompressedFile& file) {
  ASSERT_EQ(file.tensors.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const at::Tensor* found = file.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_TRUE(same_bits(tensor, *found)) << name;
  }
}

TEST(StorageFile, AModelComesBackBitForBit) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  const NamedTensors state = small_state();
  const Accounting saved = save_compressed(path, state, {}, {{"note", "kept"}});
  const CompressedFile file = load_compressed(path);
  expect_same(state, file);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"note", "kept"}}));
  EXPECT_EQ(file.find("head.weight")->const_data_ptr(), file.find("embedding.weight")->const_data_ptr());
  EXPECT_EQ(file.accounting, saved);
  EXPECT_EQ(load_accounting(path), saved);
}

TEST(StorageFile, TheAccountIsTheSizeOfTheFile) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  for (const EntropyCoder coder : {EntropyCoder::none, EntropyCoder::huffman, EntropyCoder::smallest}) {
    const Accounting account = save_compressed(path, small_state(), {.coder = coder});
    EXPECT_EQ(account.file_bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
    EXPECT_EQ(account.dense_bytes(), 600 * 4 + 7 * 4 + 48 * 4 + 8 + 11);
    ASSERT_EQ(account.tensors.size(), 5U);
    const SafetensorsFile container(path);
    for (const TensorAccount& tensor : account.tensors)
      EXPECT_EQ(tensor.bytes.total(), static_cast<int64_t>(container.find(tensor.name)->bytes.size()))
          << tensor.name;
    const auto rows = account.rows();
    ASSERT_EQ(rows.size(), 1U + 5 + 2);
    for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
    EXPECT_EQ(rows.back().back(), std::to_string(account.file_bytes()));
    EXPECT_DOUBLE_EQ(account.ratio(),
                     static_cast<double>(account.dense_bytes()) / static_cast<double>(account.file_bytes()));
  }
}

TEST(StorageFile, OtherToolsReadWhatIsNotCoded) {
  const test::TemporaryFolder folder;
  save_compressed(folder / "small", small_state());
  const SafetensorsFile container(folder / "small");
  ASSERT_NE(container.find("fc.bias"), nullptr);
  EXPECT_EQ(container.find("fc.bias")->dtype, "F32");
  EXPECT_EQ(container.find("fc.weight")->dtype, "U8");
  EXPECT_EQ(container.find("head.weight"), nullptr);
}

TEST(StorageFile, AModuleIsSavedByTheNamesOfItsState) {
  const test::TemporaryFolder folder;
  torch::nn::Sequential model(torch::nn::Linear(5, 4), torch::nn::BatchNorm1d(4));
  save_compressed(folder / "model", *model);
  const CompressedFile file = load_compressed(folder / "model");
  EXPECT_EQ(file.tensors.size(), 4U + 3);
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(same_bits(item.value(), *file.find(item.key())));
  for (const auto& item : model->named_buffers())
    EXPECT_TRUE(same_bits(item.value(), *file.find(item.key())));
}

// Views that read the same memory otherwise are tensors of their own; a second name of such a view is none.
TEST(StorageFile, ConjugateAndNegativeViewsComeBackBitForBit) {
  const test::TemporaryFolder folder;
  const at::Tensor w = test::sparse_normal({6, 5}, 1, 3);
  const at::Tensor c = torch::complex(w, test::sparse_normal({6, 5}, 1, 4)), conjugate = c.conj();
  const NamedTensors views = {{"c", c},
                              {"conjugate", conjugate},
                              {"again", c.conj()},
                              {"imaginary", torch::imag(c)},
                              {"negative imaginary", torch::imag(conjugate)},
                              {"w", w},
                              {"negative", at::_neg_view(w)}};
  ASSERT_TRUE(conjugate.is_conj() && torch::imag(conjugate).is_neg() && at::_neg_view(w).is_neg());
  save_compressed(folder / "compressed", views);
  io::save_tensors(folder / "plain", views);
  const NamedTensors compressed = load_compressed(folder / "compressed").tensors;
  const NamedTensors plain = io::load_tensors(folder / "plain").tensors;
  for (const NamedTensors& read : {compressed, plain}) {
    const std::map<std::string, at::Tensor> by_name(read.begin(), read.end());
    for (const auto& [name, view] : views)
      EXPECT_TRUE(same_bits(view.resolve_conj().resolve_neg(), by_name.at(name))) << name;
    EXPECT_EQ(by_name.at("again").const_data_ptr(), by_name.at("conjugate").const_data_ptr());
  }
}

// LeNet-300-100 as Han et al. keep it: 8, 9 and 26 % of the weights, 6 bits each; 1066 KB. Positions are
// drawn at random, which is the hardest case.
TEST(StorageFile, LeNet300IsThirtyTimesSmaller) {
  const test::TemporaryFolder folder;
  NamedTensors state;
  const std::vector<std::pair<std::vector<int64_t>, double>> layers = {
      {{300, 784}, 0.08}, {{100, 300}, 0.09}, {{10, 100}, 0.26}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "fc" + std::to_string(i + 1);
    state.emplace_back(name + ".weight", test::sparse_shared(layers[i].first, layers[i].second, 64, i));
    state.emplace_back(name + ".bias", test::sparse_normal({layers[i].first[0]}, 1, i));
  }
  const Accounting account = save_compressed(folder / "lenet", state);
  EXPECT_EQ(account.dense_bytes(), 266610 * 4);
  EXPECT_GE(account.ratio(), 30) << account.file_bytes();
  EXPECT_LT(account.container_bytes, 700);
  expect_same(state, load_compressed(folder / "lenet"));
}

TEST(StorageFile, EveryTruncationIsRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  save_compressed(path, small_state());
  const std::string whole = content_of(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    write_content(path, whole.substr(0, size));
    EXPECT_THROW(load_compressed(path), FileError) << size;
  }
  write_content(path, whole + '\0');
  EXPECT_THROW(load_compressed(path), FileError);
}

TEST(StorageFile, EveryChangedByteIsRefusedOrChangesNothing) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  const NamedTensors state = small_state();
  const Accounting account = save_compressed(path, state);
  const std::string whole = content_of(path);
  int harmless = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {1, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write_content(path, changed);
      try {
        const CompressedFile file = load_compressed(path);
        expect_same(state, file);
        ++harmless;
      } catch (const FileError&) {
      }
    }
  }
  EXPECT_LT(harmless, 2 * 64);  // white space of the padding
  EXPECT_EQ(account.file_bytes(), static_cast<int64_t>(whole.size()));
}

/// What load_compressed() says of the file after a change of its header and data.
template <typename Change>
std::string refusal(const std::filesystem::path& path, const Change& change) {
  test::Container container(content_of(path));
  change(container);
  write_content(path, container.join());
  return test::error_of([&] { load_compressed(path); });
}

TEST(StorageFile, HostileStampsAreRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  const auto with_stamp = [&](const nlohmann::json& stamp) {
    save_compressed(path, small_state());
    return refusal(path,
                   [&](test::Container& file) { file.header["__metadata__"]["ulp.compressed"] = stamp; });
  };
  EXPECT_SAYS(with_stamp("nonsense"), "expected a compressed file of version 1, got");
  EXPECT_SAYS(with_stamp(R"({"version": 2})"), "expected a compressed file of version 1, got 2");
  EXPECT_SAYS(with_stamp(R"({"version": 1})"), "expected a checksum of 32 bits");
  EXPECT_SAYS(with_stamp(R"({"version": 1, "crc32": 4294967296})"), "expected a checksum of 32 bits");
  EXPECT_SAYS(with_stamp(R"({"version": 1, "crc32": 5, "aliases": {"a": 3}})"),
              "expected aliases that are names");
  EXPECT_SAYS(with_stamp(R"({"version": 1, "crc32": 5})"), "the file is damaged");
  save_compressed(path, small_state());
  EXPECT_SAYS(refusal(path, [](test::Container& file) { file.header.erase("__metadata__"); }),
              "got one without the metadata 'ulp.compressed'");
  save_compressed(path, small_state());
  EXPECT_SAYS(refusal(path, [](test::Container& file) { file.header["fc.weight"]["dtype"] = "I8"; }),
              "the file is damaged");
}

TEST(StorageFile, TensorsThatTakeMoreThanTheLimitAreRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder / "zeros";
  save_compressed(path, NamedTensors{{"a", torch::zeros({1000})}, {"b", torch::zeros({1000})}});
  EXPECT_LT(std::filesystem::file_size(path), 600U);
  EXPECT_EQ(load_compressed(path, 8000).tensors.size(), 2U);
  EXPECT_ERROR(load_compressed(path, 7999),
               "expected tensors of at most 7999 bytes together (most_bytes), got 8000");
}

/// Files of zeros, each of a shape of twos, whose shapes are changed to ones of 127s: as small as before.
void write_claims(const std::filesystem::path& path, at::ScalarType type, int64_t dimensions,
                  size_t tensors) {
  NamedTensors zeros;
  const std::vector<int64_t> shape(static_cast<size_t>(dimensions), 2);
  for (size_t i = 0; i < tensors; ++i) zeros.emplace_back(std::to_string(i), torch::zeros(shape, type));
  save_compressed(path, zeros, {.positions = Positions::gaps});
  test::Container container(content_of(path));
  const size_t size = container.data.size() / tensors;
  constexpr size_t kSizes = 2;  // where they begin
  for (size_t i = 0; i < tensors; ++i)
    std::fill_n(container.data.begin() + static_cast<ptrdiff_t>(i * size + kSizes), dimensions, '\x7f');
  write_content(path, container.join());
  // The error says which checksum would be right.
  const std::string said = test::error_of([&] { load_compressed(path); });
  const std::string sum = said.substr(said.rfind(' ') + 1);
  container.header["__metadata__"]["ulp.compressed"] = R"({"version": 1, "crc32": )" + sum + "}";
  write_content(path, container.join());
}

TEST(StorageFile, TheAccountingIsReadWhateverTheTensorsTake) {
  const test::TemporaryFolder folder;
  const auto path = folder / "claims";
  constexpr int64_t kElements = int64_t{127} * 127 * 127 * 127;
  write_claims(path, at::kShort, 4, 1);
  ASSERT_LT(std::filesystem::file_size(path), 400U);
  EXPECT_ERROR(load_compressed(path), "got " + std::to_string(2 * kElements));
  const Accounting accounting = load_accounting(path);
  EXPECT_EQ(accounting.dense_bytes(), 2 * kElements);
  EXPECT_EQ(accounting.tensors.at(0).stored, 0);
  EXPECT_EQ(accounting.file_bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
  const app::FileContents contents = app::read_contents(path);
  EXPECT_EQ(contents.kind, "compressed model");
  EXPECT_EQ(contents.tensors.rows.size(), 3U);  // the tensor, the container, the sum
  write_claims(path, at::kByte, 9, 1);
  EXPECT_GT(load_accounting(path).dense_bytes(), int64_t{1} << 62);
  write_claims(path, at::kByte, 9, 2);
  EXPECT_ERROR(load_accounting(path), "the sizes of its tensors together overflow");
  EXPECT_ERROR(load_compressed(path), "the sizes of its tensors together overflow");
}

TEST(StorageFile, AnAccountingIsOfAWholeFile) {
  const test::TemporaryFolder folder;
  const auto path = folder / "small";
  save_compressed(path, small_state());
  const std::string whole = content_of(path);
  for (size_t size = 0; size < whole.size(); size += 3) {
    write_content(path, whole.substr(0, size));
    EXPECT_THROW(load_accounting(path), FileError) << size;
  }
  std::string changed = whole;
  changed.back() ^= 1;
  write_content(path, changed);
  EXPECT_ERROR(load_accounting(path), "[prune.load_accounting] '" + path.string() + "': the file is damaged");
}

TEST(StorageFile, WhatCannotBeSavedIsRefusedAndWritesNothing) {
  const test::TemporaryFolder folder;
  const auto path = folder / "none";
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"a", torch::ones({1})}, {"a", torch::ones({2})}}),
               "duplicate name 'a'");
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"a", at::Tensor()}}),
               "expected a tensor for 'a', got none");
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"a", torch::eye(2).to_sparse()}}), "'a' cannot be stored");
  EXPECT_ERROR(save_compressed(path, NamedTensors{}, {}, {{"ulp.compressed", ""}}),
               "expected metadata without the key");
  EXPECT_ERROR(save_compressed(path, NamedTensors{}, {.gap_bits = 1}), "expected gap_bits in [2, 8], got 1");
  const at::Tensor one = torch::ones({10});
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"a", one}, {"b\xff", one}}),
               "expected names in UTF-8, got \"b\xef\xbf\xbd\"");
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"b\xff", one}, {"a", one}}), "expected names in UTF-8");
  EXPECT_ERROR(save_compressed(path, NamedTensors{{"a", one}}, {}, {{"k", "\xff"}}), "in UTF-8");
  EXPECT_FALSE(std::filesystem::exists(path));
  save_compressed(path, NamedTensors{});
  EXPECT_TRUE(load_compressed(path).tensors.empty());
}

TEST(StorageFile, PlainFilesRefuseNamesThatAreNotUtf8) {
  const test::TemporaryFolder folder;
  const auto path = folder / "none";
  const at::Tensor one = torch::ones({10});
  EXPECT_ERROR(io::save_tensors(path, {{"a", one}, {"b\xff", one}}),
               "[io.save_tensors] expected names in UTF-8, got \"b\xef\xbf\xbd\"");
  const auto scaled = [&](const std::string& weight, const std::string& node) {
    auto graph = std::make_shared<graph::Graph>();
    graph->set_attribute(weight, {graph::Attribute::Kind::parameter, one});
    graph::Value* x = graph->add_input("x");
    graph->set_output(
        graph->call("aten::mul.Tensor", {x, graph->attribute(weight)}, nullptr, node)->output());
    return graph::GraphModule(graph);
  };
  EXPECT_ERROR(io::save_graph(path, scaled("b\xff", "scaled")),
               "[io.save_graph] expected names in UTF-8, got \"b\xef\xbf\xbd\"");
  EXPECT_ERROR(io::save_graph(path, scaled("b", "scaled\xff")),
               "[io.save_graph] expected a graph whose names");
  EXPECT_FALSE(std::filesystem::exists(path));
  io::save_graph(path, scaled("b", "scaled"));
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ulp::prune
