// Whatever a caller gives to the C API, the answer is a status and a message.
#include <algorithm>
#include <array>
#include <limits>
#include <thread>

#include "handles.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

class CArguments : public ::testing::Test {
 protected:
  Plan plan_ = small_network(Numbers::f32);
  EngineHandle engine_ = engine_of(plan_);
  ContextHandle context_ = context_of(engine_.get());
  std::vector<Bytes> inputs_ = make_inputs(plan_, 2, 1);
  std::vector<Bytes> outputs_ = run(context_.get(), 2, inputs_);
  std::vector<ulp_const_buffer> in_ = const_buffers(inputs_);
  std::vector<ulp_buffer> out_ = buffers(outputs_);

  ulp_status run_buffers(int64_t batch = 2) {
    return ulp_context_run(context_.get(), batch, in_.data(), in_.size(), out_.data(), out_.size());
  }
};

TEST_F(CArguments, EveryNullIsNamed) {
  ulp_engine* engine = engine_.get();
  ulp_context* context = context_.get();
  ulp_engine* made = nullptr;
  ulp_context* other = nullptr;
  ulp_tensor_info info = {.struct_size = sizeof info};
  ulp_free_dimension free = {.struct_size = sizeof free};
  const int64_t sizes[] = {2, 3, 8, 8};
  const ulp_shape shape = {sizes, 4};
  size_t count = 0;
  uint64_t bytes = 0;
  int64_t number = 0;
  int32_t threads = 0;
  const char* name = nullptr;
  struct Case {
    const char* missing;
    ulp_status status;
    std::string said;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* missing, ulp_status status) {
    cases.push_back({missing, status, status == ULP_OK ? "" : ulp_last_error()});
  };
  add("'bytes'", ulp_dtype_bytes(ULP_F32, nullptr));
  add("'name'", ulp_dtype_name(ULP_F32, nullptr));
  add("'count'", ulp_isa_count(nullptr));
  add("'name'", ulp_isa_name(0, nullptr));
  add("'path'", ulp_engine_load(nullptr, nullptr, &made));
  add("'engine'", ulp_engine_load("x", nullptr, nullptr));
  add("'bytes'", ulp_engine_load_memory(nullptr, 8, nullptr, &made));
  add("'engine'", ulp_engine_load_memory("x", 1, nullptr, nullptr));
  add("'engine'", ulp_engine_input_count(nullptr, &count));
  add("'count'", ulp_engine_input_count(engine, nullptr));
  add("'engine'", ulp_engine_output_count(nullptr, &count));
  add("'count'", ulp_engine_output_count(engine, nullptr));
  add("'engine'", ulp_engine_input(nullptr, 0, &info));
  add("'info'", ulp_engine_input(engine, 0, nullptr));
  add("'engine'", ulp_engine_output(nullptr, 0, &info));
  add("'info'", ulp_engine_output(engine, 0, nullptr));
  add("'engine'", ulp_engine_free_dimension_count(nullptr, &count));
  add("'count'", ulp_engine_free_dimension_count(engine, nullptr));
  add("'engine'", ulp_engine_free_dimension(nullptr, 0, &free));
  add("'engine'", ulp_engine_isa(nullptr, &name));
  add("'name'", ulp_engine_isa(engine, nullptr));
  add("'engine'", ulp_engine_constant_bytes(nullptr, &bytes));
  add("'bytes'", ulp_engine_constant_bytes(engine, nullptr));
  add("'engine'", ulp_context_create(nullptr, nullptr, &other));
  add("'context'", ulp_context_create(engine, nullptr, nullptr));
  add("'context'", ulp_context_set_size(nullptr, "width", 1));
  add("'name'", ulp_context_set_size(context, nullptr, 1));
  add("'context'", ulp_context_size(nullptr, "width", &number));
  add("'name'", ulp_context_size(context, nullptr, &number));
  add("'size'", ulp_context_size(context, "width", nullptr));
  add("'context'", ulp_context_set_input_shapes(nullptr, &shape, 1, &number));
  add("'shapes'", ulp_context_set_input_shapes(context, nullptr, 1, &number));
  add("'batch'", ulp_context_set_input_shapes(context, &shape, 1, nullptr));
  add("'context'", ulp_context_input(nullptr, 0, &info));
  add("'info'", ulp_context_input(context, 0, nullptr));
  add("'context'", ulp_context_output(nullptr, 0, &info));
  add("'info'", ulp_context_output(context, 0, nullptr));
  add("'context'", ulp_context_input_bytes(nullptr, 0, 1, &count));
  add("'bytes'", ulp_context_input_bytes(context, 0, 1, nullptr));
  add("'context'", ulp_context_output_bytes(nullptr, 0, 1, &count));
  add("'bytes'", ulp_context_output_bytes(context, 0, 1, nullptr));
  add("'context'", ulp_context_reserve(nullptr, 1));
  add("'context'", ulp_context_run(nullptr, 2, in_.data(), in_.size(), out_.data(), out_.size()));
  add("'inputs'", ulp_context_run(context, 2, nullptr, in_.size(), out_.data(), out_.size()));
  add("'outputs'", ulp_context_run(context, 2, in_.data(), in_.size(), nullptr, out_.size()));
  add("'context'", ulp_context_position(nullptr, &number));
  add("'position'", ulp_context_position(context, nullptr));
  add("'context'", ulp_context_rewind(nullptr, 0));
  add("'context'", ulp_context_arena_bytes(nullptr, &bytes));
  add("'bytes'", ulp_context_arena_bytes(context, nullptr));
  add("'context'", ulp_context_threads(nullptr, &threads));
  add("'threads'", ulp_context_threads(context, nullptr));
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(cases[i].status, ULP_INVALID_ARGUMENT) << i;
    EXPECT_SAYS(cases[i].said, cases[i].missing);
    EXPECT_SAYS(cases[i].said, "NULL");
    EXPECT_TRUE(cases[i].said.starts_with("[ulp_")) << cases[i].said;
  }
  ulp_engine_destroy(nullptr);
  ulp_context_destroy(nullptr);
  EXPECT_EQ(run_buffers(), ULP_OK) << ulp_last_error();
}

TEST_F(CArguments, HandlesAreNullAfterAnError) {
  auto* made = reinterpret_cast<ulp_engine*>(this);
  EXPECT_EQ(ulp_engine_load("/nowhere.ulp", nullptr, &made), ULP_FILE_ERROR);
  EXPECT_EQ(made, nullptr);
  auto* context = reinterpret_cast<ulp_context*>(this);
  const ulp_context_options options = {.struct_size = sizeof options, .threads = -1};
  EXPECT_STATUS(ulp_context_create(engine_.get(), &options, &context), ULP_INVALID_ARGUMENT, "-1");
  EXPECT_EQ(context, nullptr);
}

TEST_F(CArguments, SizesOfStructsAreChecked) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{9}, size_t{20}, size_t{4104},
                            std::numeric_limits<size_t>::max() - 7}) {
    const ulp_context_options options = {.struct_size = size};
    ulp_context* context = nullptr;
    EXPECT_STATUS(ulp_context_create(engine_.get(), &options, &context), ULP_INVALID_ARGUMENT,
                  "options->struct_size to be its sizeof (32 in this version), got " + std::to_string(size));
    ulp_tensor_info info = {.struct_size = size};
    EXPECT_STATUS(ulp_engine_input(engine_.get(), 0, &info), ULP_INVALID_ARGUMENT, "info->struct_size");
  }
}

TEST_F(CArguments, AnOlderSmallerStructIsAccepted) {
  // The bytes behind an older program's struct are something else.
  struct Old {
    size_t struct_size = 2 * sizeof(size_t);
    const char* isa = "portable";
    std::array<unsigned char, 64> behind{};
  } old;
  old.behind.fill(0xAB);
  const std::vector<std::byte> file = file_of(plan_);
  ulp_engine* made = nullptr;
  ASSERT_EQ(ulp_engine_load_memory(file.data(), file.size(),
                                   reinterpret_cast<const ulp_engine_options*>(&old), &made),
            ULP_OK)
      << ulp_last_error();
  const EngineHandle engine(made);
  const char* isa = nullptr;
  ASSERT_EQ(ulp_engine_isa(made, &isa), ULP_OK);
  EXPECT_STREQ(isa, "portable");

  struct OldInfo {
    size_t struct_size = 3 * sizeof(size_t);
    const char* name = nullptr;
    int32_t dtype = -1, layout = -1;
    std::array<unsigned char, 128> behind{};
  } info;
  info.behind.fill(0xAB);
  const auto untouched = info.behind;
  ASSERT_EQ(ulp_engine_input(made, 0, reinterpret_cast<ulp_tensor_info*>(&info)), ULP_OK) << ulp_last_error();
  EXPECT_EQ(info.name, plan_.tensors[static_cast<size_t>(plan_.inputs[0])].name);
  EXPECT_EQ(info.dtype, ULP_F32);
  EXPECT_EQ(info.behind, untouched);
  EXPECT_EQ(info.struct_size, 3 * sizeof(size_t));
}

TEST_F(CArguments, ANewerStructIsAcceptedWhereItAsksForNothingNew) {
  struct Newer {
    ulp_context_options known{};
    int64_t later = 0;
  } newer;
  newer.known.struct_size = sizeof newer;
  newer.known.threads = 1;
  ulp_context* made = nullptr;
  EXPECT_EQ(ulp_context_create(engine_.get(), &newer.known, &made), ULP_OK) << ulp_last_error();
  ulp_context_destroy(made);
  newer.later = 1;
  EXPECT_STATUS(ulp_context_create(engine_.get(), &newer.known, &made), ULP_INVALID_ARGUMENT,
                "newer than this library");
  newer.later = 0;
  newer.known.reserved = 3;
  EXPECT_STATUS(ulp_context_create(engine_.get(), &newer.known, &made), ULP_INVALID_ARGUMENT,
                "reserved to be 0, got 3");

  struct NewerInfo {
    ulp_tensor_info known{};
    int64_t later = -1;
  } info;
  info.known.struct_size = sizeof info;
  ASSERT_EQ(ulp_engine_input(engine_.get(), 0, &info.known), ULP_OK) << ulp_last_error();
  EXPECT_EQ(info.later, 0);
}

TEST_F(CArguments, OptionsAreChecked) {
  const std::vector<std::byte> file = file_of(plan_);
  const auto load = [&](const ulp_engine_options& options) {
    ulp_engine* made = nullptr;
    const ulp_status status = ulp_engine_load_memory(file.data(), file.size(), &options, &made);
    EXPECT_EQ(made == nullptr, status != ULP_OK);
    ulp_engine_destroy(made);
    return status;
  };
  EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .isa = "avx9000"}), ULP_INVALID_ARGUMENT,
                "'avx9000'");
  EXPECT_SAYS(std::string(ulp_last_error()), "'portable'");
  for (const int32_t wrong : {-1, 3, INT32_MAX}) {
    EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .sparse_weights = wrong}),
                  ULP_INVALID_ARGUMENT, "got " + std::to_string(wrong));
    EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .blocks = wrong}), ULP_INVALID_ARGUMENT,
                  "options->blocks to be a ulp_layer_blocks from 0 to 2, got " + std::to_string(wrong));
  }
  for (const double wrong : {-1e-9, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .error_budget = wrong}),
                  ULP_INVALID_ARGUMENT, "options->error_budget from 0 to 1");
  }
  EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .max_measuring_ms = -2}),
                ULP_INVALID_ARGUMENT, "max_measuring_ms");
  EXPECT_STATUS(load({.struct_size = sizeof(ulp_engine_options), .max_constant_bytes = 1}), ULP_REFUSED,
                "max_constant_bytes");
  EXPECT_EQ(load({.struct_size = sizeof(ulp_engine_options), .isa = ""}), ULP_OK) << ulp_last_error();
  ulp_context* context = nullptr;
  const ulp_context_options many = {.struct_size = sizeof many, .threads = INT32_MAX};
  EXPECT_STATUS(ulp_context_create(engine_.get(), &many, &context), ULP_REFUSED, "threads");
  const ulp_context_options flagged = {.struct_size = sizeof flagged, .flags = 2};
  EXPECT_STATUS(ulp_context_create(engine_.get(), &flagged, &context), ULP_INVALID_ARGUMENT,
                "flags to be 0 or ULP_OWN_THREADS (1), got 2");
  const ulp_context_options small = {.struct_size = sizeof small, .threads = 1, .max_arena_bytes = 1};
  ASSERT_EQ(ulp_context_create(engine_.get(), &small, &context), ULP_OK);
  EXPECT_STATUS(ulp_context_reserve(context, 1), ULP_REFUSED, "at most 1 bytes");
  ulp_context_destroy(context);
}

TEST_F(CArguments, EachErrorHasACode) {
  size_t bytes = 0;
  EXPECT_EQ(ulp_dtype_bytes(ULP_F32, nullptr), ULP_INVALID_ARGUMENT);
  EXPECT_EQ(ulp_last_error_code(), ULP_ERROR_BAD_ARGUMENT);
  EXPECT_STREQ(ulp_error_code_name(ulp_last_error_code()), "bad_argument");
  ulp_engine* made = nullptr;
  EXPECT_EQ(ulp_engine_load("there is no such file", nullptr, &made), ULP_FILE_ERROR);
  EXPECT_EQ(ulp_last_error_code(), ULP_ERROR_BAD_FILE);
  EXPECT_EQ(ulp_dtype_bytes(ULP_F32, &bytes), ULP_OK);
  EXPECT_EQ(ulp_last_error_code(), ULP_ERROR_BAD_FILE) << "a call that works leaves it";
  ulp_context* context = nullptr;
  const ulp_context_options small = {.struct_size = sizeof small, .threads = 1, .max_arena_bytes = 1};
  ASSERT_EQ(ulp_context_create(engine_.get(), &small, &context), ULP_OK);
  EXPECT_EQ(ulp_context_reserve(context, 1), ULP_REFUSED);
  EXPECT_EQ(ulp_last_error_code(), ULP_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(ulp_error_code_name(ulp_last_error_code()), "out_of_memory");
  ulp_context_destroy(context);
  int32_t elsewhere = -1;
  std::thread([&] { elsewhere = ulp_last_error_code(); }).join();
  EXPECT_EQ(elsewhere, ULP_ERROR_FAILED) << "it is each thread's own";
  for (const int32_t wrong : {-1, ULP_ERROR_INTERRUPTED + 1, INT32_MAX})
    EXPECT_STREQ(ulp_error_code_name(wrong), "unknown code");
}

#define EXPECT_CODE(call, code)                                 \
  do {                                                          \
    EXPECT_NE((call), ULP_OK);                                  \
    EXPECT_EQ(ulp_last_error_code(), code) << ulp_last_error(); \
  } while (false)

TEST_F(CArguments, ShapesThatAreWrongHaveACodeOfTheirOwn) {
  const EngineHandle engine = engine_of(any_width());
  const ContextHandle context = context_of(engine.get());
  int64_t batch = 0;
  const auto set = [&](std::vector<int64_t> sizes, size_t count = 1) {
    const ulp_shape shape = {sizes.data(), sizes.size()};
    return ulp_context_set_input_shapes(context.get(), &shape, count, &batch);
  };
  EXPECT_CODE(set({1, 3}), ULP_ERROR_BAD_SHAPE);         // dimensions
  EXPECT_CODE(set({1, 3, 12}, 2), ULP_ERROR_BAD_SHAPE);  // inputs
  EXPECT_CODE(set({1, 4, 6}), ULP_ERROR_BAD_SHAPE);      // a size
  EXPECT_CODE(set({1, 3, 14}), ULP_ERROR_BAD_SHAPE);     // a free size
  EXPECT_CODE(set({0, 3, 6}), ULP_ERROR_BAD_SHAPE);      // the batch
  EXPECT_CODE(ulp_context_set_size(context.get(), "width", 5), ULP_ERROR_BAD_SHAPE);
  EXPECT_CODE(ulp_context_set_size(context.get(), "height", 4), ULP_ERROR_BAD_ARGUMENT);
  EXPECT_CODE(ulp_context_size(context.get(), "height", &batch), ULP_ERROR_BAD_ARGUMENT);
  EXPECT_CODE(ulp_context_set_input_shapes(context.get(), nullptr, 1, &batch), ULP_ERROR_BAD_ARGUMENT);
  EXPECT_CODE(ulp_context_reserve(context.get(), 0), ULP_ERROR_BAD_SHAPE);
  EXPECT_CODE(run_buffers(0), ULP_ERROR_BAD_SHAPE);
  EXPECT_CODE(run_buffers(3), ULP_ERROR_BAD_SHAPE);
  EXPECT_CODE(run_buffers(INT64_MAX), ULP_ERROR_OUT_OF_MEMORY);
  EXPECT_CODE(ulp_context_run(context_.get(), 2, in_.data(), 0, out_.data(), 1), ULP_ERROR_BAD_SHAPE);
  EXPECT_CODE(ulp_context_run(context_.get(), 2, in_.data(), 1, out_.data(), 1), ULP_ERROR_BAD_SHAPE);
  in_[0].data = nullptr;
  EXPECT_CODE(run_buffers(), ULP_ERROR_BAD_ARGUMENT);
}

TEST_F(CArguments, OptionsThatAreWrongHaveACodeOfTheirOwn) {
  ulp_context* context = nullptr;
  for (const int32_t wrong : {-1, 1025, INT32_MAX}) {
    const ulp_context_options options = {.struct_size = sizeof options, .threads = wrong};
    EXPECT_CODE(ulp_context_create(engine_.get(), &options, &context), ULP_ERROR_BAD_OPTION);
  }
  const ulp_context_options flagged = {.struct_size = sizeof flagged, .flags = 2};
  EXPECT_CODE(ulp_context_create(engine_.get(), &flagged, &context), ULP_ERROR_BAD_OPTION);
  const ulp_context_options reserved = {.struct_size = sizeof reserved, .reserved = 1};
  EXPECT_CODE(ulp_context_create(engine_.get(), &reserved, &context), ULP_ERROR_BAD_OPTION);
  const ulp_context_options sized = {.struct_size = 1};
  EXPECT_CODE(ulp_context_create(engine_.get(), &sized, &context), ULP_ERROR_BAD_ARGUMENT);
  ulp_engine* made = nullptr;
  const std::vector<std::byte> file = file_of(plan_);
  const auto load = [&](const ulp_engine_options& options) {
    return ulp_engine_load_memory(file.data(), file.size(), &options, &made);
  };
  constexpr size_t kSize = sizeof(ulp_engine_options);
  EXPECT_CODE(load({.struct_size = kSize, .sparse_weights = 3}), ULP_ERROR_BAD_OPTION);
  EXPECT_CODE(load({.struct_size = kSize, .blocks = -1}), ULP_ERROR_BAD_OPTION);
  EXPECT_CODE(load({.struct_size = kSize, .error_budget = 2}), ULP_ERROR_BAD_OPTION);
  EXPECT_CODE(load({.struct_size = kSize, .max_measuring_ms = -2}), ULP_ERROR_BAD_OPTION);
  EXPECT_CODE(load({.struct_size = kSize, .isa = "avx9000"}), ULP_ERROR_UNAVAILABLE);
}

TEST_F(CArguments, RowsOfTheBatchAreCountedWithoutOverflow) {
  constexpr int64_t kTimes = 1000, kMost = std::numeric_limits<int64_t>::max();
  const EngineHandle engine = engine_of(with_rows_of(kTimes));
  const ContextHandle context = context_of(engine.get());
  int64_t batch = 0;
  const auto set = [&](int64_t items, int64_t rows) {
    const int64_t first[] = {items, 2}, second[] = {rows, 2};
    const ulp_shape shapes[] = {{first, 2}, {second, 2}};
    return ulp_context_set_input_shapes(context.get(), shapes, 2, &batch);
  };
  ASSERT_EQ(set(3, 3000), ULP_OK) << ulp_last_error();
  EXPECT_EQ(batch, 3);
  EXPECT_STATUS(set(3, 2999), ULP_INVALID_ARGUMENT, "to be [batch * 1000, 2] with batch 3, got [2999, 2]");
  EXPECT_STATUS(set(kMost, 3000), ULP_INVALID_ARGUMENT, "got [3000, 2]");
  // 2^61 * 1000 is 0 where it wraps around, and 2^61 + 1 rows would be 1000.
  EXPECT_STATUS(set((int64_t{1} << 61) + 1, 1000), ULP_INVALID_ARGUMENT, "got [1000, 2]");
  EXPECT_STATUS(set(kMost, kMost), ULP_INVALID_ARGUMENT, "[batch * 1000, 2]");
  EXPECT_EQ(batch, 3);
  size_t bytes = 0;
  EXPECT_EQ(ulp_context_input_bytes(context.get(), 1, 3, &bytes), ULP_OK);
  EXPECT_EQ(bytes, 3 * kTimes * 2 * sizeof(float));
  EXPECT_STATUS(ulp_context_input_bytes(context.get(), 1, kMost / 1000, &bytes), ULP_INVALID_ARGUMENT,
                "memory can hold");
}

TEST_F(CArguments, IndicesAndNumbersAreChecked) {
  ulp_tensor_info info = {.struct_size = sizeof info};
  ulp_free_dimension free = {.struct_size = sizeof free};
  size_t bytes = 0;
  const char* name = nullptr;
  for (const size_t wrong : {size_t{2}, std::numeric_limits<size_t>::max()}) {
    EXPECT_STATUS(ulp_engine_input(engine_.get(), wrong, &info), ULP_INVALID_ARGUMENT, "below 1 of inputs");
    EXPECT_STATUS(ulp_context_output(context_.get(), wrong, &info), ULP_INVALID_ARGUMENT,
                  "below 2 of outputs");
    EXPECT_STATUS(ulp_context_input_bytes(context_.get(), wrong, 1, &bytes), ULP_INVALID_ARGUMENT, "inputs");
    EXPECT_STATUS(ulp_engine_free_dimension(engine_.get(), wrong, &free), ULP_INVALID_ARGUMENT,
                  "below 0 of free");
  }
  EXPECT_STATUS(ulp_isa_name(1000, &name), ULP_INVALID_ARGUMENT, "instruction sets");
  for (const int32_t wrong : {-1, kDataTypeCount, INT32_MIN})
    EXPECT_STATUS(ulp_dtype_bytes(wrong, &bytes), ULP_INVALID_ARGUMENT, "got " + std::to_string(wrong));
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_STATUS(run_buffers(wrong), ULP_INVALID_ARGUMENT, "batch of at least 1");
    EXPECT_STATUS(ulp_context_input_bytes(context_.get(), 0, wrong, &bytes), ULP_INVALID_ARGUMENT,
                  "at least 1");
    EXPECT_STATUS(ulp_context_reserve(context_.get(), wrong), ULP_INVALID_ARGUMENT, "at least 1");
  }
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_STATUS(run_buffers(huge), ULP_INVALID_ARGUMENT, "memory can hold");
  EXPECT_STATUS(ulp_context_output_bytes(context_.get(), 0, huge, &bytes), ULP_INVALID_ARGUMENT,
                "memory can hold");
  EXPECT_STATUS(ulp_context_reserve(context_.get(), huge), ULP_REFUSED, "memory of this machine");
  EXPECT_STATUS(ulp_context_rewind(context_.get(), -1), ULP_INVALID_ARGUMENT, "got -1");
  EXPECT_EQ(run_buffers(), ULP_OK) << ulp_last_error();
}

TEST_F(CArguments, BuffersAreChecked) {
  const std::string name = plan_.tensors[static_cast<size_t>(plan_.inputs[0])].name;
  EXPECT_STATUS(ulp_context_run(context_.get(), 2, in_.data(), 0, out_.data(), 1), ULP_INVALID_ARGUMENT,
                "expected 1 inputs, got 0");
  EXPECT_STATUS(ulp_context_run(context_.get(), 2, in_.data(), 1, out_.data(), 9), ULP_INVALID_ARGUMENT,
                "expected 2 outputs, got 9");
  const ulp_const_buffer good = in_[0];
  in_[0].bytes -= 1;
  EXPECT_STATUS(run_buffers(), ULP_INVALID_ARGUMENT,
                "inputs[0] '" + name + "' to have " + std::to_string(good.bytes));
  in_[0] = {nullptr, good.bytes};
  EXPECT_STATUS(run_buffers(), ULP_INVALID_ARGUMENT, "to have data, got NULL");
  Bytes shifted(good.bytes + 1);
  in_[0] = {shifted.data() + 1, good.bytes};
  EXPECT_STATUS(run_buffers(), ULP_INVALID_ARGUMENT, "multiple of 4 bytes");
  in_[0] = good;
  EXPECT_STATUS(run_buffers(3), ULP_INVALID_ARGUMENT, "batch 3");
  Bytes together(good.bytes + out_[0].bytes);
  in_[0] = {together.data(), good.bytes};
  const ulp_buffer separate = out_[0];
  out_[0] = {together.data() + good.bytes - 4, separate.bytes};
  EXPECT_STATUS(run_buffers(), ULP_INVALID_ARGUMENT, "outputs[0] on inputs[0]");
  out_[0].data = together.data() + good.bytes;
  const ulp_buffer second = out_[1];
  out_[1].data = out_[0].data;
  EXPECT_STATUS(run_buffers(), ULP_INVALID_ARGUMENT, "outputs[1] on outputs[0]");
  out_[1] = second;
  EXPECT_EQ(run_buffers(), ULP_OK) << ulp_last_error();
}

TEST_F(CArguments, ShapesAreChecked) {
  const EngineHandle engine = engine_of(any_width());
  const ContextHandle context = context_of(engine.get());
  int64_t batch = -7;
  const auto set = [&](std::vector<int64_t> sizes, size_t count = 1) {
    const ulp_shape shape = {sizes.data(), sizes.size()};
    return ulp_context_set_input_shapes(context.get(), &shape, count, &batch);
  };
  ASSERT_EQ(ulp_context_set_size(context.get(), "width", 4), ULP_OK);
  EXPECT_STATUS(set({1, 3}), ULP_INVALID_ARGUMENT, "[batch, 3, 12], got 2");
  EXPECT_STATUS(set({1, 3, 12}, 2), ULP_INVALID_ARGUMENT, "shapes of 1 inputs, got 2");
  EXPECT_STATUS(set({1, 3, 14}), ULP_INVALID_ARGUMENT, "14");
  EXPECT_STATUS(set({1, 3, 3}), ULP_INVALID_ARGUMENT, "multiple");
  EXPECT_STATUS(set({1, 4, 6}), ULP_INVALID_ARGUMENT, "[batch, 3, 6] with batch 1, got [1, 4, 6]");
  EXPECT_STATUS(set({0, 3, 6}), ULP_INVALID_ARGUMENT, "got [0, 3, 6]");
  EXPECT_STATUS(set({-5, 3, 6}), ULP_INVALID_ARGUMENT, "got [-5, 3, 6]");
  EXPECT_STATUS(set({ULP_BATCH, 3, 6}), ULP_INVALID_ARGUMENT, "with a batch of at least 1, got [-1, 3, 6]");
  const ulp_shape without = {nullptr, 3};
  EXPECT_STATUS(ulp_context_set_input_shapes(context.get(), &without, 1, &batch), ULP_INVALID_ARGUMENT,
                "NULL");
  EXPECT_EQ(batch, -7);
  int64_t width = 0;
  ASSERT_EQ(ulp_context_size(context.get(), "width", &width), ULP_OK);
  EXPECT_EQ(width, 4) << "a refused shape changed the sizes";
  EXPECT_STATUS(ulp_context_set_size(context.get(), "height", 4), ULP_INVALID_ARGUMENT, "'height'");
  EXPECT_STATUS(ulp_context_set_size(context.get(), "width", 5), ULP_INVALID_ARGUMENT, "5");
  EXPECT_STATUS(ulp_context_size(context.get(), "", &width), ULP_INVALID_ARGUMENT, "'width'");
}

TEST_F(CArguments, BadIdsAreRefused) {
  const Plan plan = small_text_network();
  const EngineHandle engine = engine_of(plan);
  const ContextHandle context = context_of(engine.get());
  std::vector<Bytes> inputs = make_inputs(plan, 1, 1);
  for (Bytes& bytes : inputs) std::fill(bytes.begin(), bytes.end(), std::byte{0x7F});
  std::vector<Bytes> outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    size_t bytes = 0;
    ASSERT_EQ(ulp_context_output_bytes(context.get(), i, 1, &bytes), ULP_OK);
    outputs.emplace_back(bytes);
  }
  const auto in = const_buffers(inputs);
  const auto out = buffers(outputs);
  EXPECT_STATUS(ulp_context_run(context.get(), 1, in.data(), in.size(), out.data(), out.size()), ULP_REFUSED,
                "id");
}

TEST_F(CArguments, DamagedBytesAreFileErrors) {
  const std::vector<std::byte> file = file_of(plan_);
  ulp_engine* made = nullptr;
  for (size_t size = 0; size < file.size(); size += 1 + size / 64) {
    const std::vector<std::byte> prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(ulp_engine_load_memory(size == 0 ? file.data() : prefix.data(), size, nullptr, &made),
              ULP_FILE_ERROR)
        << size;
    ASSERT_EQ(made, nullptr);
    ASSERT_TRUE(ulp::test::contains(ulp_last_error(), "bytes in memory")) << ulp_last_error();
  }
  int refused = 0, accepted = 0;
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> changed = file;
    for (int64_t n = random.integer(1, 4); n > 0; --n)
      changed[static_cast<size_t>(random.integer(0, 2000))] = static_cast<std::byte>(random.integer(0, 255));
    const ulp_status status = ulp_engine_load_memory(changed.data(), changed.size(), nullptr, &made);
    EXPECT_TRUE(status == ULP_OK || status == ULP_FILE_ERROR || status == ULP_REFUSED) << ulp_last_error();
    EXPECT_EQ(made != nullptr, status == ULP_OK);
    (status == ULP_OK ? accepted : refused) += 1;
    ulp_engine_destroy(made);
  }
  EXPECT_GT(refused, 100);
  EXPECT_STATUS(ulp_engine_load("/", nullptr, &made), ULP_FILE_ERROR, "which is not one");
}

TEST_F(CArguments, LongMessagesAreCutInTheirPlace) {
  const std::string path(20000, 'x');
  ulp_engine* made = nullptr;
  EXPECT_EQ(ulp_engine_load(path.c_str(), nullptr, &made), ULP_FILE_ERROR);
  const std::string said = ulp_last_error();
  EXPECT_EQ(said.size(), 4095u);
  EXPECT_TRUE(said.ends_with("xxx..."));
}

TEST_F(CArguments, TwoCallsOnOneContextDoNotMeet) {
  // Calls of two threads either pass or say that they met; results are right whenever they pass.
  const std::vector<Bytes> expected = outputs_;
  std::array<int, 2> passed{}, wrong{};
  const auto call = [&](size_t caller) {
    std::vector<Bytes> own = expected;
    for (int i = 0; i < 200; ++i) {
      for (Bytes& bytes : own) std::fill(bytes.begin(), bytes.end(), std::byte{0});
      const std::vector<ulp_buffer> out = buffers(own);
      const ulp_status status =
          ulp_context_run(context_.get(), 2, in_.data(), in_.size(), out.data(), out.size());
      const std::string said = ulp_last_error();
      if (status == ULP_OK) passed[caller] += 1;
      if (status == ULP_OK ? own != expected : said.find("one call at a time") == std::string::npos)
        wrong[caller] += 1;
    }
  };
  std::thread other(call, 1);
  call(0);
  other.join();
  EXPECT_GT(passed[0] + passed[1], 0);
  EXPECT_EQ(wrong[0] + wrong[1], 0);
}

}  // namespace
}  // namespace ulp::runtime
