// The functions of the C API on engines.
#include <algorithm>
#include <span>
#include <utility>

#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/c_api/handles.h"
#include "ulp/runtime/c_api/sized_struct.h"
#include "ulp/runtime/plan/verified_plan.h"

namespace ulp::runtime::c_api {
namespace {

static_assert(kBatch == ULP_BATCH && kMaxRank == ULP_MAX_RANK);
static_assert(static_cast<int>(Layout::plain) == ULP_PLAIN && static_cast<int>(Layout::nhwc) == ULP_NHWC);
static_assert(kLayoutCount == ULP_NHWC + 1);
static_assert(static_cast<int>(SparseWeights::measure) == ULP_SPARSE_MEASURE);
static_assert(static_cast<int>(SparseWeights::never) == ULP_SPARSE_NEVER);
static_assert(static_cast<int>(SparseWeights::always) == ULP_SPARSE_ALWAYS);
static_assert(static_cast<int>(DepthFirst::measure) == ULP_BLOCKS_MEASURE);
static_assert(static_cast<int>(DepthFirst::never) == ULP_BLOCKS_NEVER);
static_assert(static_cast<int>(DepthFirst::always) == ULP_BLOCKS_ALWAYS);

std::vector<std::string> names_of(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  return names;
}

/// The instruction set by name; empty: that of the environment, or the best one.
std::string checked_isa(const char* function, const char* name) {
  if (name == nullptr || *name == '\0') return {};
  std::string known;
  for (const kernels::Isa isa : kernels::available_isas()) {
    if (std::string(to_string(isa)) == name) return name;
    known += (known.empty() ? "'" : ", '") + std::string(to_string(isa)) + "'";
  }
  refuse(ErrorCode::unavailable, function, "expected options->isa to be an instruction set of this machine, ",
         known, ", got '", name, "'");
}

/// Contexts bring their own threads and memory: the engine's own context has one thread and is never run.
EngineOptions engine_options(const char* function, const ulp_engine_options* given) {
  const ulp_engine_options options = read_options(function, given);
  if (options.sparse_weights < ULP_SPARSE_MEASURE || options.sparse_weights > ULP_SPARSE_ALWAYS)
    refuse(ErrorCode::bad_option, function,
           "expected options->sparse_weights to be a ulp_sparse_weights from ", int{ULP_SPARSE_MEASURE},
           " to ", int{ULP_SPARSE_ALWAYS}, ", got ", options.sparse_weights);
  if (options.blocks < ULP_BLOCKS_MEASURE || options.blocks > ULP_BLOCKS_ALWAYS)
    refuse(ErrorCode::bad_option, function, "expected options->blocks to be a ulp_layer_blocks from ",
           int{ULP_BLOCKS_MEASURE}, " to ", int{ULP_BLOCKS_ALWAYS}, ", got ", options.blocks);
  if (!(options.error_budget >= 0 && options.error_budget <= 1))
    refuse(ErrorCode::bad_option, function, "expected options->error_budget from 0 to 1, got ",
           options.error_budget);
  if (options.max_measuring_ms < ULP_NO_TIME)
    refuse(ErrorCode::bad_option, function,
           "expected options->max_measuring_ms to be ULP_NO_TIME, 0 or more, got ", options.max_measuring_ms);
  EngineOptions made;
  made.threads = 1;
  made.isa = checked_isa(function, options.isa);
  made.max_constant_bytes = options.max_constant_bytes;
  made.max_arena_bytes = options.max_arena_bytes;
  made.sparse = static_cast<SparseWeights>(options.sparse_weights);
  made.blocks = static_cast<DepthFirst>(options.blocks);
  made.error_budget = options.error_budget;
  if (options.max_measuring_ms != 0)
    made.max_measuring_seconds = std::max(options.max_measuring_ms, 0) / 1000.0;
  if (options.sparse_table != nullptr) made.sparse_table = options.sparse_table;
  return made;
}

/// load(options) makes the Engine; `engine` is null after an error.
template <typename Load>
void load_engine(const char* function, const ulp_engine_options* options, ulp_engine** engine,
                 const Load& load) {
  expect_pointer(function, engine, "engine");
  *engine = nullptr;
  *engine = new ulp_engine{std::make_shared<const Loaded>(load(engine_options(function, options)))};
}

const Loaded& loaded(const char* function, const ulp_engine* engine) {
  expect_pointer(function, engine, "engine");
  return *engine->loaded;
}

/// What the call says of the engine, into `*result`.
template <typename Result, typename Call>
ulp_status ask(const char* function, const ulp_engine* engine, Result* result, const char* name,
               const Call& call) {
  return guarded(function, [&](const char* where) {
    const Loaded& asked = loaded(where, engine);
    expect_pointer(where, result, name);
    *result = call(asked);
  });
}

}  // namespace

Loaded::Loaded(Engine made)
    : engine(std::move(made)),
      isa(engine.isa()),
      input_names(names_of(engine.inputs())),
      output_names(names_of(engine.outputs())) {}

void write_tensor_info(const char* function, const std::vector<TensorInfo>& tensors,
                       const std::vector<std::string>& names, const char* kind, size_t index,
                       ulp_tensor_info* info) {
  expect_index(function, index, tensors.size(), kind);
  const TensorInfo& tensor = tensors[index];
  ulp_tensor_info made = {};
  made.name = names[index].c_str();
  made.dtype = static_cast<int32_t>(tensor.type);
  made.layout = static_cast<int32_t>(tensor.layout);
  made.rank = static_cast<int32_t>(tensor.shape.size());
  made.zero_point = tensor.zero_point;
  made.scale = tensor.scale;
  std::ranges::copy(tensor.shape, made.shape);
  made.times = tensor.times;
  made.outer = tensor.outer;
  write_struct(function, made, info, "info");
}

}  // namespace ulp::runtime::c_api

using namespace ulp::runtime;
using namespace ulp::runtime::c_api;

ulp_status ulp_engine_load(const char* path, const ulp_engine_options* options, ulp_engine** engine) {
  return guarded(__func__, [&](const char* where) {
    load_engine(where, options, engine, [&](const EngineOptions& made) {
      expect_pointer(where, path, "path");
      return Engine(std::filesystem::path(path), made);
    });
  });
}

ulp_status ulp_engine_load_memory(const void* bytes, size_t size, const ulp_engine_options* options,
                                  ulp_engine** engine) {
  return guarded(__func__, [&](const char* where) {
    load_engine(where, options, engine, [&](const EngineOptions& made) {
      expect_pointer(where, bytes, "bytes");
      return Engine(std::span(static_cast<const std::byte*>(bytes), size), made);
    });
  });
}

void ulp_engine_destroy(ulp_engine* engine) {
  delete engine;
}

ulp_status ulp_engine_input_count(const ulp_engine* engine, size_t* count) {
  return ask(__func__, engine, count, "count",
             [](const Loaded& asked) { return asked.engine.inputs().size(); });
}

ulp_status ulp_engine_output_count(const ulp_engine* engine, size_t* count) {
  return ask(__func__, engine, count, "count",
             [](const Loaded& asked) { return asked.engine.outputs().size(); });
}

ulp_status ulp_engine_input(const ulp_engine* engine, size_t index, ulp_tensor_info* info) {
  return guarded(__func__, [&](const char* where) {
    const Loaded& asked = loaded(where, engine);
    write_tensor_info(where, asked.engine.inputs(), asked.input_names, "inputs", index, info);
  });
}

ulp_status ulp_engine_output(const ulp_engine* engine, size_t index, ulp_tensor_info* info) {
  return guarded(__func__, [&](const char* where) {
    const Loaded& asked = loaded(where, engine);
    write_tensor_info(where, asked.engine.outputs(), asked.output_names, "outputs", index, info);
  });
}

ulp_status ulp_engine_free_dimension_count(const ulp_engine* engine, size_t* count) {
  return ask(__func__, engine, count, "count",
             [](const Loaded& asked) { return asked.engine.free().size(); });
}

ulp_status ulp_engine_free_dimension(const ulp_engine* engine, size_t index, ulp_free_dimension* dimension) {
  return guarded(__func__, [&](const char* where) {
    const Engine& asked = loaded(where, engine).engine;
    expect_index(where, index, asked.free().size(), "free dimensions");
    const ulp::DynamicDimension& free = asked.free()[index];
    ulp_free_dimension made = {};
    made.name = free.name.c_str();
    made.min = free.min;
    made.max = free.max;
    made.multiple = free.multiple;
    made.continued = free.name == asked.decoding_dimension() ? 1 : 0;
    write_struct(where, made, dimension, "dimension");
  });
}

ulp_status ulp_engine_isa(const ulp_engine* engine, const char** name) {
  return ask(__func__, engine, name, "name", [](const Loaded& asked) { return asked.isa.c_str(); });
}

ulp_status ulp_engine_constant_bytes(const ulp_engine* engine, uint64_t* bytes) {
  return ask(__func__, engine, bytes, "bytes",
             [](const Loaded& asked) { return static_cast<uint64_t>(asked.engine.constant_bytes()); });
}
