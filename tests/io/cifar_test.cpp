// CIFAR-10's binary files, made here.
#include <torch/torch.h>

#include "temp_folder.h"
#include "ulp/io/dataset.h"

namespace {

using ulp::io::load_cifar;
using ulp::io::Split;

/// An image whose planes hold `base`, `base` + 1 and `base` + 2, but for its first pixel, which is 200.
std::string record(int label, int base) {
  std::string bytes(1, static_cast<char>(label));
  for (int plane = 0; plane < 3; ++plane) bytes += std::string(1024, static_cast<char>(base + plane));
  bytes[1] = static_cast<char>(200);
  return bytes;
}

class Cifar : public TempFolder {
 protected:
  void SetUp() override {
    TempFolder::SetUp();
    write("data_batch_2.bin", record(9, 20));
    write("data_batch_1.bin", record(3, 0) + record(0, 10));
    write("test_batch.bin", record(7, 30));
    write("batches.meta.txt", "airplane\n");
  }
};

TEST_F(Cifar, ReadsTheBatchesInOrder) {
  const auto train = load_cifar(folder_, Split::train);
  EXPECT_NO_THROW(ulp::io::check_dataset(train));
  EXPECT_TRUE(torch::equal(train.labels, torch::tensor({3, 0, 9}, torch::kLong)));
  EXPECT_EQ(train.images.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_EQ(train.images[0][0][0][0].item<int>(), 200);
  EXPECT_EQ(train.images[1][0][0][1].item<int>(), 10);
  EXPECT_TRUE(train.images[2][2].eq(22).all().item<bool>());
  EXPECT_EQ(train.class_names.at(9), "truck");
  EXPECT_EQ(train.mean.size(), 3u);
  const auto test = load_cifar(folder_, Split::test);
  EXPECT_EQ(test.size(), 1);
  EXPECT_EQ(test.labels[0].item<int64_t>(), 7);
}

TEST_F(Cifar, FindsTheFolderOfTheArchive) {
  std::filesystem::create_directory(at("cifar-10-batches-bin"));
  write("cifar-10-batches-bin/test_batch.bin", record(1, 0) + record(2, 0));
  EXPECT_EQ(load_cifar(folder_, Split::test).size(), 2);
  expect_file_error("data_batch_1.bin", [&] { load_cifar(folder_, Split::train); });
}

TEST_F(Cifar, RefusesWrongFilesByName) {
  write("test_batch.bin", record(1, 0).substr(1));
  expect_file_error("test_batch.bin", [&] { load_cifar(folder_, Split::test); });
  write("test_batch.bin", "");
  expect_file_error("test_batch.bin", [&] { load_cifar(folder_, Split::test); });
  write("test_batch.bin", record(10, 0));
  expect_file_error("labels below 10", [&] { load_cifar(folder_, Split::test); });
  write("data_batch_2.bin", record(1, 0) + "x");
  expect_file_error("data_batch_2.bin", [&] { load_cifar(folder_, Split::train); });
  expect_file_error("nowhere", [&] { load_cifar(at("nowhere"), Split::train); });
  std::filesystem::create_directory(at("empty"));
  expect_file_error("empty", [&] { load_cifar(at("empty"), Split::test); });
}

}  // namespace
