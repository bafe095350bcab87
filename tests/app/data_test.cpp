#include "ulp/app/data/data.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "npy_file.h"
#include "train/support.h"
#include "ulp/base/error.h"

namespace {

namespace app = ulp::app;
using namespace ulp::app;
using ulp::io::Split;
using ulp::test::bytes_of;
using ulp::test::npy;
using ulp::test::TemporaryFolder;
using ulp::train::TaskBatch;

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Rows of two floats and labels 0, 1, 2, 0, ...; the first value of row i is i.
void write_rows(const TemporaryFolder& folder, int64_t rows) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t i = 0; i < rows; ++i) {
    x.push_back(static_cast<float>(i));
    x.push_back(7);
    y.push_back(i % 3);
  }
  const std::string count = std::to_string(rows);
  write(folder / "x.npy", npy("<f4", count + ", 2", bytes_of(x)));
  write(folder / "y.npy", npy("<i8", count + ",", bytes_of(y)));
}

at::Tensor longs(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kLong);
}

std::string pair_of(const TemporaryFolder& folder) {
  return (folder / "x.npy").string() + "," + (folder / "y.npy").string();
}

template <typename Call>
void expect_file_error(const std::string& says, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected a refusal with: " << says;
  } catch (const ulp::FileError& error) {
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

/// All samples of a split in order.
TaskBatch all_of(const TaskData& data, Split split) {
  const auto stream = data.stream(split, {.batch = 100000});
  return *stream->next();
}

TEST(Data, RowsAreNormalisedAndEveryTenthIsForTesting) {
  const TemporaryFolder folder;
  write_rows(folder, 40);
  const TaskData data = load_data(pair_of(folder), 0);
  EXPECT_EQ(data.spec.kind, app::NetworkKind::image);
  EXPECT_EQ(data.spec.in_channels, 2);
  EXPECT_EQ(data.spec.image_size, 1);
  EXPECT_EQ(data.spec.num_classes, 3);
  EXPECT_EQ(std::string(data.unit), "row");
  const TaskBatch train = all_of(data, Split::train), test = all_of(data, Split::test);
  EXPECT_EQ(train.inputs.sizes(), (std::vector<int64_t>{36, 2, 1, 1}));
  EXPECT_TRUE(torch::equal(test.targets, longs({0, 1, 2, 0})));  // rows 9, 19, 29, 39
  const at::Tensor first = train.inputs.select(1, 0).flatten();
  EXPECT_NEAR(first.mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(first.std(false).item<double>(), 1, 1e-5);
  EXPECT_EQ(train.inputs.select(1, 1).abs().max().item<double>(), 0) << "a constant column becomes 0";
}

TEST(Data, AModelsNormalisationIsUsedForItsTestData) {
  const TemporaryFolder folder;
  write_rows(folder, 40);
  app::ModelSpec model = load_data(pair_of(folder), 0).spec;
  model.mean = {9, 7};
  model.std = {1, 1};
  const TaskBatch test = all_of(load_data(pair_of(folder), 0, &model), Split::test);
  EXPECT_EQ(test.inputs[0][0].item<double>(), 0);
  EXPECT_EQ(test.inputs[1][0].item<double>(), 10);
  model.in_channels = 3;
  EXPECT_THROW(load_data(pair_of(folder), 0, &model), ulp::Error);
  model = {.name = "gpt2", .kind = app::NetworkKind::language, .max_length = 8};
  EXPECT_THROW(load_data(pair_of(folder), 0, &model), ulp::Error);
}

TEST(Data, ArraysOfBytesAreImagesInAnyOrderOfDimensions) {
  const TemporaryFolder folder;
  std::vector<uint8_t> pixels(20 * 5 * 5 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7);
  std::string labels(20, '\0');
  labels.back() = '\1';
  write(folder / "y.npy", npy("|u1", "20, 1", labels));
  write(folder / "x.npy", npy("|u1", "20, 5, 5, 3", bytes_of(pixels)));
  const TaskData last = load_data(pair_of(folder), 0);
  EXPECT_EQ(std::string(last.unit), "image");
  EXPECT_EQ(last.spec.in_channels, 3);
  EXPECT_EQ(last.spec.image_size, 5);
  const at::Tensor images = all_of(last, Split::test).inputs;  // rows 9 and 19
  const double expected = (pixels[9 * 75 + 1 * 3 + 2] / 255.0 - last.spec.mean[2]) / last.spec.std[2];
  EXPECT_NEAR(images[0][2][0][1].item<double>(), expected, 1e-5);
  const ulp::io::ImageDataset test = app::load_images(pair_of(folder), Split::test, last.spec);
  EXPECT_TRUE(torch::equal(test.labels, longs({0, 1})));
  EXPECT_EQ(test.images[0][2][0][1].item<int64_t>(), pixels[9 * 75 + 1 * 3 + 2]);
  EXPECT_EQ(test.mean, last.spec.mean);
  write(folder / "x.npy", npy("|u1", "20, 5, 15", bytes_of(pixels)));
  EXPECT_THROW(load_data(pair_of(folder), 0), ulp::Error) << "not square";
}

TEST(Data, RowsOfValuesAreNoImages) {
  const TemporaryFolder folder;
  write_rows(folder, 40);
  const app::ModelSpec model = load_data(pair_of(folder), 0).spec;
  expect_file_error("expected images of bytes",
                    [&] { app::load_images(pair_of(folder), Split::test, model); });
  expect_file_error("does not exist", [&] { app::load_images("nowhere.npz", Split::test, model); });
}

TEST(Data, BadArraysAreRefused) {
  const TemporaryFolder folder;
  const auto load = [&] { load_data(pair_of(folder), 0); };
  write_rows(folder, 9);
  expect_file_error("at least 10 rows", load);
  write_rows(folder, 20);
  const std::string x = (folder / "x.npy").string();
  expect_file_error("X.npy,Y.npy", [&] { load_data(x, 0); });
  std::vector<int64_t> labels(20, 0);
  labels[3] = -1;
  write(folder / "y.npy", npy("<i8", "20,", bytes_of(labels)));
  expect_file_error("got -1", load);
  labels[3] = 70000;
  write(folder / "y.npy", npy("<i8", "20,", bytes_of(labels)));
  expect_file_error("got 70000", load);
  write(folder / "y.npy", npy("<i8", "10,", bytes_of(std::vector<int64_t>(10, 0))));
  expect_file_error("(20)", load);
  write(folder / "y.npy", npy("<f4", "20,", bytes_of(std::vector<float>(20, 0))));
  expect_file_error("whole numbers", load);
  write_rows(folder, 20);
  std::vector<float> values(40, 1);
  values[5] = std::nanf("");
  write(folder / "x.npy", npy("<f4", "20, 2", bytes_of(values)));
  expect_file_error("NaN", load);
  write(folder / "x.npz", std::string("PK\x03\x04") + std::string(30, 'x'));
  expect_file_error("x.npz", [&] { load_data((folder / "x.npz").string(), 0); });
  write(folder / "empty.npz", "");
  expect_file_error("neither", [&] { load_data((folder / "empty.npz").string(), 0); });
  expect_file_error("does not exist", [&] { load_data((folder / "none.txt").string(), 8); });
}

TEST(Data, TextIsCutIntoWindowsWhoseTargetsAreTheNextBytes) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 401; ++i) text += static_cast<char>('a' + i % 26);
  write(folder / "book.txt", text);
  const TaskData data = load_data((folder / "book.txt").string(), 4);
  EXPECT_EQ(data.spec.kind, app::NetworkKind::language);
  EXPECT_EQ(data.spec.num_classes, 256);
  EXPECT_EQ(data.spec.max_length, 4);
  const TaskBatch train = all_of(data, Split::train), test = all_of(data, Split::test);
  EXPECT_EQ(train.inputs.sizes(), (std::vector<int64_t>{90, 4}));
  EXPECT_EQ(test.inputs.sizes(), (std::vector<int64_t>{10, 4}));
  EXPECT_TRUE(torch::equal(train.inputs[1], longs({'e', 'f', 'g', 'h'})));
  EXPECT_TRUE(torch::equal(train.targets[1], longs({'f', 'g', 'h', 'i'})));
  EXPECT_EQ(test.inputs[0][0].item<int64_t>(), text[360]);
  expect_file_error("at least 10 windows", [&] { load_data((folder / "book.txt").string(), 50); });
}

TEST(Data, SplitsAreReadInPartsOfBoundedSize) {
  const TemporaryFolder folder;
  write(folder / "book.txt", std::string(9000, 'a'));
  const TaskData text = load_data((folder / "book.txt").string(), 64);
  const app::SplitData book(
      [&](const ulp::train::StreamOptions& options) { return text.stream(Split::train, options); },
      text.unit);
  EXPECT_EQ(book.batch(250), 64) << "4,096 tokens";
  EXPECT_EQ(book.batch(10), 10);
  EXPECT_EQ(book.first(7).samples(), 7);
  EXPECT_EQ(book.first_inputs(3).sizes(), (std::vector<int64_t>{3, 64}));
  const app::SplitData images = ulp::test::bars();
  EXPECT_EQ(images.batch(250), 250);
  EXPECT_EQ(images.first_inputs(100000).size(0), images.samples()) << "all that there are";
}

TEST(Data, LabelledLinesBecomePaddedTexts) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += (i % 2 ? "good\tyes" : "bad\tno") + std::string("\n");
  write(folder / "t.tsv", lines);
  const TaskData data = load_data((folder / "t.tsv").string(), 6);
  EXPECT_EQ(data.spec.kind, app::NetworkKind::text);
  EXPECT_EQ(data.spec.class_names, (std::vector<std::string>{"bad", "good"}));
  const TaskBatch test = all_of(data, Split::test);  // lines 9 and 19
  EXPECT_TRUE(torch::equal(test.inputs[0], longs({'y', 'e', 's', 0, 0, 0})));
  EXPECT_EQ(test.targets[0].item<int64_t>(), 1);
  app::ModelSpec model = data.spec;
  model.class_names = {"bad", "fine"};
  expect_file_error("good", [&] { load_data((folder / "t.tsv").string(), 6, &model); });
  write(folder / "t.tsv", lines + "no tab here\n");
  expect_file_error("line 21", [&] { load_data((folder / "t.tsv").string(), 6); });
  write(folder / "t.tsv", "a\tb\nb\tc\n");
  expect_file_error("at least 10", [&] { load_data((folder / "t.tsv").string(), 6); });
}

TEST(Data, CifarFoldersAreKnownByTheirFiles) {
  const TemporaryFolder folder;
  std::string records;
  for (int i = 0; i < 12; ++i) records += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
  write(folder / "data_batch_1.bin", records);
  write(folder / "test_batch.bin", records.substr(0, 3 * 3073));
  const TaskData data = load_data((folder / "").string(), 0);
  EXPECT_EQ(data.spec.in_channels, 3);
  EXPECT_EQ(data.spec.image_size, 32);
  EXPECT_EQ(all_of(data, Split::train).inputs.size(0), 12);
  EXPECT_EQ(all_of(data, Split::test).inputs.size(0), 3);
  write(folder / "test_batch.bin", records.substr(0, 3000));
  expect_file_error("test_batch.bin", [&] { load_data((folder / "").string(), 0); });
}

TEST(Data, ModelSpecsOfEveryKindSurviveTheirFile) {
  const TemporaryFolder folder;
  app::ModelSpec spec{.name = "lstm",
                      .kind = app::NetworkKind::text,
                      .num_classes = 2,
                      .max_length = 16,
                      .class_names = {"bad", "good"}};
  torch::manual_seed(3);
  const app::Network network = app::make_network(spec);
  app::save_model_file(folder / "m.safetensors", *network.module, spec);
  const auto stored = app::read_model_spec(folder / "m.safetensors");
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->to_json(), spec.to_json());
  const app::Network loaded = app::load_network(folder / "m.safetensors");
  EXPECT_TRUE(torch::equal(ulp::test::weights(*loaded.module), ulp::test::weights(*network.module)));
  expect_file_error("network over text", [&] { app::load_model_file(folder / "m.safetensors"); });
  for (const char* bad : {R"({"name":"lstm","num_classes":2,"kind":"audio"})",
                          R"({"name":"lstm","num_classes":2,"kind":"text","max_length":0,"class_names":[]})",
                          R"({"name":"mlp","num_classes":2})"}) {
    EXPECT_THROW(app::ModelSpec::from_json(bad), ulp::FileError) << bad;
  }
}

}  // namespace
