// The C API gives what the C++ API gives.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "handles.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

void expect_info(const ulp_tensor_info& info, const TensorInfo& expected) {
  EXPECT_EQ(info.name, expected.name);
  EXPECT_EQ(info.dtype, static_cast<int>(expected.type));
  EXPECT_EQ(info.layout, static_cast<int>(expected.layout));
  EXPECT_EQ(info.scale, expected.scale);
  EXPECT_EQ(info.zero_point, expected.zero_point);
  EXPECT_EQ(info.times, expected.times);
  EXPECT_EQ(info.outer, expected.outer);
  ASSERT_EQ(static_cast<size_t>(info.rank), expected.shape.size());
  for (size_t dim = 0; dim < ULP_MAX_RANK; ++dim)
    EXPECT_EQ(info.shape[dim], dim < expected.shape.size() ? expected.shape[dim] : 0) << dim;
}

TEST(CApi, GivesTheBitsOfTheEngine) {
  for (const Plan& plan : {small_network(Numbers::f32), small_network(Numbers::u8), small_text_network()}) {
    Engine expected(plan, {.threads = 1});
    const EngineHandle engine = engine_of(plan);
    for (const int threads : {1, 2}) {
      const ContextHandle context = context_of(engine.get(), threads);
      int32_t told = 0;
      EXPECT_EQ(ulp_context_threads(context.get(), &told), ULP_OK);
      EXPECT_EQ(told, threads);
      const ulp_context_options own = {
          .struct_size = sizeof own, .threads = threads, .flags = ULP_OWN_THREADS};
      ulp_context* made = nullptr;
      ASSERT_EQ(ulp_context_create(engine.get(), &own, &made), ULP_OK) << ulp_last_error();
      const ContextHandle alone(made);
      for (const int64_t batch : {1, 3, 17}) {
        const std::vector<Bytes> inputs = make_inputs(plan, batch, 5);
        EXPECT_EQ(run(context.get(), batch, inputs), run_engine(expected, batch, inputs)) << batch;
        EXPECT_EQ(run(alone.get(), batch, inputs), run_engine(expected, batch, inputs)) << batch;
      }
    }
  }
}

TEST(CApi, DescribesInputsAndOutputs) {
  const Plan plan = small_network(Numbers::u8);
  const Engine expected(plan, {.threads = 1});
  const EngineHandle engine = engine_of(plan);
  const ContextHandle context = context_of(engine.get());
  size_t inputs = 0, outputs = 0;
  ASSERT_EQ(ulp_engine_input_count(engine.get(), &inputs), ULP_OK);
  ASSERT_EQ(ulp_engine_output_count(engine.get(), &outputs), ULP_OK);
  ASSERT_EQ(inputs, expected.inputs().size());
  ASSERT_EQ(outputs, expected.outputs().size());
  ulp_tensor_info info = {.struct_size = sizeof info};
  ASSERT_EQ(ulp_engine_input(engine.get(), 0, &info), ULP_OK);
  expect_info(info, expected.inputs()[0]);
  ASSERT_EQ(ulp_engine_output(engine.get(), 0, &info), ULP_OK);
  expect_info(info, expected.outputs()[0]);
  ASSERT_EQ(ulp_context_input(context.get(), 0, &info), ULP_OK);
  expect_info(info, expected.inputs()[0]);
  size_t bytes = 0;
  ASSERT_EQ(ulp_context_output_bytes(context.get(), 0, 7, &bytes), ULP_OK);
  EXPECT_EQ(bytes, byte_count(expected.outputs()[0], 7));
  uint64_t constants = 0;
  ASSERT_EQ(ulp_engine_constant_bytes(engine.get(), &constants), ULP_OK);
  EXPECT_EQ(constants, expected.constant_bytes());
}

TEST(CApi, LoadsFromAFile) {
  const TemporaryFolder folder;
  const Plan plan = small_network(Numbers::f32);
  plan.save(folder / "plan.ulp");
  ulp_engine* made = nullptr;
  const ulp_engine_options options = {.struct_size = sizeof options,
                                      .isa = "portable",
                                      .max_constant_bytes = 1 << 26,
                                      .max_arena_bytes = 1 << 26,
                                      .sparse_weights = ULP_SPARSE_NEVER};
  ASSERT_EQ(ulp_engine_load((folder / "plan.ulp").c_str(), &options, &made), ULP_OK) << ulp_last_error();
  const EngineHandle engine(made);
  const char* isa = nullptr;
  ASSERT_EQ(ulp_engine_isa(engine.get(), &isa), ULP_OK);
  EXPECT_STREQ(isa, "portable");
  Engine expected(plan, {.threads = 1, .isa = "portable"});
  const ContextHandle context = context_of(engine.get());
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  EXPECT_EQ(run(context.get(), 2, inputs), run_engine(expected, 2, inputs));
}

TEST(CApi, NamesTheInstructionSetsOfTheMachine) {
  const std::vector<kernels::Isa> expected = kernels::available_isas();
  size_t count = 0;
  ASSERT_EQ(ulp_isa_count(&count), ULP_OK);
  ASSERT_EQ(count, expected.size());
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    ASSERT_EQ(ulp_isa_name(i, &name), ULP_OK);
    EXPECT_STREQ(name, to_string(expected[i]));
  }
}

TEST(CApi, NamesTypesAndStatuses) {
  for (int32_t i = 0; i < kDataTypeCount; ++i) {
    size_t bytes = 0;
    const char* name = nullptr;
    ASSERT_EQ(ulp_dtype_bytes(i, &bytes), ULP_OK);
    ASSERT_EQ(ulp_dtype_name(i, &name), ULP_OK);
    EXPECT_EQ(static_cast<int64_t>(bytes), kDataTypes[i].bytes);
    EXPECT_STREQ(name, kDataTypes[i].name);
  }
  EXPECT_STREQ(ulp_status_name(ULP_OK), "ok");
  EXPECT_STREQ(ulp_status_name(ULP_INTERNAL_ERROR), "internal error");
  for (const int32_t wrong : {-1, ULP_INTERNAL_ERROR + 1, INT32_MAX, INT32_MIN})
    EXPECT_STREQ(ulp_status_name(wrong), "unknown status");
  EXPECT_STREQ(ulp_version(), ULP_VERSION);
}

TEST(CApi, SizesOfFreeDimensionsAreSetByNameAndByShapes) {
  const EngineHandle engine = engine_of(any_width());
  size_t count = 0;
  ASSERT_EQ(ulp_engine_free_dimension_count(engine.get(), &count), ULP_OK);
  ASSERT_EQ(count, 1u);
  ulp_free_dimension free = {.struct_size = sizeof free};
  ASSERT_EQ(ulp_engine_free_dimension(engine.get(), 0, &free), ULP_OK);
  EXPECT_STREQ(free.name, "width");
  EXPECT_EQ(free.min, 2);
  EXPECT_EQ(free.max, 12);
  EXPECT_EQ(free.multiple, 2);
  EXPECT_EQ(free.continued, 0);

  const ContextHandle context = context_of(engine.get());
  int64_t size = 0;
  ASSERT_EQ(ulp_context_size(context.get(), "width", &size), ULP_OK);
  EXPECT_EQ(size, 12);
  ASSERT_EQ(ulp_context_set_size(context.get(), "width", 4), ULP_OK) << ulp_last_error();
  ulp_tensor_info info = {.struct_size = sizeof info};
  ASSERT_EQ(ulp_context_output(context.get(), 0, &info), ULP_OK);
  EXPECT_EQ(info.shape[2], 4);

  const int64_t sizes[] = {5, 3, 6};
  const ulp_shape shape = {sizes, 3};
  int64_t batch = 0;
  ASSERT_EQ(ulp_context_set_input_shapes(context.get(), &shape, 1, &batch), ULP_OK) << ulp_last_error();
  EXPECT_EQ(batch, 5);
  ASSERT_EQ(ulp_context_input(context.get(), 0, &info), ULP_OK);
  EXPECT_EQ(info.shape[2], 6);
  Bytes in(5 * 3 * 6 * sizeof(float));
  const float below = -2.0F, above = 2.0F;
  std::memcpy(in.data(), &below, sizeof below);
  std::memcpy(in.data() + sizeof below, &above, sizeof above);
  const Bytes out = run(context.get(), batch, {in})[0];
  ASSERT_EQ(out.size(), in.size());
  EXPECT_EQ(std::memcmp(out.data(), "\0\0\0\0", 4), 0);
  EXPECT_EQ(std::memcmp(out.data() + 4, &above, 4), 0);
}

TEST(CApi, TellsWhereTheRowsOfAResultStand) {
  const Plan plan = time_by_batch();
  const EngineHandle engine = engine_of(plan);
  const ContextHandle context = context_of(engine.get());
  ulp_tensor_info info = {.struct_size = sizeof info};
  ASSERT_EQ(ulp_context_output(context.get(), 0, &info), ULP_OK);
  EXPECT_EQ(info.shape[0], ULP_BATCH);
  EXPECT_EQ(info.times, 5);
  EXPECT_EQ(info.outer, 5);
  ASSERT_EQ(ulp_engine_input(engine.get(), 0, &info), ULP_OK);
  EXPECT_EQ(info.times, 1);
  EXPECT_EQ(info.outer, 1);
  // A caller can put batches together by it: rows of time stand apart by the batch.
  const std::vector<Bytes> inputs = make_inputs(plan, 3, 1);
  const Bytes whole = run(context.get(), 3, inputs)[0];
  size_t bytes = 0;
  ASSERT_EQ(ulp_context_output_bytes(context.get(), 0, 3, &bytes), ULP_OK);
  ASSERT_EQ(whole.size(), bytes);
  const size_t row = 2 * sizeof(float), item = 5 * row;
  for (size_t i = 0; i < 3; ++i) {
    const Bytes one(inputs[0].begin() + static_cast<std::ptrdiff_t>(i * item),
                    inputs[0].begin() + static_cast<std::ptrdiff_t>((i + 1) * item));
    const Bytes got = run(context.get(), 1, {one})[0];
    for (size_t time = 0; time < 5; ++time)
      EXPECT_EQ(std::memcmp(whole.data() + (time * 3 + i) * row, got.data() + time * row, row), 0);
  }
}

TEST(CApi, RunsContinueEachOther) {
  const EngineHandle engine = engine_of(decoding_dimension());
  ulp_free_dimension free = {.struct_size = sizeof free};
  ASSERT_EQ(ulp_engine_free_dimension(engine.get(), 0, &free), ULP_OK);
  EXPECT_EQ(free.continued, 1);
  const ContextHandle context = context_of(engine.get());
  ASSERT_EQ(ulp_context_set_size(context.get(), "time", 3), ULP_OK);
  int64_t position = -1;
  for (const int64_t expected : {0, 3, 6}) {
    ASSERT_EQ(ulp_context_position(context.get(), &position), ULP_OK);
    EXPECT_EQ(position, expected);
    if (expected < 6) run(context.get(), 1, {Bytes(3 * sizeof(float))});
  }
  const Bytes in(3 * sizeof(float));
  Bytes out(in.size());
  const ulp_const_buffer input = {in.data(), in.size()};
  const ulp_buffer output = {out.data(), out.size()};
  EXPECT_STATUS(ulp_context_run(context.get(), 1, &input, 1, &output, 1), ULP_REFUSED,
                "at most 2 more of 'time'");
  EXPECT_STATUS(ulp_context_rewind(context.get(), 7), ULP_INVALID_ARGUMENT, "0 to 6");
  ASSERT_EQ(ulp_context_rewind(context.get(), 3), ULP_OK);
  EXPECT_EQ(ulp_context_run(context.get(), 1, &input, 1, &output, 1), ULP_OK) << ulp_last_error();
}

TEST(CApi, AContextAndItsNamesOutliveTheEngine) {
  const Plan plan = small_network(Numbers::f32);
  EngineHandle engine = engine_of(plan);
  const ContextHandle context = context_of(engine.get());
  Engine expected(plan, {.threads = 1});
  engine.reset();
  ulp_tensor_info info = {.struct_size = sizeof info};
  ASSERT_EQ(ulp_context_input(context.get(), 0, &info), ULP_OK);
  EXPECT_EQ(info.name, expected.inputs()[0].name);
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  EXPECT_EQ(run(context.get(), 2, inputs), run_engine(expected, 2, inputs));
}

TEST(CApi, ThreadsHaveContextsAndMessagesOfTheirOwn) {
  const Plan plan = small_network(Numbers::f32);
  const EngineHandle engine = engine_of(plan);
  Engine expected(plan, {.threads = 1});
  const std::vector<Bytes> inputs = make_inputs(plan, 4, 1);
  const std::vector<Bytes> wanted = run_engine(expected, 4, inputs);
  ulp_engine* none = nullptr;
  EXPECT_STATUS(ulp_engine_load("/nowhere/main.ulp", nullptr, &none), ULP_FILE_ERROR, "/nowhere/main.ulp");
  std::vector<std::thread> callers;
  std::vector<std::string> said(4);
  std::vector<std::vector<Bytes>> got(4);
  for (size_t i = 0; i < got.size(); ++i) {
    callers.emplace_back([&, i] {
      const ContextHandle context = context_of(engine.get());
      said[i] = ulp_last_error();
      for (int turn = 0; turn < 10; ++turn) got[i] = run(context.get(), 4, inputs);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], wanted);
    EXPECT_EQ(said[i], "");
  }
  EXPECT_SAYS(std::string(ulp_last_error()), "/nowhere/main.ulp");
}

TEST(CApi, ContextsFromBeforeForkRunInTheChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer lets a child of several threads start none";
#endif
  const Plan plan = small_network(Numbers::f32);
  EngineHandle engine = engine_of(plan);
  std::vector<ContextHandle> contexts;
  for (const int threads : {1, 3}) contexts.push_back(context_of(engine.get(), threads));
  const std::vector<Bytes> inputs = make_inputs(plan, 24, 1);
  const std::vector<Bytes> expected = run(contexts[0].get(), 24, inputs);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool good = true;
    for (const ContextHandle& context : contexts) good = good && run(context.get(), 24, inputs) == expected;
    {
      const ContextHandle anew = context_of(engine.get(), 2);
      good = good && run(anew.get(), 24, inputs) == expected;
    }
    contexts.clear();  // wait for nobody
    engine.reset();
    ::_exit(good && !::testing::Test::HasFailure() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const ContextHandle& context : contexts) EXPECT_EQ(run(context.get(), 24, inputs), expected);
}

TEST(CApi, ReserveTakesTheMemory) {
  const EngineHandle engine = engine_of(small_network(Numbers::f32));
  const ContextHandle context = context_of(engine.get());
  uint64_t before = 0, after = 0;
  ASSERT_EQ(ulp_context_arena_bytes(context.get(), &before), ULP_OK);
  ASSERT_EQ(ulp_context_reserve(context.get(), 8), ULP_OK);
  ASSERT_EQ(ulp_context_arena_bytes(context.get(), &after), ULP_OK);
  EXPECT_EQ(before, 0u);
  EXPECT_GT(after, 0u);
}

TEST(CApi, NothingIsLeftBehind) {
#ifndef ULP_SANITIZED
  const Plan plan = small_network(Numbers::f32);
  const std::vector<std::byte> file = file_of(plan);
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 1);
  const auto once = [&] {
    ulp_engine* engine = nullptr;
    ASSERT_EQ(ulp_engine_load_memory(file.data(), file.size(), nullptr, &engine), ULP_OK);
    const EngineHandle owned(engine);
    for (int i = 0; i < 5; ++i) run(context_of(engine).get(), 2, inputs);
    ulp_context* context = nullptr;
    EXPECT_EQ(ulp_context_create(nullptr, nullptr, &context), ULP_INVALID_ARGUMENT);
    EXPECT_EQ(ulp_engine_load_memory(file.data(), file.size() - 1, nullptr, &engine), ULP_FILE_ERROR);
  };
  for (int i = 0; i < 50; ++i)
    once();  // what is made once stays, and what each thread keeps for its next request
  // What threads keep for their next requests moves by some KB with the machine's load, once; a leak grows each time.
  size_t grown = 0;
  for (int round = 0; round < 5; ++round) {
    const size_t before = ::mallinfo2().uordblks;
    for (int i = 0; i < 100; ++i) once();
    const size_t after = ::mallinfo2().uordblks;
    grown = after > before ? after - before : 0;
    if (grown <= 4096) break;
  }
  EXPECT_LE(grown, 4096);
#endif
}

}  // namespace
}  // namespace ulp::runtime
