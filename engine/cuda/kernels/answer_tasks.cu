// Rows with a task, a block each: drafts drawn from a distribution that is kept, or a node's
// children, tried against theirs (engine/rejection.h).
#include <algorithm>

#include "engine/cuda/kernels/answer_parts.h"

namespace evalrun::engine::cuda {
namespace {

constexpr int kTaskThreads = 1024;
constexpr int kTaskWarps = kTaskThreads / kWarp;
constexpr int kTaskGroup = 512;  // tokens, whose masses are added up first

// Sums of groups of 512 masses by mass(token). A whole block; there is a barrier at the end.
template <typename Mass>
__device__ __forceinline__ void add_groups(int n, uint64_t* sums, Mass mass) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int begin = warp * kTaskGroup; begin < n; begin += kTaskWarps * kTaskGroup) {
    const int end = min(begin + kTaskGroup, n);
    uint64_t own = 0;
    for (int token = begin + lane; token < end; token += kWarp) own += mass(token);
    own = sum_of_warp(own);
    if (lane == 0) sums[begin / kTaskGroup] = own;
  }
  __syncthreads();
}
// The first place in [begin, end) at which the masses, added in order, exceed `place`, which then
// counts from it. A whole warp; -1 where they do not reach so far.
template <typename Mass>
__device__ __forceinline__ int find_place(int begin, int end, uint64_t& place, Mass mass) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (; begin < end; begin += kWarp) {
    const uint64_t own = begin + lane < end ? mass(begin + lane) : 0;
    const uint64_t upto = sum_upto_lane(own);
    const unsigned behind = __ballot_sync(kAllLanes, place < upto);
    if (behind != 0) {
      const int first = __ffs(static_cast<int>(behind)) - 1;
      place -= __shfl_sync(kAllLanes, upto - own, first);
      return begin + first;
    }
    place -= __shfl_sync(kAllLanes, upto, kWarp - 1);
  }
  return -1;
}
// The token, by its group. A whole warp.
template <typename Mass>
__device__ __forceinline__ int find_token(int n, const uint64_t* sums, uint64_t place, Mass mass) {
  const int groups = (n + kTaskGroup - 1) / kTaskGroup;
  const int group = find_place(0, groups, place, [&](int g) { return sums[g]; });
  if (group < 0) return -1;
  const int begin = group * kTaskGroup;
  return find_place(begin, min(begin + kTaskGroup, n), place, mass);
}
__device__ __forceinline__ bool holds(const int32_t* tokens, int n, int token) {
  for (int i = 0; i < n; ++i)
    if (tokens[i] == token) return true;
  return false;
}

// draw_without_replacement() of a kept distribution, whose masses are known.
__device__ __forceinline__ void keep_and_draw(const AnswerTask& task, uint64_t total,
                                              double uniform, const AnswerInputs& in,
                                              const uint64_t* dist, uint64_t* sums, int32_t* drawn,
                                              uint64_t* out) {
  const int n = in.dists.vocab, thread = static_cast<int>(threadIdx.x);
  if (thread == 0) in.dists.total[task.dist] = total;
  add_groups(n, sums, [&](int token) { return dist[token]; });
  if (thread >= kWarp) return;
  uint64_t left = total;
  for (int i = 0; i <= task.count; ++i) {
    if (i > 0) uniform = in.further_uniforms[task.first + i - 1];
    const auto mass = [&](int token) { return holds(drawn, i, token) ? 0 : dist[token]; };
    const int token = left == 0 ? -1 : find_token(n, sums, place_of_draw(uniform, left), mass);
    __syncwarp();  // all have read `drawn` and the sums
    if (token >= 0) left -= dist[token];
    if (thread == 0) {
      drawn[i] = token;
      if (token >= 0) sums[token / kTaskGroup] -= dist[token];
      out[i == 0 ? 0 : 1 + i] = static_cast<uint64_t>(static_cast<int64_t>(token));
      if (i == 0) out[1] = token < 0 ? 0 : dist[token];
    }
    __syncwarp();
  }
}

// try_children(), the target's distribution being `distribution`.
__device__ __forceinline__ void try_children(const AnswerTask& task, int n, uint64_t total,
                                             double uniform, const AnswerInputs& in, uint64_t* dist,
                                             uint64_t* sums, uint64_t* out) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* children = in.children + task.first;
  const uint64_t* draft =
      in.dists.mass + static_cast<size_t>(task.dist) * static_cast<size_t>(in.dists.vocab);
  uint64_t draft_total = in.dists.total[task.dist];
  const int groups = (n + kTaskGroup - 1) / kTaskGroup;
  bool added = false;  // the sums are those of the distribution
  for (int c = 0; c < task.count; ++c) {
    const int child = children[c], before = task.kind == AnswerTask::kRejection ? c : 0;
    const auto mass = [&](int token) {
      return token < in.dists.vocab && !holds(children, before, token) ? draft[token] : 0;
    };
    if (mass(child) == 0) {
      if (thread == 0) out[0] = 0, out[1] = static_cast<uint64_t>(int64_t{kChildWithoutMass});
      return;
    }
    const double norm = 1.0 / static_cast<double>(total),
                 draft_norm = 1.0 / static_cast<double>(draft_total);
    if (passes(static_cast<double>(dist[child]) * norm,
               static_cast<double>(mass(child)) * draft_norm, uniform)) {
      if (thread == 0) out[0] = static_cast<uint64_t>(child), out[1] = static_cast<uint64_t>(c);
      return;
    }
    const auto residual = [&](int token) {  // of nothing nothing is left: most, before long
      const uint64_t own = dist[token];
      return own == 0 ? 0 : residual_mass(own, norm, mass(token), draft_norm);
    };
    add_groups(n, sums, residual);
    const uint64_t left = sum_of_groups(groups, sums);
    added = left > 0;
    if (left > 0) {
      for (int token = thread; token < n; token += kTaskThreads) dist[token] = residual(token);
      total = left;
    }
    __syncthreads();
    if (task.kind == AnswerTask::kRejection) draft_total -= draft[child];
  }
  if (!added) add_groups(n, sums, [&](int token) { return dist[token]; });
  if (thread >= kWarp) return;
  const int token =
      find_token(n, sums, place_of_draw(uniform, total), [&](int t) { return dist[t]; });
  if (thread == 0)
    out[0] = static_cast<uint64_t>(static_cast<int64_t>(token)), out[1] = ~uint64_t{0};
}

__global__ void __launch_bounds__(kTaskThreads)
    do_tasks(AnswerShape s, AnswerInputs in, const uint64_t* masses, uint64_t* dists,
             uint64_t* result) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y);
  const AnswerTask task = in.tasks[row];
  const double uniform = in.uniforms[row];
  if (task.kind == AnswerTask::kNone || uniform < 0) return;
  auto* sums = reinterpret_cast<uint64_t*>(evalrun_shared_memory());  // [groups]
  const uint64_t total = sum_of_groups(mass_groups_of(s.n_logits), masses_of_row(s, masses));
  uint64_t* dist = distribution_of(s, task, in.dists, dists);
  // The drawn token, the child that passed or the token's mass, further tokens.
  uint64_t* out =
      result + static_cast<size_t>(row) * static_cast<size_t>(s.stride()) + s.n_best + 1;
  if (task.kind == AnswerTask::kDraws) {
    const int groups = (in.dists.vocab + kTaskGroup - 1) / kTaskGroup;
    keep_and_draw(task, total, uniform, in, dist, sums, reinterpret_cast<int32_t*>(sums + groups),
                  out);
  } else {
    try_children(task, s.n_logits, total, uniform, in, dist, sums, out);
  }
}

}  // namespace

void do_tasks_of_rows(const AnswerShape& s, const AnswerInputs& in, const uint64_t* masses,
                      uint64_t* dists, uint64_t* result, cudaStream_t stream) {
  const int groups = (std::max(s.n_logits, in.dists.vocab) + kTaskGroup - 1) / kTaskGroup;
  const size_t shared = static_cast<size_t>(groups) * sizeof(uint64_t) +
                        static_cast<size_t>(s.more_draws + 1) * sizeof(int32_t);
  launch("do_tasks", do_tasks, answer_grid(s, 1), kTaskThreads, shared, stream, s, in, masses,
         dists, result);
}

}  // namespace evalrun::engine::cuda
