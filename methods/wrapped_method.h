// A method that passes everything through to another one, for methods that change a part of it.
#pragma once
#include <memory>
#include <utility>

#include "methods/method.h"

namespace evalrun::methods {

class WrappedMethod : public DecodingMethod {
 public:
  explicit WrappedMethod(std::unique_ptr<DecodingMethod> method) : method_(std::move(method)) {}
  void start(const GenerationContext& context) override { method_->start(context); }
  void begin_step() override { method_->begin_step(); }
  DraftGroup* group() override { return method_->group(); }
  bool stage() override { return method_->stage(); }
  void take() override { method_->take(); }
  engine::ForwardRequest rows() override { return method_->rows(); }
  std::span<const int> accept(const engine::ForwardResult& result) override {
    return method_->accept(result);
  }
  void read_side_rows(const engine::ForwardResult& result) override {
    method_->read_side_rows(result);
  }
  StepOutcome finish_step() override { return method_->finish_step(); }
  void after_step(PhaseTimer& timer) override { method_->after_step(timer); }
  size_t extra_parameter_bytes() const override { return method_->extra_parameter_bytes(); }
  size_t extra_kv_bytes() const override { return method_->extra_kv_bytes(); }
  void add_kept(KeptMemory& kept) const override { method_->add_kept(kept); }
  engine::FeatureSet needs() const override { return method_->needs(); }
  LargestStep largest_step() const override { return method_->largest_step(); }
  DecodingMethod* wrapped() override { return method_.get(); }

 protected:
  // To be wrapped by another().
  std::unique_ptr<DecodingMethod> another_wrapped(int slot) const { return method_->another(slot); }

 private:
  std::unique_ptr<DecodingMethod> method_;
};

}  // namespace evalrun::methods
