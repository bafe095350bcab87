// A run that is stopped and continued gives the bits of one that is not, adapters and memories included.
#include "networks.h"
#include "temporary_folder.h"
#include "ulp/distill/distiller.h"
#include "ulp/io/checkpoint.h"
#include "ulp/io/safetensors.h"

namespace ulp::distill::tests {
namespace {

constexpr int64_t kSamples = 32, kBatch = 8, kSteps = 9;

/// A student, its optimizer, and what it learns by.
struct Course {
  explicit Course(uint64_t seed) {
    const Recipe recipe = Recipe::from_terms({"kd:T=4>2,alpha=0.1", "mse:10>0@layer1",
                                              "dkd:alpha=0.5,warmup=1", "crd:0.8,dim=8,negatives=12@layer2"});
    const Captured student = conv_net(4, 1);
    const auto teacher = graph_teacher(*conv_net(8, 2), teacher_places(recipe));
    torch::manual_seed(seed);
    distiller = std::make_unique<Distiller>(DistillerSetup{.student = student,
                                                           .teacher = teacher,
                                                           .recipe = recipe,
                                                           .example = image_batch(kBatch, 3),
                                                           .samples = kSamples,
                                                           .batches = kSteps,
                                                           .epoch_batches = kSamples / kBatch,
                                                           .input_noise = 0.1});
    optimizer = std::make_unique<torch::optim::SGD>(distiller->parameters(),
                                                    torch::optim::SGDOptions(0.02).momentum(0.9));
    torch::manual_seed(seed + 100);
  }

  void run_to(int64_t last) {
    for (; step < last; ++step) {
      const int64_t first = step % (kSamples / kBatch) * kBatch;
      const Batch batch = image_batch(kBatch, 50 + static_cast<uint64_t>(first), first);
      optimizer->zero_grad();
      distiller->forward(batch);
      distiller->loss(batch).backward();
      optimizer->step();
    }
  }
  io::CheckpointParts parts() {
    return {.model = distiller.get(), .optimizer = optimizer.get(), .step = step, .extra = {}};
  }

  std::unique_ptr<Distiller> distiller;
  std::unique_ptr<torch::optim::SGD> optimizer;
  int64_t step = 0;
};

/// Names of tensors in which two states differ.
std::vector<std::string> differences(const Course& a, const Course& b) {
  const io::NamedTensors left = io::named_state(*a.distiller), right = io::named_state(*b.distiller);
  EXPECT_EQ(left.size(), right.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!same(left[i].second, right[i].second)) names.push_back(left[i].first);
  }
  return names;
}

TEST(DistillerResume, TwoRunsAreEqual) {
  Course a(5);
  a.run_to(kSteps);
  Course b(5);
  b.run_to(kSteps);
  Course other(6);
  other.run_to(kSteps);
  EXPECT_TRUE(differences(a, b).empty());
  EXPECT_FALSE(differences(a, other).empty());
}

TEST(DistillerResume, ACheckpointContinuesEverything) {
  const test::TemporaryFolder folder;
  for (const int64_t at : {1, 4, 6}) {
    Course whole(5);
    whole.run_to(kSteps);
    Course first(5);
    first.run_to(at);
    io::save_checkpoint(folder / "run.ckpt", first.parts());
    Course resumed(77);
    io::CheckpointParts parts = resumed.parts();
    io::load_checkpoint(folder / "run.ckpt", parts);
    resumed.step = parts.step;
    EXPECT_TRUE(differences(first, resumed).empty());
    resumed.run_to(kSteps);
    EXPECT_EQ(differences(whole, resumed), std::vector<std::string>{}) << "stopped at " << at;
  }
}

TEST(DistillerResume, ACheckpointHoldsAdaptersMemoriesAndTheStudent) {
  const test::TemporaryFolder folder;
  Course run(5);
  run.run_to(2);
  io::save_checkpoint(folder / "run.ckpt", run.parts());
  const io::TensorFile file = io::load_tensors(folder / "run.ckpt");
  const auto holds = [&](const std::string& end) {
    for (const auto& [name, tensor] : file.tensors) {
      if (name.ends_with(end)) return true;
    }
    return false;
  };
  for (const char* name :
       {"student.layer1.conv.weight", "student.layer1.norm.running_mean", "adapter_1_mse.conv.weight",
        "loss_3_crd.student_memory", "loss_3_crd.teacher.weight", "batches"})
    EXPECT_TRUE(holds(name)) << name;
  for (const auto& [name, tensor] : file.tensors)
    EXPECT_EQ(name.find("teacher.layer"), std::string::npos) << name;
}

/// The example from which sizes are taken is no step: memories stand as they were drawn.
TEST(DistillerResume, TheExampleLeavesMemoriesAsTheyAre) {
  Course run(5);
  const auto buffers = run.distiller->named_buffers();
  EXPECT_EQ(buffers["loss_3_crd.z"].abs().sum().item<double>(), 0);
  EXPECT_TRUE(buffers["loss_3_crd.classes"].lt(0).all().item<bool>());
  EXPECT_EQ(buffers["student.layer1.norm.num_batches_tracked"].item<int64_t>(), 0);
}

}  // namespace
}  // namespace ulp::distill::tests
