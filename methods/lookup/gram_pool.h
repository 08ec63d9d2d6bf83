// Pool of n-grams a method harvests while it decodes: for each key token the latest few grams that
// followed it, least recently used first. Lookahead's n-gram pool and Self-Draft's context cache.
//
// Nothing is allocated for keys seen in earlier generations: a cleared pool keeps its memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace evalrun::methods {

class GramPool {
 public:
  // `vocab` ids; grams of `length` tokens after the key, `capacity` of them per key.
  GramPool(int vocab, int length, int capacity);

  void clear();
  // Becomes the newest gram of its key. A gram that the key has already moves. Where there are too
  // many, the oldest goes.
  void insert(int32_t key, std::span<const int32_t> gram);
  int count(int32_t key) const;
  // The i-th gram of a key, 0 = least recently inserted. Valid until the next insert.
  std::span<const int32_t> gram(int32_t key, int i) const;
  // Whatever it has read.
  static double most_bytes(int vocab, int length, int capacity) {
    return vocab * (sizeof(int32_t) + sizeof(Slot) +
                    sizeof(int32_t) * static_cast<double>(length) * capacity);
  }
  int length() const { return static_cast<int>(length_); }

 private:
  struct Slot {
    int32_t key;
    int32_t count;
  };
  void make_room();
  int32_t* grams_of(size_t slot) { return grams_.data() + slot * capacity_ * length_; }

  size_t length_, capacity_;
  std::vector<int32_t> slot_of_;  // token -> slot, -1 = none
  std::vector<Slot> slots_;
  std::vector<int32_t> grams_;  // [slots, capacity, length], oldest first
};

}  // namespace evalrun::methods
