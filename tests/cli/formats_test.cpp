// `ulp formats`: the tables, conversions, the page of the documentation, and wrong use.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;

nlohmann::json json_of(const Workshop& shop, const std::string& args) {
  const Outcome outcome = shop.ulp("formats " + args + " --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

TEST(Formats, ShowBitsValueAndError) {
  const Workshop shop;
  const auto rows = json_of(shop, "0.1 --as e4m3,bf16");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["format"], "fp8_e4m3");
  EXPECT_EQ(rows[0]["code"], "0x1d");
  EXPECT_EQ(rows[0]["bits"], "0 0011 101");
  EXPECT_EQ(rows[0]["value"], "0.1015625");
  EXPECT_EQ(rows[0]["error"], "0.0015625");
  EXPECT_EQ(rows[1]["bits"], "0 01111011 1001101");
  EXPECT_EQ(rows[1]["value"], "0.10009765625");
}

TEST(Formats, PrintValuesExactly) {
  const Workshop shop;
  EXPECT_EQ(json_of(shop, "0.1 --as fp32")[0]["value"], "0.100000001490116119384765625");
  EXPECT_EQ(json_of(shop, "1e-30 --as e8m0")[0]["value"],
            "7.888609052210118054117285652827862296732064351090230047702789306640625e-31");
  EXPECT_EQ(json_of(shop, "1e99 --as bf16 --rounding toward_zero")[0]["value"],
            "338953138925153547590470800371487866880");
  const auto wide = json_of(shop, "0.123456789012345 --as fp64")[0];
  EXPECT_EQ(wide["number"], "0.123456789012345");
  EXPECT_EQ(wide["value"], "0.1234567890123449973582836491914349608123302459716796875");
  // The longest of all: 2^-126 - 2^-149.
  const auto longest = json_of(shop, "0x1.fffffcp-127 --as fp32")[0];
  EXPECT_EQ(longest["value"].get<std::string>().size(), sizeof("1.") - 1 + 111 + sizeof("e-38") - 1);
  EXPECT_EQ(longest["error"], "0");
}

TEST(Formats, TakeNegativeHexadecimalAndSpecialNumbers) {
  const Workshop shop;
  EXPECT_EQ(json_of(shop, "-1.5 --as fp4_e2m1")[0]["bits"], "1 01 1");
  EXPECT_EQ(json_of(shop, "0x1p-24 --as fp16")[0]["code"], "0x0001");
  const auto overflowed = json_of(shop, "70000 --as fp16,e4m3fn,int8");
  EXPECT_EQ(overflowed[0]["value"], "inf");
  EXPECT_EQ(overflowed[1]["value"], "448");
  EXPECT_EQ(overflowed[2]["bits"], "01111111");
  EXPECT_EQ(json_of(shop, "inf --as bf16")[0]["error"], "0");
  EXPECT_EQ(json_of(shop, "nan --as bf16")[0]["value"], "nan");
  EXPECT_EQ(json_of(shop, "1.99 --as e5m2 --rounding toward_zero")[0]["value"], "1.75");
}

TEST(Formats, ListEveryFormatAndBlockFormat) {
  const Workshop shop;
  const auto json = json_of(shop, "");
  std::string names;
  for (const char* kind : {"formats", "blocks"}) {
    for (const auto& row : json[kind]) names += row["format"].get<std::string>() + ";";
  }
  for (const char* name : {"fp64;", "tf32;", "bf16;", "fp8_e4m3fnuz;", "fp8_e5m2;", "fp6_e2m3;", "fp4_e2m1;",
                           "e8m0;", "int2;", "binary;", "mxfp8_e4m3;", "mxfp6_e3m2;", "mxfp4;", "nvfp4;"}) {
    EXPECT_NE(names.find(name), std::string::npos) << name;
  }
}

TEST(Formats, ReportHasTheChartOfRanges) {
  const Workshop shop;
  const Outcome outcome = shop.ulp("formats 0.1 --as bf16 --report page.html");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string page = read_file(shop / "page.html");
  EXPECT_NE(page.find("\"kind\":\"ranges\""), std::string::npos);
  EXPECT_NE(page.find("0 01111011 1001101"), std::string::npos);
  expect_error(shop.ulp("formats --report none/page.html"), 1, "none");
}

TEST(Formats, ThePageOfTheDocumentationIsUpToDate) {
  const Outcome outcome = Workshop().ulp("formats --markdown");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, read_file(ULP_SOURCE_DIR "/docs/formats.md"))
      << "write it anew with: ulp formats --markdown > docs/formats.md";
}

TEST(Formats, WrongUseSaysWhatWasExpected) {
  const Workshop shop;
  expect_error(shop.ulp("formats 1 --as bf17"), 2, "fp8_e4m3fn");
  for (const char* value : {"abc", "0.1x", "''", "' 1'", "1,5"}) {
    expect_error(shop.ulp("formats " + std::string(value)), 2, "expected a number");
  }
  expect_error(shop.ulp("formats 1e999"), 2, "'1e999'");
  expect_error(shop.ulp("formats 1e-999"), 2, "'1e-999'");
  expect_error(shop.ulp("formats 1 --rounding up"), 2, "toward_zero");
}

}  // namespace
