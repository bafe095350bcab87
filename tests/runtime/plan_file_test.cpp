#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "container.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;
using ulp::test::Container;
using Json = nlohmann::json;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class PlanFile : public ::testing::Test {
 protected:
  std::string saved(const Plan& plan) {
    plan.save(path_);
    return read_text(path_);
  }
  std::string saved(Numbers numbers) { return saved(small_network(numbers)); }
  /// The message of the FileError that loading `file` throws; empty when it loads. Anything else fails the
  /// test.
  std::string load_error(const std::string& file) {
    write_text(path_, file);
    try {
      plan_ = Plan::load(path_);
      return "";
    } catch (const FileError& error) {
      return error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "expected a FileError, got: " << error.what();
    }
    return "";
  }
  void expect_error(const std::string& file, const std::string& part) {
    const std::string error = load_error(file);
    EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' lacks '" << part << "'";
  }
  /// Loads a damaged file; if it still is a plan, an engine must be able to run it.
  void survive(const std::string& file) {
    if (!load_error(file).empty()) {
      ++refused_;
      return;
    }
    ++accepted_;
    size_t bytes = 0;
    for (const TensorInfo& tensor : plan_.tensors) bytes += byte_count(tensor, 2);
    if (bytes > (size_t{16} << 20)) return;
    try {
      Engine engine(plan_, {.threads = 1, .isa = "portable"});
      run_engine(engine, 2, make_inputs(plan_, 2, 1));
    } catch (const Error&) {
    }
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "plan.ulp";
  Plan plan_;
  int refused_ = 0, accepted_ = 0;
};

TEST_F(PlanFile, HoldsEverythingOfAPlan) {
  for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8}) {
    const Plan plan = small_network(numbers);
    plan.save(path_);
    const Plan back = Plan::load(path_);
    EXPECT_EQ(back.metadata, plan.metadata);
    EXPECT_EQ(back.inputs, plan.inputs);
    EXPECT_EQ(back.outputs, plan.outputs);
    ASSERT_EQ(back.tensors.size(), plan.tensors.size());
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorInfo &a = plan.tensors[i], &b = back.tensors[i];
      EXPECT_TRUE(a.name == b.name && a.type == b.type && a.shape == b.shape && a.layout == b.layout &&
                  a.scale == b.scale && a.zero_point == b.zero_point)
          << a.name;
    }
    ASSERT_EQ(back.steps.size(), plan.steps.size());
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const Step &a = plan.steps[i], &b = back.steps[i];
      EXPECT_TRUE(a.op == b.op && a.name == b.name && a.inputs == b.inputs && a.output == b.output &&
                  a.constants == b.constants && a.attributes == b.attributes)
          << a.name;
    }
    ASSERT_EQ(back.constants.size(), plan.constants.size());
    for (const auto& [name, constant] : plan.constants) {
      EXPECT_EQ(back.constants.at(name).bytes, constant.bytes) << name;
      EXPECT_EQ(back.constants.at(name).shape, constant.shape) << name;
    }
    Engine from_file(path_), from_plan(plan);
    const std::vector<Bytes> inputs = make_inputs(plan, 3, 1);
    EXPECT_EQ(run_engine(from_file, 3, inputs), run_engine(from_plan, 3, inputs));
  }
}

TEST_F(PlanFile, RefusesWhatIsNoEngineFile) {
  EXPECT_THROW(Plan::load(folder_ / "missing.ulp"), FileError);
  expect_error("", "");
  EXPECT_FALSE(load_error("").empty());
  EXPECT_FALSE(load_error("hello, this is no engine file at all").empty());
  write_safetensors(path_, {}, {{"format", "pt"}});
  expect_error(read_text(path_), "expected an engine file");
  write_safetensors(path_, {}, {{"ulp.format", "checkpoint"}, {"ulp.version", "1"}});
  expect_error(read_text(path_), "checkpoint");
}

TEST_F(PlanFile, RefusesANewerVersion) {
  Container file(saved(Numbers::f32));
  for (const char* version : {"3", "999999"}) {
    file.header["__metadata__"]["ulp.version"] = version;
    expect_error(file.join(), "use a newer ulp");
  }
  for (const char* version : {"", "0", "-1", "one", "1.5", "99999999999999999999"}) {
    file.header["__metadata__"]["ulp.version"] = version;
    expect_error(file.join(), "ulp.version");
  }
}

TEST_F(PlanFile, NamesTheStepThatIsWrong) {
  const Container file(saved(Numbers::f32));
  const auto with = [&](const std::function<void(Json&)>& change) {
    Container changed = file;
    Json plan = changed.plan();
    change(plan);
    changed.set_plan(plan);
    return changed.join();
  };
  expect_error(with([](Json& p) { p["steps"][1]["op"] = "resize"; }),
               "step 1 'conv1' has an unknown op 'resize'");
  expect_error(with([](Json& p) { p["steps"][1]["surprise"] = 1; }),
               "step 1 'conv1' (conv): expected a known field, got 'surprise'");
  expect_error(with([](Json& p) { p["steps"][1]["window"]["ceil_mode"] = true; }),
               "step 1 'conv1' (conv): expected a known field, got 'window.ceil_mode'");
  expect_error(with([](Json& p) { p["steps"][1]["groups"] = "two"; }),
               "step 1 'conv1' (conv): expected a whole number in 'groups', got \"two\"");
  expect_error(with([](Json& p) { p["steps"][1]["window"]["stride_h"] = 0; }), "step 1 'conv1' (conv)");
  expect_error(with([](Json& p) { p["steps"][1]["constants"].erase("weight"); }), "step 1 'conv1' (conv)");
  expect_error(with([](Json& p) { p["tensors"][2]["shape"][1] = int64_t{1} << 40; }), "tensor 2 'conv1'");
  expect_error(with([](Json& p) { p.erase("outputs"); }), "no field 'outputs'");
  expect_error(with([](Json& p) { p = "plan"; }), "expected the plan to be an object");
}

TEST_F(PlanFile, EveryTruncationIsAnError) {
  const std::string file = saved(Numbers::u8);
  for (size_t size = 0; size < file.size(); size += size < 64 ? 1 : 37) {
    EXPECT_FALSE(load_error(file.substr(0, size)).empty()) << "cut at byte " << size << " of " << file.size();
  }
  EXPECT_FALSE(load_error(file + "x").empty());
}

TEST_F(PlanFile, SurvivesFlippedBits) {
  const std::string file = saved(Numbers::u8);
  Random random(11);
  for (size_t at = 0; at < file.size(); at += 7) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.integer(0, 7)));
    survive(damaged);
  }
  EXPECT_GT(refused_, 100);
  EXPECT_GT(accepted_, 100) << "a flip in a weight or a name is still a plan";
}

/// The field with "#" for places in lists, and the op of a step: "conv/steps/#/window/kernel_h". Fields of one kind are read
/// by the same lines.
std::string kind_of_field(const Json& plan, const std::string& path) {
  std::string kind;
  for (const char c : path) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || kind.back() != '#') kind += digit && kind.back() == '/' ? '#' : c;
  }
  if (!kind.starts_with("/steps/#/")) return kind;
  return plan["steps"][std::stoul(path.substr(std::string_view("/steps/").size()))]["op"].get<std::string>() +
         kind;
}

TEST_F(PlanFile, SurvivesEveryFieldSetToSomethingElse) {
  const std::vector<Json> evil = {nullptr,
                                  true,
                                  -1,
                                  0,
                                  1,
                                  7,
                                  1 << 30,
                                  INT64_MAX,
                                  INT64_MIN,
                                  UINT64_MAX,
                                  1e300,
                                  1e-300,
                                  0.5,
                                  "",
                                  "batch",
                                  "relu6",
                                  Json::array(),
                                  Json::object(),
                                  Json::array({0, 0})};
  for (const std::string& text :
       {saved(small_network(Numbers::u8)), saved(small_text_network()), saved(small_binary_network())}) {
    const Container file(text);
    const Json plan = file.plan();
    const Json fields = plan.flatten();
    std::map<std::string, int> seen;
    for (const auto& item : fields.items()) {
      if (++seen[kind_of_field(plan, item.key())] > 3) continue;
      for (const Json& value : evil) {
        Json changed = plan;
        changed[Json::json_pointer(item.key())] = value;
        Container damaged = file;
        damaged.set_plan(changed);
        survive(damaged.join());
      }
    }
  }
  EXPECT_GT(refused_, 1000);
}

TEST_F(PlanFile, SurvivesEveryHeaderFieldSetToSomethingElse) {
  const std::vector<Json> evil = {nullptr,       -1,   0, 1, INT64_MAX, "F32", "I8", "F8_E5M2", "",
                                  Json::array(), 1e300};
  const Container file(saved(Numbers::u8));
  const Json fields = file.header.flatten();
  for (const auto& item : fields.items()) {
    for (const Json& value : evil) {
      Container damaged = file;
      damaged.header[Json::json_pointer(item.key())] = value;
      survive(damaged.join());
    }
  }
  EXPECT_GT(refused_, 100);
}

TEST_F(PlanFile, DeepNestingIsAnErrorAndNotAStackOverflow) {
  Container file(saved(Numbers::f32));
  std::string deep(200000, '[');
  deep += std::string(200000, ']');
  file.header["__metadata__"]["ulp.plan"] = deep;
  EXPECT_FALSE(load_error(file.join()).empty());
}

TEST_F(PlanFile, SavingAWrongPlanLeavesTheOldFile) {
  const std::string before = saved(Numbers::f32);
  Plan plan = small_network(Numbers::f32);
  plan.steps[1].inputs[0] = 99;
  EXPECT_THROW(plan.save(path_), Error);
  EXPECT_EQ(read_text(path_), before);
}

}  // namespace
}  // namespace ulp::runtime
