// Arrays for kernels: aligned to cache lines, allocated once, pages untouched until they are written.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace ringline {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : size_(count), data_(allocate(count)) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  static constexpr size_t kAlignment = 64;

  static T* allocate(size_t count) {
    const size_t bytes = (count * sizeof(T) + kAlignment) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }

  size_t size_ = 0;
  std::unique_ptr<T, Free> data_;
};

}  // namespace ringline
