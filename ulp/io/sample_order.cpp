#include "ulp/io/sample_order.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/split_mix.h"

namespace ulp::io {

namespace {

constexpr uint64_t kOrderStream = ~uint64_t{0};

}  // namespace

SampleOrder::SampleOrder(const SampleOrderOptions& options) : options_(options) {
  if (options.samples < 1) fail("io.SampleOrder", "expected at least one sample, got ", options.samples);
  if (options.batch_size < 1) fail("io.SampleOrder", "expected batch_size >= 1, got ", options.batch_size);
  if (options.parts < 1 || options.part < 0 || options.part >= options.parts)
    fail("io.SampleOrder", "expected a part from 0 to ", options.parts - 1, ", got ", options.part);
  if (options.batch_size < options.parts)
    fail("io.SampleOrder", "expected batch_size >= ", options.parts, " parts, got ", options.batch_size);
  shuffle();
}

int64_t SampleOrder::batches() const {
  const int64_t size = options_.batch_size;
  return options_.drop_last ? options_.samples / size : (options_.samples + size - 1) / size;
}

void SampleOrder::shuffle() {
  order_.resize(static_cast<size_t>(options_.samples));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (!options_.shuffle) return;
  SplitMix random(options_.seed, static_cast<uint64_t>(epoch_), kOrderStream);
  for (size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

void SampleOrder::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  position_ = 0;
  shuffle();
}

std::span<const int64_t> SampleOrder::next() {
  const int64_t left = options_.samples - position_;
  if (left <= 0 || (options_.drop_last && left < options_.batch_size)) {
    start_epoch(epoch_ + 1);
    return {};
  }
  const int64_t count = std::min(left, options_.batch_size);
  const int64_t begin = count * options_.part / options_.parts,
                end = count * (options_.part + 1) / options_.parts;
  const std::span<const int64_t> batch(order_.data() + position_ + begin, static_cast<size_t>(end - begin));
  position_ += count;
  return batch;
}

std::string SampleOrder::state() const {
  return nlohmann::json{{"epoch", epoch_},
                        {"position", position_},
                        {"seed", options_.seed},
                        {"samples", options_.samples},
                        {"batch_size", options_.batch_size}}
      .dump();
}

void SampleOrder::restore(const std::string& state) {
  constexpr const char* kWhere = "io.SampleOrder.restore";
  int64_t epoch = 0, position = 0, samples = 0, batch_size = 0;
  uint64_t seed = 0;
  try {
    const auto json = parse_json(state);
    json.at("epoch").get_to(epoch);
    json.at("position").get_to(position);
    json.at("seed").get_to(seed);
    json.at("samples").get_to(samples);
    json.at("batch_size").get_to(batch_size);
  } catch (const nlohmann::json::exception& error) {
    fail_file(kWhere, "expected a loader's state, got '", state.substr(0, 80), "': ", error.what());
  }
  if (samples != options_.samples || batch_size != options_.batch_size) {
    fail_file(kWhere, "expected ", options_.samples, " samples in batches of ", options_.batch_size,
              ", got a state of ", samples, " in batches of ", batch_size);
  }
  if (epoch < 0 || position < 0 || position > samples) {
    fail_file(kWhere, "expected a position within the data set, got epoch ", epoch, ", position ", position);
  }
  options_.seed = seed;
  epoch_ = epoch;
  position_ = position;
  shuffle();
}

}  // namespace ulp::io
