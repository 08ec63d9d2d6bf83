// Kernels with one fault each, and some without: what scripts/check-kernels has to name
// (kernel_faults_test.py).

// Nothing is wrong: every load is under way before the first is waited for.
__global__ void __launch_bounds__(128) clean(const float* __restrict__ x, float* __restrict__ y) {
  float value[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) value[k] = x[threadIdx.x + 128 * k];
#pragma unroll
  for (int k = 0; k < 4; ++k) y[threadIdx.x + 128 * k] = value[k] * 2;
}

// The same, but `y` may be `x`: no load may move above a store.
__global__ void __launch_bounds__(128) serial_run(const float* x, float* y) {
#pragma unroll
  for (int k = 0; k < 4; ++k) y[threadIdx.x + 128 * k] = x[threadIdx.x + 128 * k] * 2;
}

__global__ void __launch_bounds__(128) serial_loop(const float* x, float* y, int n) {
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 128) y[i] = x[i] * 2;
}

// As that loop, but the next load is under way before a value is stored.
__global__ void __launch_bounds__(128) ahead(const float* x, float* y, int n) {
  float next = x[threadIdx.x];
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 128) {
    const float value = next * 2;
    next = x[i + 128];
    y[i] = value;
  }
}

// More values at once than the 32 registers that these launch bounds leave.
__global__ void __launch_bounds__(1024, 2)
    spilled(const float* __restrict__ x, float* __restrict__ y) {
  float value[34];
#pragma unroll
  for (int k = 0; k < 34; ++k) value[k] = x[threadIdx.x + 1024 * k];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 34; ++k) sum = sum * value[k] + value[33 - k];
  y[threadIdx.x] = sum;
}

// An array with an index that is known at run time only.
__global__ void __launch_bounds__(128)
    local_array(const float* __restrict__ x, float* __restrict__ y, const int* __restrict__ index) {
  float value[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) value[k] = x[threadIdx.x + 128 * k];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    value[index[k] % 8] += 1;
    sum += value[index[k + 4] % 8];
  }
  y[threadIdx.x] = sum;
}

// What a pointer means that was in shared memory is not known.
__global__ void __launch_bounds__(128) generic_load(const float* x, float* y) {
  __shared__ const float* from;
  if (threadIdx.x == 0) from = x;
  __syncthreads();
  y[threadIdx.x] = from[threadIdx.x];
}

// Shared memory has no addition of 64 bits.
__global__ void __launch_bounds__(128)
    spinning(const int* __restrict__ bin, unsigned long long* __restrict__ y) {
  __shared__ unsigned long long sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&sums[bin[threadIdx.x] & 1], 3ULL);
  __syncthreads();
  if (threadIdx.x < 2) y[threadIdx.x] = sums[threadIdx.x];
}
