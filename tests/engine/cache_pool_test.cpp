// Sequences that share fewer positions than each could fill: the bits of sessions with room for
// all, whatever blocks held before; and what happens when there are no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/base/error.h"
#include "engine/cache_blocks.h"
#include "engine/cache_memory.h"
#include "engine/feature_store.h"
#include "tests/engine/cache_compare.h"

namespace evalrun::engine::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<Session> open_pool(const std::shared_ptr<const Model>& model, const Path& path,
                                   int max_tokens, int sequences, int64_t pool_tokens) {
  SessionOptions o;
  o.isa = path.isa, o.kv_dtype = path.kv_dtype, o.one_isa = path.one_isa, o.n_threads = 2;
  o.max_tokens = max_tokens, o.n_sequences = sequences, o.pool_tokens = pool_tokens;
  return Session::create(model, o);
}

std::string pool_refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "";
}

class CachePools : public ::testing::TestWithParam<Path> {};

// One session with a pool, one with room for all, through the same acts.
class BothSessions {
 public:
  static constexpr int kSequences = 4, kTokens = 400;
  static constexpr int64_t kPool = 6;  // blocks; 16 would be all

  BothSessions(const NamedModel& m, const Path& path, uint64_t seed)
      : vocab_(m.model->config().vocab_size),
        pool_(open_pool(m.model, path, kTokens, kSequences, kPool * kCacheBlock)),
        room_(open(m.model, path, 2, kTokens, kSequences)),
        rng_(seed) {}

  // True when the pool had no room.
  bool act() {
    const int s = below(kSequences), other = below(kSequences);
    switch (below(6)) {
      case 0:
      case 1:
        return prefill(s, 1 + below(200));
      case 2:
        rewind(s, below(pool_->length(s) + 1));
        return false;
      case 3:
        return fork(s, other);
      default:
        return step();
    }
  }
  Session& pool() { return *pool_; }
  Session& room() { return *room_; }

 private:
  int below(int n) { return static_cast<int>(rng_.below(static_cast<uint64_t>(n))); }
  static std::vector<int> lengths_of(const Session& session) {
    std::vector<int> all;
    for (int s = 0; s < kSequences; ++s) all.push_back(session.length(s));
    return all;
  }
  static int64_t blocks_for(const std::vector<int>& lengths) {
    int64_t sum = 0;
    for (const int n : lengths) sum += blocks_of(n);
    return sum;
  }
  // Both do it, or the pool refuses what would not fit.
  bool both(const std::vector<int>& after, const std::function<void(Session&)>& act) {
    const std::vector<int> before = lengths_of(*pool_);
    if (blocks_for(after) <= kPool) {
      act(*pool_), act(*room_);
      EXPECT_EQ(lengths_of(*pool_), after);
      return false;
    }
    EXPECT_THAT(pool_refusal([&] { act(*pool_); }), HasSubstr("positions of the KV cache"));
    EXPECT_EQ(lengths_of(*pool_), before);
    return true;
  }
  bool prefill(int s, int n) {
    if (pool_->length(s) + n > kTokens) return false;
    const auto text = random_tokens(static_cast<size_t>(n), vocab_, rng_.next());
    std::vector<int> after = lengths_of(*pool_);
    EXPECT_EQ(n <= pool_->free_tokens(s), [&] {
      std::vector<int> longer = after;
      longer[static_cast<size_t>(s)] += n;
      return blocks_for(longer) <= kPool;
    }());
    after[static_cast<size_t>(s)] += n;
    return both(after, [&](Session& session) { session.prefill(text, s); });
  }
  void rewind(int s, int length) { pool_->rewind(length, s), room_->rewind(length, s); }
  bool fork(int from, int to) {
    std::vector<int> after = lengths_of(*pool_);
    after[static_cast<size_t>(to)] = after[static_cast<size_t>(from)];
    return both(after, [&](Session& session) { session.fork(from, to); });
  }
  bool step() {
    constexpr int kRows = 9;
    std::vector<int> sequences;
    for (int s = 0; s < kSequences; ++s)
      if (pool_->length(s) + kRows <= kTokens && below(4) > 0) sequences.push_back(s);
    if (sequences.empty()) return false;
    const ManyTrees t = trees_of(sequences, kRows, vocab_, rng_.next());
    std::vector<int> after = lengths_of(*pool_);
    for (size_t i = 0; i < sequences.size(); ++i)
      after[static_cast<size_t>(sequences[i])] += static_cast<int>(t.paths[i].size());
    return both(after, [&](Session& session) {
      (void)session.forward({.rows = t.rows});
      session.commit(commits_of(sequences, t));
    });
  }

  const int vocab_;
  std::unique_ptr<Session> pool_, room_;
  base::Rng rng_;
};

TEST_P(CachePools, UnequalSequencesHaveTheBitsOfRoomForAll) {
  // Which blocks are whose is no matter of the path: one has many acts, another one in other runs.
  const int acts = few_cases(GetParam()) ? 60 : in_full(GetParam(), "pools") ? 200 : 60;
  int refused = 0;
  for (const NamedModel& m : some_models(GetParam())) {
    BothSessions both(m, GetParam(), 5);
    for (int i = 0; i < acts; ++i) {
      refused += both.act();
      if (i % 10 == 9) {
        ASSERT_TRUE(same_sequences(both.pool(), both.room())) << m.name << ", act " << i;
      }
    }
  }
  EXPECT_GT(refused, 0) << "the pool was never full";
}

// Blocks that held not-a-number in every key and value, given back and taken by another sequence.
TEST_P(CachePools, FreedBlocksLeaveNoTrace) {
  for (const NamedModel& m : some_models(GetParam())) {
    const ModelConfig& c = m.model->config();
    auto s = open_pool(m.model, GetParam(), 500, 2, 8 * kCacheBlock);
    auto fresh = open(m.model, GetParam(), 2, 500, 2);
    const std::vector<float> nan(static_cast<size_t>(c.input_width()),
                                 std::numeric_limits<float>::quiet_NaN());
    const auto fill = [&](int sequence) {
      std::vector<Row> rows(100);
      std::vector<int> path(100);
      for (int i = 0; i < 100; ++i) {
        rows[static_cast<size_t>(i)] = {
            .embedding = 0, .parent = i - 1, .sequence = sequence, .logits = false};
        path[static_cast<size_t>(i)] = i;
      }
      for (int part = 0; part < 5; ++part) {
        (void)s->forward({.rows = rows, .embeddings = {nan.data(), 1, c.input_width()}});
        s->commit(path, sequence);
      }
      for (const float x : cache_of(*s, sequence)) ASSERT_TRUE(std::isnan(x));
    };
    const auto text = random_tokens(300, c.vocab_size, 3);
    fill(0), fill(1);
    s->rewind(0, 0);
    // Beside a sequence of such values, in blocks that had them.
    s->prefill(std::span(text).first(130), 0), fresh->prefill(std::span(text).first(130), 0);
    for (int i = 130; i < 160; ++i) {
      const Row row{.token = text[static_cast<size_t>(i)]};
      const int root = 0;
      const auto want = copy(fresh->forward({.rows = {&row, 1}}).logits_row(0));
      ASSERT_TRUE(same_bits(s->forward({.rows = {&row, 1}}).logits_row(0), want)) << m.name;
      s->commit({&root, 1}), fresh->commit({&root, 1});
    }
    const auto tree = random_tree(40, c.vocab_size, 4, 2);
    const ForwardResult a = s->forward({.rows = tree}), b = fresh->forward({.rows = tree});
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE(same_bits(a.logits_row(i), b.logits_row(i))) << m.name << ", row " << i;
    s->rewind(0, 1);
    s->prefill(text, 1), fresh->prefill(text, 1);
    s->fork(1, 0), fresh->fork(1, 0);
    EXPECT_TRUE(same_sequences(*s, *fresh)) << m.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CachePools, ::testing::ValuesIn(all_paths()),
                         [](const auto& instance) { return instance.param.name(); });

TEST(CachePool, IsRefusedWithBothNumbersAndNothingChanges) {
  const auto model = make_random_model(small_config(), 1);
  for (const char* isa : {"", "reference"}) {
    auto s = open_pool(model, Path{isa, WeightFormat::kF32}, 300, 3, 4 * kCacheBlock);
    EXPECT_EQ(s->free_tokens(0), 300);
    const auto text = random_tokens(300, 101, 1);
    s->prefill(std::span(text).first(250), 0);  // two blocks
    s->prefill(std::span(text).first(128), 1);  // one
    EXPECT_EQ(s->free_tokens(0), 50) << "what is left of its 300";
    EXPECT_EQ(s->free_tokens(1), 128);
    EXPECT_EQ(s->free_tokens(2), 128);
    const auto before = next_logits(*s, 1, 3);
    const auto refused = AllOf(HasSubstr("they take 256 more positions"),
                               HasSubstr("128 of the 512"), HasSubstr("pool_tokens"));
    // One part would fit, both do not; of one sequence, of a fork.
    const SequenceTokens parts[] = {{2, std::span(text).first(100)}, {1, std::span(text).first(1)}};
    EXPECT_THAT(pool_refusal([&] { s->prefill(parts); }), refused);
    EXPECT_THAT(pool_refusal([&] { s->prefill(std::span(text).first(129), 2); }), refused);
    EXPECT_THAT(pool_refusal([&] { s->fork(0, 2); }), refused);
    const std::vector<Row> rows = {{.token = 1, .sequence = 1}, {.token = 1, .sequence = 2}};
    (void)s->forward({.rows = rows});
    const int first = 0, second = 1;
    const SequencePath paths[] = {{1, {&first, 1}}, {2, {&second, 1}}};
    EXPECT_THAT(pool_refusal([&] { s->commit(paths); }), refused);
    EXPECT_EQ(s->length(0), 250);
    EXPECT_EQ(s->length(1), 128);
    EXPECT_EQ(s->length(2), 0);
    s->commit({&second, 1}, 2);  // which fits, of the same forward
    EXPECT_EQ(s->length(2), 1);
    EXPECT_EQ(s->free_tokens(1), 0);
    EXPECT_TRUE(same_bits(next_logits(*s, 1, 3), before));
    s->rewind(128, 0);  // gives a block back
    EXPECT_EQ(s->free_tokens(1), 128);
    s->prefill(std::span(text).first(1), 1);
    s->reset();
    EXPECT_EQ(s->free_tokens(2), 300);
  }
}

TEST(CachePool, OptionsThatGiveNoBlockEachAreRefused) {
  const auto model = make_random_model(small_config(), 1);
  const Path path{"", WeightFormat::kF32};
  for (const int64_t pool : {int64_t{-1}, int64_t{1}, int64_t{256}})
    EXPECT_THAT(pool_refusal([&] { (void)open_pool(model, path, 300, 3, pool); }),
                AllOf(HasSubstr("pool_tokens"), HasSubstr("3 sequences"), HasSubstr("384")))
        << pool;
  EXPECT_EQ(pool_refusal([&] { (void)open_pool(model, path, 300, 3, 257); }), "");
  EXPECT_EQ(pool_refusal([&] { (void)open_pool(model, path, 10, 3, 30); }), "")
      << "all there can be";
}

TEST(CachePool, TakesWhatItsPositionsTake) {
  const auto model = make_random_model(small_config(), 1);
  const Path path{"", WeightFormat::kF32};
  const size_t per_token = 2 * 2 * 32 * 4;  // layers, k and v, values, size
  auto s = open_pool(model, path, 1000, 8, 1000);
  EXPECT_EQ(s->kv_bytes(), 1024 * per_token);
  EXPECT_EQ(cache_bytes_for(model->config(), s->options()),
            static_cast<double>(1024 * per_token + 1000 * 16 * 4));
  EXPECT_EQ(open_pool(model, path, 1000, 8, 0)->kv_bytes(), 8 * 1024 * per_token);
  EXPECT_EQ(open_pool(model, path, 1000, 8, 1'000'000)->kv_bytes(), 8 * 1024 * per_token)
      << "more than they could fill";
  EXPECT_EQ(open_pool(model, path, 1000, 1, 0)->kv_bytes(), 1008 * per_token)
      << "one alone has what it needs, in blocks of keys";
}

// Pages of this process that are in memory.
int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(CachePool, TakesNoMemoryBeforeItIsUsed) {
  const auto model = make_random_model(small_config(), 1);
  const int64_t before = resident_bytes();
  auto s = open_pool(model, Path{"", WeightFormat::kF32}, 4096, 64, 64 * 4096);
  const auto size = static_cast<int64_t>(s->kv_bytes());
  ASSERT_GT(size, int64_t{100} << 20);
  s->prefill(random_tokens(300, 101, 1), 5);
  EXPECT_LT(resident_bytes() - before, size / 2);
}

// A prompt of every sequence in one forward.
TEST(CachePool, AJointPrefillTakesAboutWhatIsPlanned) {
  ModelConfig c = small_config();
  c.d_model = 256, c.head_dim = 64, c.d_ffn = 512;
  const auto model = make_random_model(c, 1);
  auto s = open_pool(model, Path{"", WeightFormat::kF32}, 512, 4, 0);
  const std::vector<int32_t> prompt = random_tokens(kPrefillChunk, 101, 1);
  std::vector<SequenceTokens> parts;
  for (int i = 0; i < 4; ++i) parts.push_back({i, prompt});
  s->prefill(parts);
  const double planned = prefill_bytes_for(c, s->options());
  EXPECT_LT(static_cast<double>(s->workspace_bytes()), 1.5 * planned);
  EXPECT_GT(static_cast<double>(s->workspace_bytes()), 0.7 * planned);
  SessionOptions more = s->options();
  more.n_sequences = 64;
  EXPECT_EQ(prefill_bytes_for(c, more), planned) << "no forward has more rows";
  EXPECT_EQ(session_bytes_for(*model, s->options()), cache_bytes_for(c, s->options()) + planned);
  EXPECT_EQ(missing_weight_bytes(*model, s->options()), 0);
}

// Room for 32 MB of features a sequence and kind.
TEST(FeatureMemory, IsTakenAsTokensAreKept) {
  ModelConfig c = small_config();
  c.d_model = 256;
  constexpr int kMost = 32768, kTokens = 10;
  FeatureStore store(c, 3, kMost);
  store.keep({.hidden = true, .residual_layers = {1}});
  std::vector<float> values(static_cast<size_t>(kTokens * c.d_model));
  std::iota(values.begin(), values.end(), 1.0f);
  const MatrixView rows{values.data(), kTokens, c.d_model};
  ForwardResult chunk;
  chunk.hidden = rows, chunk.residual = {&rows, 1};
  const int64_t before = resident_bytes();
  store.keep_chunk(chunk, 0, kTokens, 0, 0);
  store.fork(0, 2);
  store.fork(1, 0);
  EXPECT_LT(resident_bytes() - before, int64_t{32} << 20) << "of 128 MB of room";
  for (const MatrixView& kept : {store.hidden(2, kTokens), store.residual(0, 2, kTokens)})
    for (int i = 0; i < kTokens; ++i)
      EXPECT_TRUE(std::ranges::equal(kept.row(i), rows.row(i))) << i;
  EXPECT_EQ(store.hidden(0, 0).rows, 0);
  EXPECT_THROW((void)store.hidden(0, kTokens), base::InternalError) << "those of sequence 1";
}

TEST(CachePool, ReservedRoomIsThereAtOnce) {
  const auto model = make_random_model(small_config(), 1);
  const int64_t before = resident_bytes();
  auto s = open_pool(model, Path{"", WeightFormat::kF32}, 4096, 64, 0);
  EXPECT_GT(resident_bytes() - before, static_cast<int64_t>(s->kv_bytes()) * 9 / 10);
}

}  // namespace
}  // namespace evalrun::engine::testing
