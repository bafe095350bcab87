// A teacher's values kept by sample, so that each sample goes through the teacher once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/distill/teacher.h"

namespace ulp::distill {

/// Where and of what the values are kept.
struct CacheOptions {
  int64_t samples = 0;              ///< of the data set; they are numbered from 0
  std::filesystem::path path = {};  ///< a file that holds them between runs; empty: memory alone
  std::string of = {};              ///< what teacher and data the file is for; another file is refused
  bool half = false;                ///< keep fp16 instead of the values' own type
};

/// A teacher that asks `teacher` for the samples that it has not seen. The inputs of a sample must be the same each time: no
/// augmentation.
class ULP_API TeacherCache final : public Teacher {
 public:
  /// Reads the file where there is one. Throws ulp::Error for no samples, and FileError for a damaged file or one of another
  /// teacher or other data.
  TeacherCache(std::shared_ptr<Teacher> teacher, CacheOptions options);
  ~TeacherCache() override;

  /// Throws ulp::Error without numbers of samples, or for one outside the data set.
  std::vector<at::Tensor> values(const TeacherBatch& batch) override;
  size_t count() const override;
  std::string description() const override;

  int64_t known() const;  ///< samples that are kept
  /// Writes the file, atomically, where samples were asked for since it was read or written; nothing without a path.
  void save();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distill
