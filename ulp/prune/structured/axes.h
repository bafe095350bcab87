// Which positions of all tensors' dimensions are cut together: a union-find over positions, and the products that
// views make of dimensions. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ulp::prune {

/// A position of one dimension of one tensor. Positions of one class are removed together or not at all.
using Position = int32_t;
/// The positions of a dimension in order. Where the dimension's size follows the batch, those of one item.
using Axis = std::vector<Position>;

/// Which factor of a dimension that a view splits is cut, where several could be.
enum class Preference : uint8_t {
  outermost,  ///< heads rather than the numbers within a head
  largest     ///< channels within a group or groups, whichever are more
};

/// Classes of positions; each is free, or fixed for a reason.
class Axes {
 public:
  /// `size` free positions, each a class of its own.
  Axis make(int64_t size);
  /// `size` times one position that stays.
  Axis make_fixed(int64_t size, const std::string& reason);
  void fix(const Axis& axis, const std::string& reason);
  void unite(Position a, Position b);
  /// Position by position. The sizes are equal.
  void unite(const Axis& a, const Axis& b);
  /// `whole` is the row-major product of the factors, as where a view splits or merges dimensions. One of them can be
  /// cut: the others are fixed by settle().
  void product(const Axis& whole, const std::vector<Axis>& factors, Preference preference,
               const std::string& reason);
  /// Remembers a sentence for the classes of these positions.
  void note(const Axis& axis, const std::string& sentence);

  /// Chooses a factor of each product. What is fixed elsewhere decides first.
  void settle();

  Position find(Position position) const;
  bool fixed(Position position) const { return reason_of_[find(position)] >= 0; }
  /// Why the position stays. Only for fixed ones.
  const std::string& reason(Position position) const { return reasons_[reason_of_[find(position)]]; }
  size_t size() const { return parent_.size(); }
  const std::vector<std::pair<Position, std::string>>& notes() const { return notes_; }

 private:
  struct Product {
    Axis whole;
    std::vector<Axis> factors;
    Preference preference;
    int32_t reason;
    bool settled = false;
  };
  int32_t add_reason(const std::string& reason);
  void fix(Position position, int32_t reason);
  std::vector<size_t> candidates(const Product& product) const;
  size_t choose(const Product& product, const std::vector<size_t>& candidates) const;
  void settle(Product& product, const std::vector<size_t>& chosen);
  bool has_fixed(const Product& product, int32_t* reason) const;
  std::vector<Position> roots(const Axis& axis) const;

  mutable std::vector<Position> parent_;
  std::vector<int32_t> reason_of_;  ///< of a root: index into reasons_, or -1
  std::vector<std::string> reasons_;
  std::vector<Product> products_;
  std::vector<std::pair<Position, std::string>> notes_;
};

}  // namespace ulp::prune
