// A map for many entries that come in the order of their keys: one vector, no node each. It has the
// part of std::map's interface that reports need, and iterates in the same order.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

namespace evalrun::reports {

// Adding a key at the end takes constant time, elsewhere time in proportion to the entries after
// it. References and iterators do not survive an insertion or a removal.
template <typename Key, typename Value>
class SortedMap {
 public:
  using value_type = std::pair<Key, Value>;
  using iterator = typename std::vector<value_type>::iterator;
  using const_iterator = typename std::vector<value_type>::const_iterator;

  SortedMap() = default;
  SortedMap(std::initializer_list<value_type> entries) {
    for (const auto& [key, value] : entries) (*this)[key] = value;
  }

  // A default value for a new key.
  Value& operator[](const Key& key) {
    if (entries_.empty() || entries_.back().first < key)
      return entries_.emplace_back(key, Value()).second;
    const iterator at = place(entries_.begin(), entries_.end(), key);
    return at->first == key ? at->second : entries_.insert(at, {key, Value()})->second;
  }
  // Throws std::out_of_range.
  const Value& at(const Key& key) const {
    const const_iterator found = find(key);
    if (found == end()) throw std::out_of_range("SortedMap::at");
    return found->second;
  }
  const_iterator lower_bound(const Key& key) const { return place(begin(), end(), key); }
  const_iterator find(const Key& key) const {
    const const_iterator at = lower_bound(key);
    return at != end() && at->first == key ? at : end();
  }
  bool contains(const Key& key) const { return find(key) != end(); }
  template <typename Unwanted>
  void erase_if(const Unwanted& unwanted) {
    std::erase_if(entries_, unwanted);
  }
  void reserve(size_t n) { entries_.reserve(n); }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }

 private:
  template <typename Iterator>
  static Iterator place(Iterator begin, Iterator end, const Key& key) {
    return std::lower_bound(begin, end, key,
                            [](const value_type& e, const Key& k) { return e.first < k; });
  }
  std::vector<value_type> entries_;
};

}  // namespace evalrun::reports
