// Masses of all tokens, and draws: a kernel for the masses of groups of 1,024 tokens and one that
// finds the group, then the token. Draws by noise are a race in groups of as many tokens, then one
// between their winners.
#include "engine/cuda/kernels/answer_parts.h"
#include "engine/noise_arith.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kGroupsEach = 4;  // masses of groups that a thread adds up
constexpr int kNoiseEach = 4;   // noise blocks of a block
static_assert(size_t{kThreads} * kGroupsEach * kMassGroup >= kMaxSampledVocab);

// The mass of one token; 0 beyond the border.
__device__ __forceinline__ uint64_t mass_at(float logit, int token, float best, double scale,
                                            uint64_t border) {
  if (border > 0 && order_of(logit, token) < border) return 0;
  return mass_of(weight_of(logit, best, scale));
}

// Masses of groups of 1,024 tokens, and of every one of them where the row has a task. Rows without
// a uniform have none; without uniforms all rows have.
__global__ void __launch_bounds__(kThreads)
    group_masses(AnswerShape s, const float* logits, const uint64_t* result, AnswerInputs in,
                 const uint64_t* borders, double scale, uint64_t* masses, uint64_t* dists) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (in.uniforms != nullptr && in.uniforms[row] < 0) return;
  const float* from = row_of(logits, s.n_logits);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup + thread;
  float value[kEach];
  load_logits(from, begin, kThreads, s.n_logits, value);
  uint64_t* dist = nullptr;
  const int32_t* ids = nullptr;
  if (in.tasks != nullptr && in.tasks[row].kind != AnswerTask::kNone) {
    dist = distribution_of(s, in.tasks[row], in.dists, dists);
    if (in.tasks[row].kind == AnswerTask::kDraws) ids = in.dists.ids;
  }
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  uint64_t mass = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = begin + i * kThreads;
    if (token < s.n_logits) {
      const uint64_t own = mass_at(value[i], token, best, scale, border);
      mass += own;
      if (dist != nullptr) dist[ids == nullptr ? token : ids[token]] = own;
    }
  }
  const BlockSum sum =
      sum_of_block(mass, reinterpret_cast<uint64_t*>(evalrun_shared_memory()));  // [warps]
  if (thread == 0)
    masses[static_cast<size_t>(row) * static_cast<size_t>(mass_groups_of(s.n_logits)) +
           blockIdx.x] = sum.total;
}

__global__ void __launch_bounds__(kWarp)
    sum_masses(AnswerShape s, const uint64_t* masses, uint64_t* result) {
  wait_for_previous();
  const uint64_t total = sum_of_groups(mass_groups_of(s.n_logits), masses_of_row(s, masses));
  if (threadIdx.x == 0)
    result[static_cast<size_t>(blockIdx.y) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best)] = total;
}

// Shared memory of a draw.
struct DrawMemory {
  uint64_t sums[kWarps];
  uint64_t place;  // within the group
  int32_t group;
};

// The first token at which the masses, added by id, exceed the place of the draw.
__global__ void __launch_bounds__(kThreads)
    draw_token(AnswerShape s, const float* logits, AnswerInputs in, const uint64_t* borders,
               const uint64_t* masses, uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  if (in.tasks != nullptr && in.tasks[row].kind != AnswerTask::kNone) return;
  uint64_t* out = result + static_cast<size_t>(row) * static_cast<size_t>(s.stride());
  uint64_t* drawn = out + s.n_best + 1;
  if (thread == 0) *drawn = ~uint64_t{0};
  const double uniform = in.uniforms[row];
  if (uniform < 0) return;
  auto& m = *reinterpret_cast<DrawMemory*>(evalrun_shared_memory());

  // The group.
  const int groups = mass_groups_of(s.n_logits);
  const uint64_t* of_groups = masses_of_row(s, masses);
  uint64_t own[kGroupsEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    const int group = thread * kGroupsEach + i;
    own[i] = group < groups ? of_groups[group] : 0;
    sum += own[i];
  }
  const BlockSum all = sum_of_block(sum, m.sums);
  if (all.total == 0) return;  // nothing to draw from
  uint64_t place = place_of_draw(uniform, all.total), before = all.before;
#pragma unroll
  for (int i = 0; i < kGroupsEach; ++i) {
    if (place >= before && place < before + own[i])
      m.group = thread * kGroupsEach + i, m.place = place - before;
    before += own[i];
  }
  __syncthreads();
  place = m.place;

  // The token: four in turn are a thread's.
  const float best = logit_of(out[0]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const int begin = m.group * kMassGroup + thread * kEach;
  float value[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) value[i] = begin + i < s.n_logits ? from[begin + i] : 0.0f;
  uint64_t mass[kEach];
  sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    mass[i] = begin + i < s.n_logits
                  ? mass_at(value[i], begin + i, best, s.inverse_temperature, border)
                  : 0;
    sum += mass[i];
  }
  before = sum_of_block(sum, m.sums).before;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (place >= before && place < before + mass[i]) *drawn = static_cast<uint64_t>(begin + i);
    before += mass[i];
  }
}

// A token and how fast it is (engine/gumbel.cpp). Nobody: -1, speed 0.
struct Racer {
  double speed = 0;
  int32_t token = -1;
};
// Of equal speeds the lower id wins. A whole warp.
__device__ __forceinline__ Racer fastest_of_warp(Racer own) {
  for (int with = kWarp / 2; with > 0; with /= 2) {
    const double speed = __shfl_xor_sync(kAllLanes, own.speed, with);
    const int32_t token = __shfl_xor_sync(kAllLanes, own.token, with);
    if (speed > own.speed || (speed == own.speed && token < own.token))
      own.speed = speed, own.token = token;
  }
  return own;
}

// The token of a group that arrives first: a thread for each token of a noise block, one block
// after the other. A thread meets its ids in order.
static_assert(kThreads == kNoiseBlock && kNoiseEach * kNoiseBlock == kMassGroup);
__global__ void __launch_bounds__(kThreads)
    draw_by_noise(AnswerShape s, const float* logits, const uint64_t* result,
                  const double* uniforms, const uint64_t* borders, uint64_t* winners) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x),
            warp = thread / kWarp, lane = thread % kWarp;
  const double uniform = uniforms[row];
  if (uniform < 0) return;
  auto* speeds = reinterpret_cast<double*>(evalrun_shared_memory());  // [warps]
  auto* tokens = reinterpret_cast<int32_t*>(speeds + kWarps);         // [warps]
  const float best = logit_of(result[static_cast<size_t>(row) * static_cast<size_t>(s.stride())]);
  const uint64_t border = borders == nullptr ? 0 : borders[row];
  const float* from = row_of(logits, s.n_logits);
  const TokenNoise noise(uniform);
  const int begin = static_cast<int>(blockIdx.x) * kMassGroup + thread;
  Racer own;
  float next = begin < s.n_logits ? from[begin] : 0.0f;
#pragma unroll 1
  for (int i = 0; i < kNoiseEach; ++i) {
    const int token = begin + i * kThreads, ahead = token + kThreads;
    const float logit = next;
    next = i + 1 < kNoiseEach && ahead < s.n_logits ? from[ahead] : 0.0f;
    if (token >= s.n_logits || (border > 0 && order_of(logit, token) < border)) continue;
    const double weight = weight_of(logit, best, s.inverse_temperature);
    const TokenNoise::First first = noise.first(token / kNoiseBlock);
    if (weight / first.arrival <= own.speed) continue;
    const double speed = weight / noise.arrival(token, first);
    if (speed > own.speed) own.speed = speed, own.token = token;
  }
  own = fastest_of_warp(own);
  if (lane == 0) speeds[warp] = own.speed, tokens[warp] = own.token;
  __syncthreads();
  if (warp > 0) return;
  own = {};
  if (lane < kWarps) own.speed = speeds[lane], own.token = tokens[lane];
  own = fastest_of_warp(own);
  if (lane > 0) return;
  uint64_t* to =
      winners +
      2 * (static_cast<size_t>(row) * static_cast<size_t>(mass_groups_of(s.n_logits)) + blockIdx.x);
  to[0] = std::bit_cast<uint64_t>(own.speed);
  to[1] = static_cast<uint64_t>(static_cast<int64_t>(own.token));
}

// Of the groups' winners. A warp a row.
__global__ void __launch_bounds__(kWarp)
    first_to_arrive(AnswerShape s, const double* uniforms, const uint64_t* winners,
                    uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x),
            groups = mass_groups_of(s.n_logits);
  const uint64_t* from = winners + 2 * static_cast<size_t>(row) * static_cast<size_t>(groups);
  Racer own;
  if (uniforms[row] >= 0)
    for (int g = lane; g < groups; g += kWarp) {
      const auto speed = std::bit_cast<double>(from[2 * g]);
      if (speed > own.speed)  // ids ascend
        own.speed = speed, own.token = static_cast<int32_t>(from[2 * g + 1]);
    }
  own = fastest_of_warp(own);
  if (lane == 0)
    result[static_cast<size_t>(row) * static_cast<size_t>(s.stride()) +
           static_cast<size_t>(s.n_best + 1)] =
        static_cast<uint64_t>(static_cast<int64_t>(own.token));
}

void add_masses(const AnswerShape& s, const float* logits, const uint64_t* result,
                const AnswerInputs& in, const uint64_t* borders, double scale, uint64_t* masses,
                uint64_t* dists, cudaStream_t stream) {
  launch("group_masses", group_masses, answer_grid(s, mass_groups_of(s.n_logits)), kThreads,
         kWarps * sizeof(uint64_t), stream, s, logits, result, in, borders, scale, masses, dists);
}

}  // namespace

void sum_masses_of_rows(const AnswerShape& s, const float* logits, uint64_t* masses,
                        uint64_t* result, cudaStream_t stream) {
  add_masses(s, logits, result, {}, nullptr, 1.0, masses, nullptr, stream);
  launch("sum_masses", sum_masses, answer_grid(s, 1), kWarp, 0, stream, s, masses, result);
}

void draw_tokens_of_rows(const AnswerShape& s, const float* logits, const AnswerInputs& in,
                         const uint64_t* borders, uint64_t* masses, uint64_t* dists,
                         uint64_t* result, cudaStream_t stream) {
  add_masses(s, logits, result, in, borders, s.inverse_temperature, masses, dists, stream);
  launch("draw_token", draw_token, answer_grid(s, 1), kThreads, sizeof(DrawMemory), stream, s,
         logits, in, borders, masses, result);
}

void draw_by_noise_of_rows(const AnswerShape& s, const float* logits, const double* uniforms,
                           const uint64_t* borders, uint64_t* winners, uint64_t* result,
                           cudaStream_t stream) {
  launch("draw_by_noise", draw_by_noise, answer_grid(s, mass_groups_of(s.n_logits)), kThreads,
         kWarps * (sizeof(double) + sizeof(int32_t)), stream, s, logits, result, uniforms, borders,
         winners);
  launch("first_to_arrive", first_to_arrive, answer_grid(s, 1), kWarp, 0, stream, s, uniforms,
         winners, result);
}

}  // namespace evalrun::engine::cuda
