#include "ulp/app/demo/demo.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <system_error>

#include "ulp/app/data/data.h"
#include "ulp/app/demo/demo_parts.h"
#include "ulp/base/error.h"

namespace ulp::app {

namespace {

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("app.run_demo", "could not make the folder '", folder.string(), "': ", error.message());
}

}  // namespace

report::Report run_demo(const DemoOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  make_folder(options.out);
  ModelSpec spec;
  spec.name = options.model;
  const DemoData data{.train = load_images(options.data, io::Split::train, spec),
                      .test = load_images(options.data, io::Split::test, spec),
                      .spec = spec};
  if (options.announce) options.announce(demo_parts(options, at::get_num_threads()));
  std::vector<TrainingRun> runs = train_all(data, options);
  const std::vector<Variant> variants = run_variants(data, runs, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report::Report report = make_report(runs, variants, options, seconds);
  report.write_json(options.out / "report.json");
  report.write_html(options.out / "report.html");
  return report;
}

}  // namespace ulp::app
