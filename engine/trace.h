// Named spans for profilers (NVTX): `nsys profile evalrun run ...` shows what a method was doing
// above the kernels that it caused. Without a profiler a span is a test of a pointer; in a build
// without CUDA it is nothing.
#pragma once

namespace evalrun::engine {

// Spans nest; a name must outlive its span.
void push_span(const char* name);
void pop_span();

class Span {
 public:
  explicit Span(const char* name) { push_span(name); }
  ~Span() { pop_span(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
};

}  // namespace evalrun::engine
