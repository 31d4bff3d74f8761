#include "core/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace ringline {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::invalid_argument("cannot " + std::string(what) + " " + path + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "open");
  struct stat status = {};
  const bool known = ::fstat(file, &status) == 0;
  size_ = known ? static_cast<size_t>(status.st_size) : 0;
  void* mapping = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (known && size_ == 0) errno = ENODATA;
  if (mapping == MAP_FAILED) fail(path, "map");
  data_ = static_cast<const std::byte*>(mapping);
  // Reading ahead may start now; a page is read once and stays as long as memory allows.
  ::madvise(mapping, size_, MADV_WILLNEED);
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace ringline
