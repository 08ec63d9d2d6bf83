// Steady state: forward and commit allocate nothing. Counted by replacing operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/cache_blocks.h"
#include "tests/engine/random_models.h"

namespace {
std::atomic<long> g_allocations{0};
}

void* operator new(size_t n) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, std::align_val_t a) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t align = static_cast<size_t>(a);
  if (void* p = std::aligned_alloc(align, (n + align - 1) / align * align)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace evalrun::engine::testing {
namespace {

TEST(Allocation, StepsAllocateNothing) {
  for (const WeightFormatSpec& spec : rounded_formats()) {
    auto s = open(make_random_model(small_config(), 1, spec.format), "", 2, 1024);
    s->prefill(random_tokens(100, 101, 1));
    auto tree = random_tree(16, 101, 5);
    for (size_t i = 8; i < 16; ++i) tree[i].top = true, tree[i].logits = false;
    const int path[] = {0};
    // One row on its own takes other ways than sixteen do.
    const auto step = [&] {
      (void)s->forward({.rows = tree});
      s->commit(path);
      (void)s->forward({.rows = {tree.data(), 1}});
      s->commit(path);
    };
    for (int i = 0; i < 3; ++i) step();  // warm-up: buffers grow to their size
    const long before = g_allocations.load();
    EXPECT_GT(before, 0);  // the counter counts
    for (int i = 0; i < 200; ++i) step();
    EXPECT_EQ(g_allocations.load() - before, 0) << spec.name;
  }
}

// Sequences that take blocks of a pool and give them back.
TEST(Allocation, BatchesOnAPoolAllocateNothing) {
  constexpr int kSequences = 3, kRows = 4;
  SessionOptions o;
  o.n_threads = 2, o.max_tokens = 512, o.n_sequences = kSequences;
  o.pool_tokens = 5 * kCacheBlock;
  auto s = Session::create(make_random_model(small_config(), 1), o);
  const auto text = random_tokens(100, 101, 1);
  std::vector<Row> rows;
  for (int q = 0; q < kSequences; ++q)
    for (int i = 0; i < kRows; ++i)
      rows.push_back({.token = i, .parent = i == 0 ? -1 : q * kRows + i - 1, .sequence = q});
  // Unequal paths, so that sequences reach their next blocks at different times.
  const std::vector<int> first = {0, 1, 2, 3}, second = {4}, third = {8, 9};
  const SequencePath paths[] = {{0, first}, {1, second}, {2, third}};
  const SequenceTokens parts[] = {{1, text}, {2, std::span(text).first(40)}};
  int rewinds = 0;
  const auto step = [&] {
    if (s->free_tokens(0) < 4) s->rewind(3, 0), ++rewinds;
    if (s->length(1) == 0 || s->length(1) > 120) {
      s->rewind(0, 1), s->rewind(0, 2);
      s->prefill(parts);
    }
    (void)s->forward({.rows = rows});
    s->commit(paths);
  };
  for (int i = 0; i < 3; ++i) step();
  const long before = g_allocations.load();
  for (int i = 0; i < 400; ++i) step();
  EXPECT_EQ(g_allocations.load() - before, 0);
  EXPECT_GT(rewinds, 2);
}

}  // namespace
}  // namespace evalrun::engine::testing
