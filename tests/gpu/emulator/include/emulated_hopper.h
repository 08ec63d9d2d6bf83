// What a kernel asks of a GPU of compute capability 9.0 (PTX of sm_90a), emulated: clusters,
// mbarriers, bulk copies, wgmma. Part of cuda_runtime.h here; the kernels' side is
// engine/cuda/kernels/hopper_code.h.
//
// Made to find mistakes, like the rest:
//   - a bulk copy arrives late, copies in any order; until then its place is not-a-number, and in
//     checked programs nobody may look at it. Nobody may overwrite what a wgmma reads.
//   - a wgmma's sums are not-a-number from the instruction on until wait_group says it is done.
//     Who writes to them meanwhile aborts. It reads shared memory at once or when it is waited for,
//     by chance, and aborts where that was not the same.
//   - waits that never end, arrivals that nobody expects, copies that nobody waits for, shared
//     memory of a block that has ended: an abort that says so.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

int cluster_rank();
int cluster_size();
// The same place in the shared memory of another block of the cluster (mapa).
void* of_cluster(void* shared, int rank);
void cluster_store(void* to, const void* value, size_t bytes);  // st.shared::cluster
void cluster_arrive();                                          // barrier.cluster
void cluster_wait();

// mbarrier.init, by one thread. A phase is over when so many have arrived and all bytes that were
// expected have come.
void mbarrier_init(uint64_t* barrier, unsigned arrivals);
// mbarrier.arrive(.expect_tx), of any block of the cluster.
void mbarrier_arrive(uint64_t* barrier, unsigned expected_bytes = 0);
// Until the phase of this parity is over (mbarrier.try_wait.parity in a loop).
void mbarrier_wait(uint64_t* barrier, unsigned parity);

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
void bulk_copy(void* shared, const void* global, unsigned bytes, uint64_t* barrier);
void fence_proxy_async();  // what the thread wrote, asynchronous operations may read

// wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 with A in registers. N = 8 n / 4: `d` has n
// sums of the lane, 4 for each 8 columns, as of mma.m16n8k16; `a` as there. `b` describes
// [N][16] bfloat16 in shared memory, K-major (matrix_descriptor()). Without `add` D is A B.
void wgmma_fence();
void wgmma_bf16(float* d, int n, const uint32_t (&a)[4], uint64_t b, bool add);
void wgmma_commit();
void wgmma_wait(int but_last_groups);
// Where shared memory lies for descriptors: its bytes from the block's first.
uint64_t shared_offset(const void* shared);

}  // namespace emulator
