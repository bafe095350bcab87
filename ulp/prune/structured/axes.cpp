#include "ulp/prune/structured/axes.h"

#include <algorithm>
#include <numeric>

namespace ulp::prune {

namespace {

/// Of each position of a product, the position in one factor.
class FactorIndex {
 public:
  FactorIndex(const std::vector<Axis>& factors, size_t factor)
      : size_(static_cast<int64_t>(factors[factor].size())) {
    for (size_t i = factor + 1; i < factors.size(); ++i) inner_ *= static_cast<int64_t>(factors[i].size());
  }
  size_t operator()(size_t whole) const {
    return static_cast<size_t>(static_cast<int64_t>(whole) / inner_ % size_);
  }

 private:
  int64_t size_, inner_ = 1;
};

}  // namespace

Axis Axes::make(int64_t size) {
  Axis axis(static_cast<size_t>(size));
  std::iota(axis.begin(), axis.end(), static_cast<Position>(parent_.size()));
  parent_.insert(parent_.end(), axis.begin(), axis.end());
  reason_of_.resize(parent_.size(), -1);
  return axis;
}

Axis Axes::make_fixed(int64_t size, const std::string& reason) {
  const Axis one = make(1);
  fix(one, reason);
  return Axis(static_cast<size_t>(size), one[0]);
}

int32_t Axes::add_reason(const std::string& reason) {
  if (reasons_.empty() || reasons_.back() != reason) reasons_.push_back(reason);
  return static_cast<int32_t>(reasons_.size()) - 1;
}

void Axes::fix(Position position, int32_t reason) {
  int32_t& of = reason_of_[find(position)];
  if (of < 0) of = reason;
}

void Axes::fix(const Axis& axis, const std::string& reason) {
  const int32_t index = add_reason(reason);
  for (const Position position : axis) fix(position, index);
}

Position Axes::find(Position position) const {
  while (parent_[position] != position) {
    parent_[position] = parent_[parent_[position]];
    position = parent_[position];
  }
  return position;
}

void Axes::unite(Position a, Position b) {
  a = find(a);
  b = find(b);
  if (a == b) return;
  if (a > b) std::swap(a, b);
  parent_[b] = a;
  if (reason_of_[a] < 0) reason_of_[a] = reason_of_[b];
}

void Axes::unite(const Axis& a, const Axis& b) {
  for (size_t i = 0; i < a.size(); ++i) unite(a[i], b.at(i));
}

void Axes::product(const Axis& whole, const std::vector<Axis>& factors, Preference preference,
                   const std::string& reason) {
  std::vector<Axis> real;
  for (const Axis& factor : factors) {
    if (factor.size() != 1) real.push_back(factor);
  }
  if (real.empty()) return;
  if (real.size() == 1) return unite(whole, real[0]);
  products_.push_back({whole, std::move(real), preference, add_reason(reason)});
}

void Axes::note(const Axis& axis, const std::string& sentence) {
  for (const Position position : axis) notes_.emplace_back(position, sentence);
}

std::vector<size_t> Axes::candidates(const Product& product) const {
  std::vector<size_t> found;
  for (size_t f = 0; f < product.factors.size(); ++f) {
    const FactorIndex index(product.factors, f);
    std::vector<char> stays(product.factors[f].size());
    for (size_t i = 0; i < stays.size(); ++i) stays[i] = fixed(product.factors[f][i]);
    for (size_t i = 0; i < product.whole.size(); ++i) stays[index(i)] |= fixed(product.whole[i]);
    if (std::count(stays.begin(), stays.end(), 0) > 0) found.push_back(f);
  }
  return found;
}

std::vector<Position> Axes::roots(const Axis& axis) const {
  std::vector<Position> found;
  for (const Position position : axis) found.push_back(find(position));
  return found;
}

size_t Axes::choose(const Product& product, const std::vector<size_t>& candidates) const {
  // Two dimensions that are split in one order and merged in the other one are a shuffle of channels.
  const auto swapped_elsewhere = [&] {
    for (size_t a = 0; a + 1 < candidates.size(); ++a) {
      const auto first = roots(product.factors[candidates[a]]),
                 second = roots(product.factors[candidates[a + 1]]);
      for (const Product& other : products_) {
        bool seen_second = false;
        for (const Axis& factor : other.factors) {
          if (factor.size() == second.size() && roots(factor) == second) {
            seen_second = true;
          } else if (seen_second && factor.size() == first.size() && roots(factor) == first) {
            return true;
          }
        }
      }
    }
    return false;
  };
  if (product.preference == Preference::outermost && !swapped_elsewhere()) return candidates[0];
  return *std::max_element(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    return product.factors[a].size() < product.factors[b].size();
  });
}

bool Axes::has_fixed(const Product& product, int32_t* reason) const {
  for (const Position position : product.whole) {
    if (fixed(position)) return *reason = reason_of_[find(position)], true;
  }
  for (const Axis& factor : product.factors) {
    for (const Position position : factor) {
      if (fixed(position)) return *reason = reason_of_[find(position)], true;
    }
  }
  return false;
}

void Axes::settle(Product& product, const std::vector<size_t>& chosen) {
  product.settled = true;
  int32_t reason = product.reason;
  if (chosen.empty()) {
    has_fixed(product, &reason);  // what stopped it is worth more than the view
    for (const Position position : product.whole) fix(position, reason);
  }
  for (size_t f = 0; f < product.factors.size(); ++f) {
    if (!chosen.empty() && f == chosen[0]) continue;
    for (const Position position : product.factors[f]) fix(position, reason);
  }
  if (chosen.empty()) return;
  const FactorIndex index(product.factors, chosen[0]);
  for (size_t i = 0; i < product.whole.size(); ++i)
    unite(product.whole[i], product.factors[chosen[0]][index(i)]);
}

void Axes::settle() {
  for (;;) {
    for (bool changed = true; changed;) {
      changed = false;
      for (Product& product : products_) {
        if (product.settled) continue;
        const std::vector<size_t> open = candidates(product);
        if (open.size() > 1) continue;
        settle(product, open);
        changed = true;
      }
    }
    const auto open =
        std::find_if(products_.begin(), products_.end(), [](const Product& p) { return !p.settled; });
    if (open == products_.end()) return;
    settle(*open, {choose(*open, candidates(*open))});
  }
}

}  // namespace ulp::prune
