// Top-k and top-p in two kernels: one adds up the tokens by the first bits of their place in the
// order (of sampling_arith.h), one finds the border, the least place that stays.
#include "engine/cuda/kernels/answer_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kBinShift = 64 - kBinBits;
constexpr int kBinEach = 3;  // tokens of a thread
constexpr int kBinGroup = kBinEach * kThreads;
constexpr int kBorderThreads = 1024;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

// 64-bit additions to shared memory are a loop of exchanges; those of 32 bits are not. So a sum is
// kept in parts, each the sum of kBits bits of what was added, the last one of all that is left.
template <int kParts, int kBits>
__device__ __forceinline__ void add_in_parts(uint32_t* parts, int stride, int at, uint64_t value) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    const uint64_t rest = value >> (kBits * p);
    const auto part =
        static_cast<uint32_t>(p + 1 < kParts ? rest & ((uint64_t{1} << kBits) - 1) : rest);
    if (part > 0) atomicAdd(&parts[p * stride + at], part);
  }
}
template <int kParts, int kBits>
__device__ __forceinline__ uint64_t sum_of_parts(const uint32_t* parts, int stride, int at) {
  uint64_t sum = 0;
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    sum += static_cast<uint64_t>(parts[p * stride + at]) << (kBits * p);
  return sum;
}
// A mass is at most 2^44: no part of these sums passes 32 bits.
constexpr int kBinParts = 2, kBinPartBits = 22;
static_assert(kBinParts * kBinPartBits == 44);
static_assert((uint64_t{kBinGroup} << kBinPartBits) < (uint64_t{1} << 32));
constexpr int kDigitParts = 4, kDigitPartBits = 11;
static_assert(kDigitParts * kDigitPartBits == 44);
static_assert((uint64_t{kMaxSampledVocab} << kDigitPartBits) < (uint64_t{1} << 32));

// Counts or masses of a row's tokens by the first bits of their order, added up by block, then in
// `bins` [rows][bins], which are clear.
__global__ void __launch_bounds__(kThreads)
    fill_bins(AnswerShape s, const float* logits, const uint64_t* result, const double* uniforms,
              uint64_t* bins) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (uniforms[row] < 0) return;
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kBinGroup + thread;
  float value[kBinEach];
  load_logits(from, begin, kThreads, s.n_logits, value);
  auto* parts = reinterpret_cast<uint32_t*>(evalrun_shared_memory());  // [parts][bins]
  auto* words = reinterpret_cast<uint4*>(parts);
  for (int i = thread; i < kBinParts * kBins / 4; i += kThreads) words[i] = make_uint4(0, 0, 0, 0);
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kBinEach; ++i) {
    const int token = begin + i * kThreads;
    if (token < s.n_logits) {
      const auto bin = static_cast<int>(order_of(value[i], token) >> kBinShift);
      const uint64_t own =
          cuts_by_count(s) ? 1 : mass_of(weight_of(value[i], best, s.inverse_temperature));
      add_in_parts<kBinParts, kBinPartBits>(parts, kBins, bin, own);
    }
  }
  __syncthreads();
  uint64_t* to = bins + static_cast<size_t>(row) * kBins;
  for (int bin = thread; bin < kBins; bin += kThreads) {
    const uint64_t sum = sum_of_parts<kBinParts, kBinPartBits>(parts, kBins, bin);
    if (sum > 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&to[bin]),
                static_cast<unsigned long long>(sum));
  }
}

constexpr uint32_t kMostListed = kBorderThreads;  // a token a thread

// The least order that stays under top-k (logits equal to the k-th stay), then under top-p: digit
// by digit from the highest, the one in which the sum from above reaches what is needed. The first
// digit is a bin, but for top-p behind top-k. As soon as few tokens are left, after the first digit
// as a rule, they are listed and looked at alone.
struct BorderSearch {
  uint64_t least = 0;    // tokens below it are out
  uint64_t need = 0;     // 0: top-p's share, not known yet
  uint64_t reached = 0;  // by the tokens above those that share the digits
  uint64_t prefix = 0;   // digits found so far
  int shift = 64;        // of them
  uint32_t left = 0;     // tokens that share them, or, where nobody counted, what could be listed
  bool by_mass = false;

  __device__ __forceinline__ bool holds(uint64_t order) const {
    return order >= least && (shift == 64 || order >> shift == prefix);
  }
  __device__ __forceinline__ uint64_t border() const { return larger(prefix << shift, least); }
};
// Shared memory of a search.
struct BorderMemory {
  uint64_t sums[kBorderThreads / kWarp];
  uint64_t list[kMostListed];  // orders
  uint64_t prefix, reached;    // found
  uint32_t left;
  uint32_t listed;
  uint32_t parts[kDigitParts * kDigits];
  uint32_t counts[kDigits];
};

// Threads have sums of digits from above: whether this one's is the digit. The lowest digit is,
// where no sum reaches what is needed.
__device__ __forceinline__ bool reaches(const BorderSearch& search, uint64_t before, uint64_t own,
                                        int digit) {
  return before < search.need && (before + own >= search.need || digit == 0);
}
// What one thread has found, once it is written.
__device__ __forceinline__ void take_digit(BorderSearch& search, int width, const BorderMemory& m) {
  __syncthreads();
  search.prefix = m.prefix, search.reached = m.reached, search.left = m.left;
  search.shift -= width;
}

// The first digit, four bins a thread. A whole block, as are all that follow.
__device__ __forceinline__ void find_bin(const AnswerShape& s, const uint64_t* bins,
                                         BorderSearch& search, BorderMemory& m) {
  constexpr int kOwn = kBins / kBorderThreads;
  static_assert(kOwn * kBorderThreads == kBins);
  const int top = kBins - 1 - static_cast<int>(threadIdx.x) * kOwn;
  uint64_t own[kOwn], sum = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own[i] = bins[top - i];
    sum += own[i];
  }
  const BlockSum all = sum_of_block(sum, m.sums);
  if (search.by_mass) search.need = nucleus_mass(s.top_p, all.total);
  uint64_t before = all.before;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (reaches(search, before, own[i], top - i)) {
      m.prefix = static_cast<uint64_t>(top - i), m.reached = before;
      m.left = search.by_mass ? kMostListed : static_cast<uint32_t>(own[i]);
    }
    before += own[i];
  }
  take_digit(search, kBinBits, m);
}

// The next digit, of those that tokens were counted by. A digit a thread.
__device__ __forceinline__ void find_digit(const AnswerShape& s, int width, BorderSearch& search,
                                           BorderMemory& m) {
  const int digit = (1 << width) - 1 - static_cast<int>(threadIdx.x);
  const uint32_t count = digit >= 0 ? m.counts[digit] : 0;
  uint64_t own = count;
  if (search.by_mass)
    own = digit >= 0 ? sum_of_parts<kDigitParts, kDigitPartBits>(m.parts, kDigits, digit) : 0;
  const BlockSum all = sum_of_block(own, m.sums);
  if (search.need == 0) search.need = nucleus_mass(s.top_p, all.total);
  const uint64_t before = search.reached + all.before;
  if (digit >= 0 && reaches(search, before, own, digit)) {
    m.prefix = search.prefix << width | static_cast<uint64_t>(digit), m.reached = before;
    m.left = count;
  }
  take_digit(search, width, m);
}

__device__ __forceinline__ void clear_digits(BorderMemory& m) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kDigitParts * kDigits; i += kBorderThreads) m.parts[i] = 0;
  if (thread < kDigits) m.counts[thread] = 0;
  __syncthreads();
}
__device__ __forceinline__ void count_digit(const BorderSearch& search, int width, uint64_t order,
                                            uint64_t mass, BorderMemory& m) {
  const auto digit =
      static_cast<int>(order >> (search.shift - width) & ((uint64_t{1} << width) - 1));
  if (search.by_mass) add_in_parts<kDigitParts, kDigitPartBits>(m.parts, kDigits, digit, mass);
  atomicAdd(&m.counts[digit], 1u);
}

// take(logit, token) of a row, kAhead logits of a thread on their way before the first is used.
template <int kAhead, typename Take>
__device__ __forceinline__ void for_row(const float* row, int n, Take take) {
  for (int begin = static_cast<int>(threadIdx.x); begin < n; begin += kAhead * kBorderThreads) {
    float value[kAhead];
    load_logits(row, begin, kBorderThreads, n, value);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int token = begin + i * kBorderThreads;
      if (token < n) take(value[i], token);
    }
  }
}

// Lists the tokens that are left; how many they are, which may be more than the list has room for.
__device__ __forceinline__ uint32_t list_tokens(const float* row, int n, const BorderSearch& search,
                                                BorderMemory& m) {
  if (threadIdx.x == 0) m.listed = 0;
  __syncthreads();
  for_row<8>(row, n, [&](float logit, int token) {
    const uint64_t order = order_of(logit, token);
    if (!search.holds(order)) return;
    const uint32_t at = atomicAdd(&m.listed, 1u);
    if (at < kMostListed) m.list[at] = order;
  });
  __syncthreads();
  return m.listed;
}

// All digits that are left to find.
__device__ __forceinline__ void find_digits(const AnswerShape& s, const float* row, float best,
                                            BorderSearch& search, BorderMemory& m) {
  const uint32_t thread = threadIdx.x;
  const int last = search.by_mass ? 0 : 32;  // top-k looks at logits alone
  const auto mass_here = [&](float logit) {
    return search.by_mass ? mass_of(weight_of(logit, best, s.inverse_temperature)) : 0;
  };
  bool listed = false, mine = false;  // mine: this thread has a token of the list
  uint64_t order = 0, mass = 0;
  while (search.left > 1 && search.shift > last) {
    if (!listed && search.left <= kMostListed) {
      const uint32_t n = list_tokens(row, s.n_logits, search, m);
      listed = n <= kMostListed, mine = listed && thread < n;
      if (mine) order = m.list[thread], mass = mass_here(logit_of(order));
    }
    const int width = min(kDigitBits, search.shift - last);
    clear_digits(m);
    if (listed) {
      if (mine && search.holds(order)) count_digit(search, width, order, mass, m);
    } else {
      for_row<2>(row, s.n_logits, [&](float logit, int token) {
        const uint64_t of_token = order_of(logit, token);
        if (search.holds(of_token)) count_digit(search, width, of_token, mass_here(logit), m);
      });
    }
    __syncthreads();
    find_digit(s, width, search, m);
  }
}

// `bins` are what fill_bins() has made.
__global__ void __launch_bounds__(kBorderThreads)
    find_borders(AnswerShape s, const float* logits, const uint64_t* result, const double* uniforms,
                 const uint64_t* bins, uint64_t* borders) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  if (uniforms[row] < 0) return;
  auto& m = *reinterpret_cast<BorderMemory*>(evalrun_shared_memory());
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const float* from = row_of(logits, s.n_logits);
  BorderSearch search;
  search.by_mass = !cuts_by_count(s);
  if (!search.by_mass) search.need = static_cast<uint64_t>(s.top_k);
  find_bin(s, bins + static_cast<size_t>(row) * kBins, search, m);
  while (true) {
    find_digits(s, from, best, search, m);
    const uint64_t stay = search.reached + search.left;
    if (search.by_mass || s.top_p >= 1 || stay <= 1) break;
    // Top-p of what top-k has left, from the first digit: the bins are counts.
    BorderSearch among;
    among.least = search.border(), among.left = static_cast<uint32_t>(stay);
    among.by_mass = true;
    search = among;
  }
  if (threadIdx.x == 0) borders[row] = search.border();
}

}  // namespace

void find_borders_of_rows(const AnswerShape& s, const float* logits, const uint64_t* result,
                          const double* uniforms, uint64_t* bins, uint64_t* borders,
                          cudaStream_t stream) {
  launch("fill_bins", fill_bins, answer_grid(s, (s.n_logits + kBinGroup - 1) / kBinGroup), kThreads,
         kBinParts * kBins * sizeof(uint32_t), stream, s, logits, result, uniforms, bins);
  launch("find_borders", find_borders, answer_grid(s, 1), kBorderThreads, sizeof(BorderMemory),
         stream, s, logits, result, uniforms, bins, borders);
}

}  // namespace evalrun::engine::cuda
