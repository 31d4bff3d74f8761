// A file mapped read-only; its pages are shared with every process that maps it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ringline {

class MappedFile {
 public:
  // Throws std::invalid_argument naming the file when it cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_;
  size_t size_;
};

}  // namespace ringline
