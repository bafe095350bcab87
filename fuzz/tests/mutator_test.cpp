// The structural changes: the same for the same seed, and near enough to right files to get past the checks.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "byte_mutator.h"
#include "container_mutator.h"
#include "harness.h"
#include "runtime/support.h"

namespace {

using namespace ulp::runtime;
using namespace ulp::runtime::testing;

std::string engine_file() {
  const TemporaryFolder folder;
  small_network(Numbers::f32).save(folder / "engine");
  std::ifstream in(folder / "engine", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string mutant(const std::string& file, unsigned int seed) {
  ulp::fuzz::seed_byte_mutator(seed);
  std::string bytes = file;
  bytes.resize(1 << 20);
  const ulp::fuzz::Vocabulary words = {.words = {"relu6"}, .fields = {{"groups", 2}}};
  bytes.resize(ulp::fuzz::mutate_container(reinterpret_cast<uint8_t*>(bytes.data()), file.size(),
                                           bytes.size(), seed, words));
  return bytes;
}

TEST(ContainerMutator, MakesTheSameFilesForTheSameSeeds) {
  const std::string file = engine_file();
  std::set<std::string> made;
  for (unsigned int seed = 0; seed < 50; ++seed) {
    const std::string one = mutant(file, seed);
    EXPECT_EQ(one, mutant(file, seed)) << "seed " << seed;
    made.insert(one);
  }
  EXPECT_GT(made.size(), 40u);
}

TEST(ContainerMutator, MakesPlansThatAreRefusedForManyReasonsAndSomeThatLoad) {
  const std::string file = engine_file();
  int loaded = 0;
  std::set<std::string> reasons;
  for (unsigned int seed = 0; seed < 1000; ++seed) {
    const std::string bytes = mutant(file, seed);
    const ulp::fuzz::MemoryFile changed(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    try {
      Plan::load(changed.path());
      ++loaded;
    } catch (const ulp::FileError& error) {
      reasons.insert(error.what());
    }
  }
  EXPECT_GT(loaded, 50);
  EXPECT_LT(loaded, 950);
  EXPECT_GT(reasons.size(), 100u);
}

TEST(TextMutator, KeepsJsonMostly) {
  const std::string text = R"({"type": "a", "sizes": [1, 2, 3], "inner": {"b": 1.5, "c": null, "d": true}})";
  int parsed = 0;
  for (unsigned int seed = 0; seed < 200; ++seed) {
    ulp::fuzz::seed_byte_mutator(seed);
    std::string bytes = text + std::string(1000, '\0');
    bytes.resize(ulp::fuzz::mutate_text(reinterpret_cast<uint8_t*>(bytes.data()), text.size(), bytes.size(),
                                        seed, {}));
    parsed += nlohmann::json::accept(bytes) ? 1 : 0;
  }
  EXPECT_GT(parsed, 160);
}

}  // namespace
