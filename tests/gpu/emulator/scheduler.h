// What the emulator's own parts know of the threads that run: fibres.cpp. g_thread is a thread's
// number in its cluster, block after block; a launch without clusters is clusters of one block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulator {

[[noreturn]] void fail(const char* what);  // with the place of the thread that runs
uint64_t next_random();
bool shuffled();  // not in natural order
// The thread that runs goes on when this holds; when nothing else can happen, the words are said.
void wait_until(std::function<bool()> holds, const char* waits_for);

int threads_of_block();
int blocks_together();
unsigned char* shared_of(int rank);  // of a block of the cluster
size_t shared_bytes();               // of each
bool has_ended(int rank);

}  // namespace emulator
