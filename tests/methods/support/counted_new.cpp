#include "tests/methods/support/counted_new.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> made{0}, live{0};

void* counted(size_t size, size_t alignment) {
  ++made;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (p == nullptr) throw std::bad_alloc();
  live += static_cast<int64_t>(malloc_usable_size(p));
  return p;
}

void give_back(void* p) {
  if (p != nullptr) live -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}
}  // namespace

void* operator new(size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t a) {
  return counted(size, static_cast<size_t>(a));
}
void* operator new[](size_t size, std::align_val_t a) {
  return counted(size, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, size_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { give_back(p); }

namespace evalrun::tests {

int64_t allocations() { return made; }
int64_t live_bytes() { return live; }

}  // namespace evalrun::tests
