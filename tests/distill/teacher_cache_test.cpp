// A teacher's values kept by sample: asked once, the same bytes, in memory and in a file.
#include "ulp/distill/teacher_cache.h"

#include <fstream>

#include "networks.h"
#include "temporary_folder.h"

namespace ulp::distill::tests {
namespace {

namespace fs = std::filesystem;

/// Two values of a sample that are functions of it; counts the samples that it was asked about.
class Counting final : public Teacher {
 public:
  std::vector<at::Tensor> values(const TeacherBatch& batch) override {
    asked += batch.inputs[0].size(0);
    return {batch.inputs[0] * 3, batch.inputs[0].sum(1).to(torch::kDouble)};
  }
  size_t count() const override { return 2; }
  std::string description() const override { return "counting"; }

  int64_t asked = 0;
};

/// Sample i is a row of three numbers that only it has.
TeacherBatch batch_of(const std::vector<int64_t>& numbers) {
  const at::Tensor samples = torch::tensor(numbers, torch::kLong);
  return {.inputs = {samples.to(torch::kFloat).unsqueeze(1) + torch::tensor({0.1F, 0.2F, 0.3F})},
          .samples = samples};
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same(a[i], b[i])) << a[i] << b[i];
}

TEST(TeacherCache, AsksOnceASampleAndGivesTheSameBytes) {
  const auto teacher = std::make_shared<Counting>();
  TeacherCache cache(teacher, {.samples = 8});
  EXPECT_EQ(cache.count(), 2U);
  EXPECT_EQ(cache.description(), "counting, kept by sample");
  Counting plain;
  for (const std::vector<int64_t>& numbers :
       {std::vector<int64_t>{3, 1}, {1, 3, 3}, {7, 3, 0}, {0, 1, 3, 7}, {5, 5}}) {
    const TeacherBatch batch = batch_of(numbers);
    expect_equal(cache.values(batch), plain.values(batch));
  }
  EXPECT_EQ(cache.known(), 5);
  EXPECT_EQ(teacher->asked, 2 + 0 + 2 + 0 + 2);
}

TEST(TeacherCache, AFileHoldsThemForALaterRun) {
  const test::TemporaryFolder folder;
  const CacheOptions options = {.samples = 8, .path = folder / "cache", .of = "teacher A on data B"};
  const auto first = std::make_shared<Counting>(), second = std::make_shared<Counting>();
  TeacherCache written(first, options);
  const auto expected = written.values(batch_of({4, 2}));
  written.save();
  TeacherCache read(second, options);
  EXPECT_EQ(read.known(), 2);
  expect_equal(read.values(batch_of({4, 2})), expected);
  EXPECT_EQ(second->asked, 0);
  read.values(batch_of({2, 6}));
  EXPECT_EQ(second->asked, 1);
  read.save();
  EXPECT_EQ(TeacherCache(second, options).known(), 3);
}

TEST(TeacherCache, AFileIsWrittenWhereThereIsSomethingNew) {
  const test::TemporaryFolder folder;
  const CacheOptions options = {.samples = 8, .path = folder / "cache", .of = "A"};
  const auto teacher = std::make_shared<Counting>();
  TeacherCache cache(teacher, options);
  cache.values(batch_of({4, 2}));
  cache.save();
  fs::remove(options.path);
  cache.values(batch_of({2, 4}));
  cache.save();
  EXPECT_FALSE(fs::exists(options.path));
  cache.values(batch_of({1}));
  cache.save();
  EXPECT_EQ(TeacherCache(teacher, options).known(), 3);
}

/// Saved before anything was asked.
TEST(TeacherCache, AnEmptyFileIsOneOfNoSamples) {
  const test::TemporaryFolder folder;
  const CacheOptions options = {.samples = 8, .path = folder / "cache", .of = "A"};
  const auto teacher = std::make_shared<Counting>();
  TeacherCache(teacher, options).save();
  TeacherCache read(teacher, options);
  EXPECT_EQ(read.known(), 0);
  Counting plain;
  expect_equal(read.values(batch_of({4, 2})), plain.values(batch_of({4, 2})));
}

TEST(TeacherCache, AFileOfSomethingElseIsRefused) {
  const test::TemporaryFolder folder;
  const CacheOptions options = {.samples = 8, .path = folder / "cache", .of = "A"};
  const auto teacher = std::make_shared<Counting>();
  TeacherCache cache(teacher, options);
  cache.values(batch_of({4, 2}));
  cache.save();
  const auto refuses = [&](const CacheOptions& other, const std::string& says) {
    EXPECT_THROW(TeacherCache(teacher, other), FileError);
    EXPECT_ERROR(TeacherCache(teacher, other), says);
  };
  refuses({.samples = 8, .path = options.path, .of = "B"},
          "to hold values of B; 2 values of 8 samples, got A; 2 values of 8 samples");
  refuses({.samples = 9, .path = options.path, .of = "A"},
          "2 values of 9 samples, got A; 2 values of 8 samples");
  refuses({.samples = 8, .path = options.path, .of = "A", .half = true}, "8 samples in fp16, got A;");
  for (const double share : {0.0, 0.3, 0.97}) {
    const fs::path cut = folder / "cut";
    fs::copy_file(options.path, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut, static_cast<uintmax_t>(share * static_cast<double>(fs::file_size(cut))));
    refuses({.samples = 8, .path = cut, .of = "A"}, "cut");
  }
  std::ofstream(folder / "text") << "no tensors";
  refuses({.samples = 8, .path = folder / "text", .of = "A"}, "text");
}

TEST(TeacherCache, HalfIsHalfTheBytes) {
  const auto teacher = std::make_shared<Counting>();
  TeacherCache cache(teacher, {.samples = 8, .half = true});
  const auto got = cache.values(batch_of({4, 2}));
  EXPECT_EQ(got[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(torch::allclose(got[0], batch_of({4, 2}).inputs[0] * 3, 1e-3));
  EXPECT_FALSE(same(got[0], batch_of({4, 2}).inputs[0] * 3));
}

TEST(TeacherCache, NumbersOfSamplesAreNeeded) {
  const auto teacher = std::make_shared<Counting>();
  TeacherCache cache(teacher, {.samples = 8});
  TeacherBatch unnumbered = batch_of({1});
  unnumbered.samples = at::Tensor();
  EXPECT_ERROR(cache.values(unnumbered), "expected numbers of the samples, got none");
  EXPECT_ERROR(cache.values(batch_of({8})), "expected samples 0 to 7, got 8");
  EXPECT_ERROR(cache.values(batch_of({-1})), "expected samples 0 to 7, got -1");
  EXPECT_ERROR(TeacherCache(teacher, {.samples = 0}), "expected samples >= 1, got 0");
  EXPECT_ERROR(TeacherCache(nullptr, {.samples = 1}), "expected a teacher, got null");
}

/// Layers round by the layout of what they read, which images of one channel have, too.
TEST(TeacherCache, TheTeacherSeesTheLayoutOfTheBatch) {
  class Layouts final : public Teacher {
   public:
    std::vector<at::Tensor> values(const TeacherBatch& batch) override {
      strides.push_back(batch.inputs[0].strides().vec());
      return {batch.inputs[0].sum({1, 2, 3})};
    }
    size_t count() const override { return 1; }
    std::string description() const override { return "layouts"; }

    std::vector<std::vector<int64_t>> strides;
  };
  for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    const auto teacher = std::make_shared<Layouts>();
    TeacherCache cache(teacher, {.samples = 8});
    const at::Tensor images =
        at::empty({4, 1, 3, 3}, at::TensorOptions(at::kFloat).memory_format(format)).fill_(1);
    cache.values({{images}, at::arange(4)});
    cache.values({{images}, at::arange(2, 6)});
    EXPECT_EQ(teacher->strides, (std::vector<std::vector<int64_t>>(2, images.strides().vec())));
  }
}

/// A real teacher: what was asked in one batch comes back in others.
TEST(TeacherCache, KeepsAGraphsValues) {
  const auto teacher = graph_teacher(*conv_net(4, 1), {"", "layer1"});
  TeacherCache cache(teacher, {.samples = 12});
  const Batch all = image_batch(12, 3);
  const auto expected = cache.values({all.inputs, all.samples});
  expect_equal(expected, teacher->values({all.inputs, all.samples}));
  const at::Tensor some = torch::tensor(std::vector<int64_t>{7, 0, 11});
  const auto got = cache.values({{all.inputs[0].index_select(0, some)}, some});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same(got[i], expected[i].index_select(0, some)));
}

}  // namespace
}  // namespace ulp::distill::tests
