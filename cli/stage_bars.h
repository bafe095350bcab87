// Progress of work in stages.
#pragma once

#include <memory>
#include <string>

#include "ulp/app/quantize/quantize_run.h"
#include "ulp/report/progress.h"

namespace ulp::cli {

/// A bar for each stage in turn.
class StageBars {
 public:
  void show(const app::Stage& stage) {
    if (!bar_ || stage.title != title_) {
      bar_.reset();
      bar_ = std::make_unique<report::Progress>(stage.title, stage.total,
                                                report::ProgressOptions{.unit = stage.unit});
      title_ = stage.title;
    }
    bar_->update(stage.done, stage.note);
  }

 private:
  std::unique_ptr<report::Progress> bar_;
  std::string title_;
};

}  // namespace ulp::cli
