// A vector whose storage starts on a cache line (64 bytes), for vector kernels.
#pragma once
#include <cstddef>
#include <new>
#include <vector>

namespace evalrun::base {

template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
  template <typename U>
  bool operator==(const CacheLineAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

// The same, but a new vector of a size holds anything: pages take memory when they are written.
template <typename T>
struct UntouchedAllocator : CacheLineAllocator<T> {
  UntouchedAllocator() = default;
  template <typename U>
  UntouchedAllocator(const UntouchedAllocator<U>&) {}
  template <typename U>
  void construct(U*) noexcept {}
};

template <typename T>
using UntouchedVector = std::vector<T, UntouchedAllocator<T>>;

}  // namespace evalrun::base
