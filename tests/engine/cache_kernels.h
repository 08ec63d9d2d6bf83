// Attention's kernels over keys and values that are stored rounded: their scores and weighted sums
// are those of the values as KvStore reads them, to the bit.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_store.h"
#include "tests/engine/random_models.h"

namespace evalrun::engine::testing {

// Every tile of queries, of blocks and of columns, with dimensions left over or not.
// `scores`, `weighted_sum`: of one path, for a KvStore<T>.
template <typename T, typename Scores, typename WeightedSum>
void expect_sums_of_values_as_read(const Scores& scores, const WeightedSum& weighted_sum) {
  constexpr int kPositions = 7 * cpu::kLanes, kMostQueries = 13;
  for (const int dims : {2, 16, 24, 32, 48, 64, 80, 96, 112, 128}) {
    const auto width = static_cast<size_t>((dims + cpu::kLanes - 1) / cpu::kLanes * cpu::kLanes);
    const auto hd = static_cast<size_t>(dims);
    cpu::KvStore<T> store;
    store.configure(1, dims);
    store.reserve(kPositions);
    std::vector<std::vector<float>> k, v;
    for (int p = 0; p < kPositions; ++p) {
      k.push_back(random_floats(dims, static_cast<uint64_t>(2 * p)));
      v.push_back(random_floats(dims, static_cast<uint64_t>(2 * p + 1)));
      store.write(p, k.back().data(), v.back().data());
      store.read(p, k.back().data(), v.back().data());
    }
    const std::vector<float> q = random_floats(kMostQueries * dims, 77),
                             weights = random_floats(kMostQueries * cpu::kChunk, 78),
                             before = random_floats(kMostQueries * static_cast<int>(width), 79);
    std::vector<float> want_scores(kMostQueries * kPositions);  // [query][position]
    for (size_t i = 0; i < kMostQueries; ++i)
      for (size_t p = 0; p < kPositions; ++p) {
        float sum = 0;
        for (size_t d = 0; d < hd; ++d) sum = std::fma(q[i * hd + d], k[p][d], sum);
        want_scores[i * kPositions + p] = sum * 0.125f;
      }
    for (const int n_q : {1, 2, 3, 5, 6, 8, 13})
      for (const int blocks : {1, 2, 3, 4, 5, 7}) {
        const int positions = blocks * cpu::kLanes - blocks % 3;  // of the weighted sum
        std::vector<float> s(kMostQueries * cpu::kChunk, -7.0f), sums = before;
        scores(q.data(), dims, n_q, store.k_blocks(0, 0), blocks, dims, 0.125f, s.data(),
               cpu::kChunk);
        weighted_sum(weights.data(), cpu::kChunk, n_q, store.v_row(0, 0), store.v_stride(),
                     positions, static_cast<int>(width), sums.data(), static_cast<int>(width));
        for (size_t i = 0; i < static_cast<size_t>(n_q); ++i) {
          for (size_t p = 0; p < static_cast<size_t>(blocks * cpu::kLanes); ++p)
            ASSERT_EQ(s[i * cpu::kChunk + p], want_scores[i * kPositions + p])
                << dims << " dimensions, " << n_q << " queries, " << blocks << " blocks";
          for (size_t d = 0; d < hd; d += n_q == 3 ? 1 : 7) {
            float want = before[i * width + d];
            for (size_t p = 0; p < static_cast<size_t>(positions); ++p)
              want = std::fma(weights[i * cpu::kChunk + p], v[p][d], want);
            ASSERT_EQ(sums[i * width + d], want)
                << dims << " dimensions, " << n_q << " queries, " << positions << " positions";
          }
        }
        // Nothing beside.
        for (size_t i = 0; i < s.size(); ++i)
          if (i / cpu::kChunk >= static_cast<size_t>(n_q) ||
              i % cpu::kChunk >= static_cast<size_t>(blocks * cpu::kLanes)) {
            ASSERT_EQ(s[i], -7.0f) << i;
          }
      }
  }
}

}  // namespace evalrun::engine::testing
