// The vector path: kernels of one instruction set on a thread pool. One parallel region per
// forward. Workspace and KvMemory have the memory, ForwardThreads who does what, Layers computes up
// to the last layer, Outputs the rest.
#include "engine/backend.h"
#include "engine/cache_memory.h"
#include "engine/cpu/forward_threads.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/kv_memory.h"
#include "engine/cpu/layers.h"
#include "engine/cpu/node_weights.h"
#include "engine/cpu/outputs.h"
#include "engine/cpu/prepared_rows.h"
#include "engine/cpu/workspace.h"
#include "engine/row_program.h"

namespace evalrun::engine {
namespace {

constexpr int kOwnRows = 3;  // up to so many rows, every thread does row phases for itself

template <typename T>
class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<const Model> model, const SessionOptions& options,
             const CacheBlocks& blocks);

  std::string isa() const override { return threads_.kernels().name; }
  int n_threads() const override { return threads_.size(); }

  void forward(const ForwardPlan& plan, const ForwardRequest& request, ForwardResult& result,
               Answers& answers) override;
  // A key's values lie in as many lines as it has pairs of them: 1.5 % of a plain step by one
  // thread, 3 % of a step of four sequences.
  void commit(std::span<const CommitRow> rows) override {
    threads_.pool().run([&](int thread) {
      const auto [begin, end] = threads_.share(kv_.layers(), thread);
      kv_.commit(rows, begin, end);
    });
  }
  void copy_sequence(int from, int to, int length) override { kv_.copy_sequence(from, to, length); }
  void read_kv(int layer, int position, int sequence, std::span<float> k,
               std::span<float> v) const override {
    kv_.read(layer, position, sequence, k, v);
  }

  InputView compute(const RowProgram& program, int result) override;
  MatrixView multiply(const WeightMatrix& w, InputView x) override;

  PhaseTimes phases() const override { return threads_.times(); }
  size_t kv_bytes_per_token() const override { return kv_.bytes_per_token(); }
  size_t kv_bytes() const override { return kv_.bytes(); }
  size_t workspace_bytes() const override;
  WeightPlacement weight_placement() const override { return weights_.placement(); }

 private:
  bool own_rows(const ForwardPlan& plan, const ForwardRequest& request) const;

  const std::shared_ptr<const Model> model_;
  const ModelConfig& c_;
  cpu::ForwardThreads threads_;
  cpu::NodeWeights weights_;
  cpu::Workspace workspace_;
  cpu::KvMemory<T> kv_;
  cpu::Layers<T> layers_;
  cpu::Outputs outputs_;
  HostRows computed_;
  cpu::Rows product_;  // of multiply()
  cpu::PreparedRows product_in_;
};

template <typename T>
CpuBackend<T>::CpuBackend(std::shared_ptr<const Model> model, const SessionOptions& options,
                          const CacheBlocks& blocks)
    : model_(std::move(model)),
      c_(model_->config()),
      threads_(
          options.one_isa ? *cpu::one_isa_kernels(options.isa) : *cpu::find_kernels(options.isa),
          options.n_threads, options.measure_phases, options.places),
      weights_(model_, threads_.pool()),
      workspace_(*model_, threads_.size()),
      // Reserved room is there before a step is measured; a pool may be larger than what is used.
      kv_(weights_.spread([&] {
        return cpu::KvMemory<T>(c_, blocks, static_cast<int>(pool_positions(options)),
                                options.pool_tokens == 0, workspace_.spaces.size());
      })),
      layers_(weights_, threads_, workspace_, kv_, options.max_tokens),
      outputs_(weights_, threads_, workspace_) {}

template <typename T>
void CpuBackend<T>::forward(const ForwardPlan& plan, const ForwardRequest& request,
                            ForwardResult& result, Answers& answers) {
  const bool own = own_rows(plan, request);
  const size_t spaces = own ? workspace_.spaces.size() : 1;
  workspace_.make_room(*model_, threads_.kernels(), plan, spaces, request.residual_layers.size());
  kv_.room_for_rows(spaces, plan.n_kept() + plan.n_rows());
  if (request.prefix != nullptr) kv_.load_prefix(*request.prefix);
  layers_.begin(plan, request);
  outputs_.begin(plan);
  threads_.begin(plan.n_rows(), own);
  threads_.pool().run([this](int thread) {
    if (layers_.run(thread)) outputs_.run(thread);
  });
  outputs_.read(result, answers);
}

template <typename T>
bool CpuBackend<T>::own_rows(const ForwardPlan& plan, const ForwardRequest& request) const {
  // Biases and low-rank deltas are added in place to what all threads read.
  return threads_.size() > 1 && plan.n_rows() <= kOwnRows && !c_.qkv_bias && !c_.o_bias &&
         !c_.mlp_bias && request.low_rank == nullptr && plan.n_kept() == 0;
}

template <typename T>
InputView CpuBackend<T>::compute(const RowProgram& program, int result) {
  return computed_.run(program, result, *model_,
                       {[this](const WeightMatrix& w, MatrixView x) { return multiply(w, x); },
                        threads_.kernels().silu_mul, threads_.kernels().lstm});
}

template <typename T>
MatrixView CpuBackend<T>::multiply(const WeightMatrix& w, InputView x) {
  const size_t rows = static_cast<size_t>(x.rows);
  product_in_.ensure(threads_.kernels(), w.storage(), rows, w.in());
  for (int i = 0; i < x.rows; ++i) product_in_.set(static_cast<size_t>(i), w, x.row(i).data());
  product_.ensure(rows, static_cast<size_t>(w.out()));  // x may be the last product
  threads_.pool().run([&](int thread) {
    const cpu::MatrixJob job = {&weights_.near(w, thread), product_.row(0), product_.ld()};
    threads_.multiply({&job, 1}, product_in_.view(w), x.rows, thread);
  });
  return {product_.row(0), x.rows, w.out()};
}

template <typename T>
size_t CpuBackend<T>::workspace_bytes() const {
  return workspace_.bytes() + layers_.bytes() + kv_.row_bytes() + product_.bytes() +
         product_in_.bytes();
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<const Model> model,
                                          const SessionOptions& options,
                                          const CacheBlocks& blocks) {
  if (options.kv_dtype == "f32")
    return std::make_unique<CpuBackend<float>>(std::move(model), options, blocks);
  if (options.kv_dtype == "int8")
    return std::make_unique<CpuBackend<int8_t>>(std::move(model), options, blocks);
  if (options.kv_dtype == "fp8")
    return std::make_unique<CpuBackend<cpu::Fp8>>(std::move(model), options, blocks);
  if (options.kv_dtype == "int4")
    return std::make_unique<CpuBackend<uint8_t>>(std::move(model), options, blocks);
  return std::make_unique<CpuBackend<uint16_t>>(std::move(model), options, blocks);
}

}  // namespace evalrun::engine
