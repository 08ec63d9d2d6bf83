// What a test binary takes by `new`: a process that links counted_new.cpp has all of them counted.
#pragma once
#include <cstdint>

namespace evalrun::tests {

int64_t allocations();  // so far
int64_t live_bytes();   // not given back; as much as the allocator made of each request

}  // namespace evalrun::tests
