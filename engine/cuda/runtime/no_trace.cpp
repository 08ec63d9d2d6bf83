// Spans in a build without the toolkit. A file of its own: programs that bring another CUDA backend
// (tests/gpu/emulator) take these from the library and nothing else of no_cuda.cpp.
#include "engine/trace.h"

namespace evalrun::engine {

void push_span(const char*) {}
void pop_span() {}

}  // namespace evalrun::engine
