// What GCC's -fsanitize=thread calls, by its own names. Linked to programs with such kernels and to
// no others: a build with the thread sanitizer's library has these functions there.
#include "tests/gpu/emulator/accesses.h"

using emulator::accesses::hook;
using emulator::accesses::Kind;

extern "C" {
void __tsan_init() { emulator::accesses::switch_on(); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
#define HOOKS(bytes)                                                 \
  void __tsan_read##bytes(void* p) {                                 \
    hook(p, bytes, Kind::kRead, true, __builtin_return_address(0));  \
  }                                                                  \
  void __tsan_write##bytes(void* p) {                                \
    hook(p, bytes, Kind::kWrite, true, __builtin_return_address(0)); \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
// Structures, and what is said to be unaligned: their parts have addresses for the sanitizer of
// undefined behaviour to check.
void __tsan_read_range(void* p, size_t bytes) {
  hook(p, bytes, Kind::kRead, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t bytes) {
  hook(p, bytes, Kind::kWrite, false, __builtin_return_address(0));
}
// Atomics of the host's code in those files: shared pointers, guards of static variables.
signed char __tsan_atomic8_load(const volatile signed char* p, int) {
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_add(volatile int* p, int by, int) {
  return __atomic_fetch_add(p, by, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* p, int by, int) {
  return __atomic_fetch_sub(p, by, __ATOMIC_SEQ_CST);
}
}
