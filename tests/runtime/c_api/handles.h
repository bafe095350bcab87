// Engines and contexts of the C API that end by themselves, and plans to make them of.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "../support.h"
#include "error_of.h"
#include "ulp/ulp_runtime.h"

namespace ulp::runtime::testing {

struct DestroyEngine {
  void operator()(ulp_engine* engine) const { ulp_engine_destroy(engine); }
};
struct DestroyContext {
  void operator()(ulp_context* context) const { ulp_context_destroy(context); }
};
using EngineHandle = std::unique_ptr<ulp_engine, DestroyEngine>;
using ContextHandle = std::unique_ptr<ulp_context, DestroyContext>;

/// The bytes of the plan's engine file.
std::vector<std::byte> file_of(const Plan& plan);

/// Fails the test where the library refuses.
EngineHandle engine_of(const Plan& plan);
ContextHandle context_of(const ulp_engine* engine, int threads = 1);

/// Inputs as a run takes them.
std::vector<ulp_const_buffer> const_buffers(const std::vector<Bytes>& bytes);
std::vector<ulp_buffer> buffers(std::vector<Bytes>& bytes);

/// A run into buffers of the sizes that the context tells.
std::vector<Bytes> run(ulp_context* context, int64_t batch, const std::vector<Bytes>& inputs);

/// relu of [batch, 3, width], where any width from 1 to 12 that is a multiple of 2 is right.
Plan any_width();
/// relu of [batch, time], whose runs continue each other along time up to 8.
Plan decoding_dimension();

/// relu of [batch, 2], and of rows [times * batch, 2].
Plan with_rows_of(int64_t times);
/// relu of [batch, 5, 2] whose result is rows [5 * batch, 2].
Plan time_by_batch();

}  // namespace ulp::runtime::testing

/// EXPECT that a call fails with this status and a message that has this part.
#define EXPECT_STATUS(call, status, part)             \
  do {                                                \
    EXPECT_EQ((call), (status)) << ulp_last_error();  \
    EXPECT_SAYS(std::string(ulp_last_error()), part); \
  } while (false)
