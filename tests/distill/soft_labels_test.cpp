// What a teacher says of data without labels, kept: its most likely classes, or one where it is sure.
#include "ulp/distill/soft_labels.h"

#include <fstream>

#include "networks.h"
#include "temporary_folder.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/io/safetensors.h"

namespace ulp::distill::tests {
namespace {

at::Tensor logits(int64_t samples = 6, int64_t classes = 5) {
  auto generator = at::detail::createCPUGenerator(4);
  return at::randn({samples, classes}, generator, at::kFloat) * 2;
}

at::Tensor numbers(const std::vector<int64_t>& list) {
  return torch::tensor(list, torch::kLong);
}

SoftLabels labels_of(const at::Tensor& all, int64_t k) {
  SoftLabeller labeller(all.size(0), k);
  const int64_t half = all.size(0) / 2;
  const at::Tensor order = at::arange(all.size(0) - 1, -1, -1, at::kLong);  // the last sample first
  for (const auto& some : {order.slice(0, 0, half), order.slice(0, half)})
    labeller.add(all.index_select(0, some), some);
  return labeller.finish();
}

TEST(SoftLabels, AllClassesAreTheTeacherItself) {
  const SoftLabels labels = labels_of(logits(), 20);
  EXPECT_EQ(labels.samples(), 6);
  EXPECT_EQ(labels.classes, 5);
  EXPECT_EQ(labels.ids.sizes(), (std::vector<int64_t>{6, 5}));
  const at::Tensor some = numbers({4, 0, 4});
  EXPECT_TRUE(
      torch::allclose(labels.logits(some), logits().index_select(0, some).log_softmax(1), 1e-5, 1e-6));
}

TEST(SoftLabels, TheTopClassesKeepTheirProbabilitiesAndShareTheRest) {
  const SoftLabels labels = labels_of(logits(), 2);
  const at::Tensor all = at::arange(6), p = logits().softmax(1), kept = labels.logits(all).exp();
  EXPECT_TRUE(torch::allclose(kept.sum(1), torch::ones({6}), 1e-5, 1e-6));
  const auto [top, ids] = p.topk(2, 1);
  EXPECT_TRUE(torch::allclose(kept.gather(1, ids), top, 1e-5, 1e-6));
  const at::Tensor rest = (1 - top.sum(1, true)) / 3;
  const at::Tensor others =
      kept.scatter(1, ids, -1).masked_select(kept.scatter(1, ids, -1).ge(0)).view({6, 3});
  EXPECT_TRUE(torch::allclose(others, rest.expand({6, 3}), 1e-4, 1e-6));
  // Probabilities that round to 1 leave logarithms finite.
  EXPECT_TRUE(labels_of(logits() * 1000, 2).logits(all).isfinite().all().item<bool>());
}

TEST(SoftLabels, AClassIsGivenWhereTheTeacherIsSure) {
  const SoftLabels labels = labels_of(logits(), 1);
  const auto [best, classes] = logits().softmax(1).max(1);
  EXPECT_TRUE(labels.hard(0).equal(classes));
  EXPECT_EQ(labels.hard(0).scalar_type(), at::kLong);
  const double middle = best.median().item<double>() - 1e-6;
  EXPECT_TRUE(
      labels.hard(middle).equal(at::where(best.ge(middle), classes, at::full_like(classes, kUnlabelled))));
  EXPECT_TRUE(labels.hard(1.1).eq(kUnlabelled).all().item<bool>());
}

TEST(SoftLabels, AFileGivesTheSameBytes) {
  const test::TemporaryFolder folder;
  const SoftLabels labels = labels_of(logits(), 2);
  labels.save(folder / "labels");
  const SoftLabels read = SoftLabels::load(folder / "labels");
  EXPECT_EQ(read.classes, 5);
  EXPECT_TRUE(same(read.ids, labels.ids));
  EXPECT_TRUE(same(read.log_probability, labels.log_probability));
}

TEST(SoftLabels, OtherFilesAreRefused) {
  const test::TemporaryFolder folder;
  const SoftLabels labels = labels_of(logits(), 2);
  const auto refuses = [&](const SoftLabels& wrong, const char* why) {
    wrong.save(folder / "wrong");
    EXPECT_THROW(SoftLabels::load(folder / "wrong"), FileError) << why;
  };
  refuses({.classes = 1, .ids = labels.ids, .log_probability = labels.log_probability}, "fewer classes");
  refuses({.classes = 3, .ids = labels.ids + 1, .log_probability = labels.log_probability},
          "an id too large");
  refuses({.classes = 5, .ids = labels.ids - 9, .log_probability = labels.log_probability}, "a negative id");
  refuses({.classes = 5, .ids = labels.ids, .log_probability = -labels.log_probability},
          "probabilities above 1");
  refuses({.classes = 5, .ids = labels.ids, .log_probability = labels.log_probability * NAN}, "NaN");
  refuses({.classes = 5, .ids = labels.ids.to(torch::kLong), .log_probability = labels.log_probability},
          "int64");
  refuses({.classes = 5, .ids = labels.ids, .log_probability = labels.log_probability.slice(0, 1)},
          "other rows");
  io::save_tensors(folder / "other", {{"ids", labels.ids}});
  EXPECT_THROW(SoftLabels::load(folder / "other"), FileError);
  labels.save(folder / "cut");
  std::filesystem::resize_file(folder / "cut", std::filesystem::file_size(folder / "cut") - 3);
  EXPECT_THROW(SoftLabels::load(folder / "cut"), FileError);
  EXPECT_THROW(SoftLabels::load(folder / "none"), FileError);
}

TEST(SoftLabeller, EverySampleIsLabelledOnce) {
  EXPECT_ERROR(SoftLabeller(0), "expected samples and k >= 1, got 0 and 20");
  EXPECT_ERROR(SoftLabeller(3, 0), "got 3 and 0");
  SoftLabeller labeller(4, 2);
  EXPECT_ERROR(labeller.finish(), "got none of sample 0");
  labeller.add(logits(3), numbers({0, 1, 3}));
  EXPECT_ERROR(labeller.finish(), "expected labels of every sample, got none of sample 2");
  EXPECT_ERROR(labeller.add(logits(1), numbers({4})), "expected samples 0 to 3, got 4");
  EXPECT_ERROR(labeller.add(logits(1), {}), "expected numbers of the samples, got none");
  EXPECT_ERROR(labeller.add(logits(2), numbers({2})), "expected logits (1, classes), got [2, 5]");
  EXPECT_ERROR(labeller.add(logits(1, 6), numbers({2})), "expected logits (1, classes), got [1, 6]");
}

TEST(StoredTeacher, SaysWhatWasKept) {
  const SoftLabels labels = labels_of(logits(), 3);
  const auto teacher = stored_teacher(labels);
  EXPECT_EQ(teacher->count(), 1U);
  EXPECT_EQ(teacher->description(), "stored labels, top 3");
  const at::Tensor some = numbers({5, 2});
  EXPECT_TRUE(same(teacher->values({.inputs = {}, .samples = some}).at(0), labels.logits(some)));
  EXPECT_ERROR(teacher->values({}), "expected numbers of the samples, got none");
  EXPECT_ERROR(teacher->values({.inputs = {}, .samples = numbers({6})}), "expected samples 0 to 5, got 6");
  EXPECT_ERROR(stored_teacher({}), "expected labels, got none");
}

}  // namespace
}  // namespace ulp::distill::tests
