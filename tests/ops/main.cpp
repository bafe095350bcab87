// Runs the tests, or with --page FILE writes the page of ops.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string_view>

#include "page.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--page") {
    std::ofstream file(argv[2]);
    file << ulp::test::ops_page();
    if (file.flush()) return 0;
    std::fprintf(stderr, "test_ops: cannot write %s\n", argv[2]);
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
