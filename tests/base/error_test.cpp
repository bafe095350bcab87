// Errors carry a code and places for programs, beside the text for people.
#include "ulp/base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ulp/base/component.h"
#include "ulp/base/fields.h"
#include "ulp/base/interrupt.h"

namespace {

using ulp::Error;
using ulp::ErrorCode;
using ulp::ErrorInfo;
using ulp::FileError;

template <typename Thrown = Error, typename Action>
Thrown thrown_by(const Action& action) {
  try {
    action();
  } catch (const Thrown& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error, got none";
  return Thrown("");
}

TEST(ErrorCodes, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::interrupted); ++code)
    names.insert(ulp::to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::interrupted) + 1);
  EXPECT_STREQ(ulp::to_string(ErrorCode::unsupported_op), "unsupported_op");
  EXPECT_STREQ(ulp::to_string(static_cast<ErrorCode>(99)), "unknown code");
  EXPECT_STREQ(ulp::to_string(static_cast<ErrorCode>(-1)), "unknown code");
}

TEST(ErrorCodes, AnErrorHasTheOneItIsThrownWith) {
  EXPECT_EQ(thrown_by([] { ulp::fail("room.function", "expected ", 1, ", got ", 2); }).code(),
            ErrorCode::failed);
  const Error shape = thrown_by([] { ulp::fail(ErrorCode::bad_shape, "room.function", "expected ", 1); });
  EXPECT_EQ(shape.code(), ErrorCode::bad_shape);
  EXPECT_STREQ(shape.what(), "[room.function] expected 1");
  EXPECT_TRUE(shape.places().empty());
  EXPECT_EQ(shape.op(), "");
  EXPECT_EQ(shape.node(), "");
}

TEST(ErrorCodes, PlacesNameOpsAndNodes) {
  const Error error = thrown_by([] {
    ulp::fail(
        {.code = ErrorCode::unsupported_op,
         .places = {{.op = "aten::renorm", .node = "renorm_1", .module = "block"}, {.op = "aten::kron"}}},
        "lower.lower", "no");
  });
  EXPECT_EQ(error.op(), "aten::renorm");
  EXPECT_EQ(error.node(), "renorm_1");
  ASSERT_EQ(error.places().size(), 2u);
  EXPECT_EQ(error.places()[0].module, "block");
  EXPECT_EQ(error.places()[1], (ulp::ErrorPlace{.op = "aten::kron"}));
  const Error more("more than that", error.info());
  EXPECT_EQ(more.code(), error.code());
  EXPECT_EQ(more.places(), error.places());
}

TEST(ErrorCodes, FileErrorsHaveTheirOwnUnlessTheySayMore) {
  EXPECT_EQ(thrown_by<FileError>([] { ulp::fail_file("room.function", "damaged"); }).code(),
            ErrorCode::bad_file);
  EXPECT_EQ(FileError("damaged").code(), ErrorCode::bad_file);
  EXPECT_EQ(FileError("damaged", thrown_by([] { ulp::fail("a.b", "c"); }).info()).code(),
            ErrorCode::bad_file);
  const FileError op = thrown_by<FileError>([] {
    ulp::fail_file({.code = ErrorCode::unsupported_op, .places = {{.op = "Einsum"}}}, "exchange.import_onnx",
                   "no");
  });
  EXPECT_EQ(op.code(), ErrorCode::unsupported_op);
  EXPECT_EQ(op.op(), "Einsum");
}

TEST(ErrorCodes, TypesHaveTheirs) {
  EXPECT_EQ(ulp::Interrupted().code(), ErrorCode::interrupted);
  struct Nothing {};
  EXPECT_EQ(thrown_by([] { ulp::Component<Nothing>("reports").functions("room.function"); }).code(),
            ErrorCode::unavailable);
  struct Options {
    int64_t batch = 0;
    void visit_fields(ulp::FieldVisitor& visit) { visit({.name = "batch", .help = "", .min = 1}, batch); }
  };
  EXPECT_EQ(thrown_by([] { ulp::check_limits("room.Options", Options{}); }).code(), ErrorCode::bad_option);
}

TEST(ErrorCodes, TheTextSaysWhereAndWhy) {
  const Error error("[room.function] expected [1, 2] in 'x'");
  EXPECT_EQ(error.where(), "room.function");
  EXPECT_EQ(error.reason(), "expected [1, 2] in 'x'");
  const Error plain("of no function");
  EXPECT_EQ(plain.where(), "");
  EXPECT_EQ(plain.reason(), "of no function");
}

}  // namespace
