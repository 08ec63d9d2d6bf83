// Blocks of sequences, and keys and values that go to them.
#include "engine/cpu/kv_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {
namespace {

std::vector<int> blocks_held(const CacheBlocks& blocks, int sequence) {
  const auto held = blocks.of(sequence);
  return {held.begin(), held.end()};
}

TEST(CacheBlocks, OneSequenceAloneHasThemInOrder) {
  CacheBlocks blocks(4, 1);
  for (const int length : {1, 128, 129, 512}) {
    const SequenceLength all{0, length};
    blocks.take({&all, 1});
    EXPECT_EQ(blocks.of(0).size(), static_cast<size_t>(blocks_of(length)));
  }
  EXPECT_EQ(blocks_held(blocks, 0), (std::vector<int>{0, 1, 2, 3}));
  blocks.give_back(0, 129);
  EXPECT_EQ(blocks.n_free(), 2);
  blocks.give_back(0, 0);
  const SequenceLength again{0, 400};
  blocks.take({&again, 1});
  EXPECT_EQ(blocks_held(blocks, 0), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(blocks.place(0, 300), 300);
}

TEST(CacheBlocks, NoneIsInTwoSequences) {
  constexpr int kSequences = 5, kBlocks = 12;
  CacheBlocks blocks(kBlocks, kSequences);
  base::Rng rng(7);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const int s = static_cast<int>(rng.below(kSequences));
    const SequenceLength wanted{s, static_cast<int>(rng.below(700))};
    const int64_t held = static_cast<int64_t>(blocks.of(s).size()), free = blocks.n_free();
    const int64_t lacking = std::max<int64_t>(0, blocks_of(wanted.length) - held);
    ASSERT_EQ(blocks.lacking({&wanted, 1}), lacking);
    if (lacking > free) {
      EXPECT_THROW(blocks.take({&wanted, 1}), base::InternalError);
      ++refused;
    } else {
      blocks.take({&wanted, 1});
      ASSERT_EQ(blocks.n_free(), free - lacking);
      blocks.give_back(s, wanted.length);
      ASSERT_EQ(static_cast<int64_t>(blocks.of(s).size()), blocks_of(wanted.length));
    }
    std::set<int> all;
    size_t sum = 0;
    for (int other = 0; other < kSequences; ++other) {
      const std::vector<int> of = blocks_held(blocks, other);
      all.insert(of.begin(), of.end());
      sum += of.size();
    }
    ASSERT_EQ(all.size(), sum) << "each in one sequence";
    ASSERT_EQ(static_cast<int64_t>(sum) + blocks.n_free(), kBlocks);
    ASSERT_TRUE(all.empty() || (*all.begin() >= 0 && *all.rbegin() < kBlocks));
  }
  EXPECT_GT(refused, 100);
}

// --- keys and values -----------------------------------------------------------------------------

constexpr int kMemoryRows = 50;

template <typename T>
class KvMemories : public ::testing::Test {
 protected:
  using Place = std::pair<int, int>;  // sequence, position

  KvMemories() : memory_(config_, blocks_, 9 * kCacheBlock, false, 1) {
    // Blocks of one sequence are no neighbours.
    for (const int length : {100, 200, 300})
      for (int s = 0; s < 3; ++s) {
        const SequenceLength wanted{s, length};
        blocks_.take({&wanted, 1});
      }
    memory_.room_for_rows(1, kMemoryRows);
    for (int l = 0; l < config_.n_layers; ++l)
      for (int i = 0; i < kMemoryRows; ++i) {
        const auto seed = static_cast<uint64_t>(2 * (100 * l + i));
        memory_.rows(0, l).write(i, random_floats(config_.kv_dim(), seed).data(),
                                 random_floats(config_.kv_dim(), seed + 1).data());
      }
    std::vector<CommitRow> everything;
    for (int s = 0; s < 3; ++s)
      for (int p = 0; p < 300; ++p) everything.push_back({kMemoryRows - 1, s, p});
    commit(everything);
  }
  // And notes where rows should be.
  void commit(const std::vector<CommitRow>& rows) {
    memory_.commit(rows, 0, this->memory_.layers());
    for (const CommitRow& r : rows) row_at_[{r.sequence, r.position}] = r.row;
  }
  std::vector<float> row_of(int layer, int row) {
    std::vector<float> both(2 * static_cast<size_t>(config_.kv_dim()));
    memory_.rows(0, layer).read(row, both.data(), both.data() + config_.kv_dim());
    return both;
  }
  // The first position that does not hold its row; {-1, -1} when all do.
  Place first_wrong() {
    const auto width = static_cast<size_t>(config_.kv_dim());
    for (const auto& [place, row] : row_at_)
      for (int l = 0; l < config_.n_layers; ++l) {
        std::vector<float> both(2 * width);
        memory_.read(l, place.second, place.first, std::span(both).first(width),
                     std::span(both).subspan(width));
        if (!same_bits(both, row_of(l, row))) return place;
      }
    return {-1, -1};
  }
  // Of three sequences; runs of neighbours over borders of blocks, and single rows.
  static std::vector<CommitRow> a_list() {
    std::vector<CommitRow> rows;
    for (int i = 0; i < 20; ++i) rows.push_back({i, 2, 120 + i});
    for (int i = 0; i < 5; ++i) rows.push_back({21 + 2 * i, 0, 254 + i});
    for (int i = 0; i < 17; ++i) rows.push_back({30 + i, 1, 16 + i});
    return rows;
  }

  const ModelConfig config_ = small_config();
  CacheBlocks blocks_{9, 3};
  cpu::KvMemory<T> memory_;
  std::map<Place, int> row_at_;
};
using MemoryTypes = ::testing::Types<float, uint16_t, int8_t, cpu::Fp8, uint8_t>;
TYPED_TEST_SUITE(KvMemories, MemoryTypes);

TYPED_TEST(KvMemories, RowsOfManySequencesGoWhereTheyBelongAndNowhereElse) {
  this->commit(this->a_list());
  EXPECT_EQ(this->first_wrong(), (std::pair<int, int>{-1, -1}));
}

TYPED_TEST(KvMemories, ListsWithAFaultAreSeen) {
  std::vector<CommitRow> rows = this->a_list(), wrong = rows;
  for (CommitRow& r : wrong)
    if (r.sequence == 1) ++r.position;  // off by one
  for (const CommitRow& r : rows) this->row_at_[{r.sequence, r.position}] = r.row;
  this->memory_.commit(wrong, 0, this->memory_.layers());
  EXPECT_NE(this->first_wrong(), (std::pair<int, int>{-1, -1}));
  this->memory_.commit(rows, 0, this->memory_.layers());
  EXPECT_EQ(this->first_wrong(), (std::pair<int, int>{1, 33})) << "where the last one went";
}

TYPED_TEST(KvMemories, CopiesOfASequenceAreTheSame) {
  this->commit(this->a_list());
  this->memory_.copy_sequence(2, 0, 290);
  for (int p = 0; p < 290; ++p) this->row_at_[{0, p}] = this->row_at_[{2, p}];
  EXPECT_EQ(this->first_wrong(), (std::pair<int, int>{-1, -1}));
}

}  // namespace
}  // namespace evalrun::engine::testing
