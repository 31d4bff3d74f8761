#include "core/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace ringline {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::invalid_argument("cannot " + std::string(what) + " " + path + ": " + std::strerror(errno));
}

// Kernels read weights at memory speed, where a page of 4 KiB costs a quarter of it in address translation. A
// file system with large folios maps pages of 2 MiB when address and file offset agree on that boundary and
// the pages are read through the mapping: not by MADV_WILLNEED, which brings small ones.
constexpr size_t kHugePage = size_t{1} << 21;

// A free range of addresses of `size` bytes, on a huge page's boundary, or null.
void* reserve(size_t size) {
  void* whole =
      ::mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(whole);
  const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skip > 0) ::munmap(begin, skip);
  std::byte* end = begin + skip + size;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  end += (page - reinterpret_cast<uintptr_t>(end) % page) % page;
  if (end < begin + size + kHugePage) ::munmap(end, static_cast<size_t>(begin + size + kHugePage - end));
  return begin + skip;
}

// Reads the whole file into the mapping it returns; MAP_FAILED when there can be none.
void* map_file(int file, size_t size) {
  void* place = reserve(size);
  const int fixed = place != nullptr ? MAP_FIXED : 0;
  void* mapping = ::mmap(place, size, PROT_READ, MAP_SHARED | fixed, file, 0);
  if (mapping == MAP_FAILED) return mapping;
  // Both are advice: a kernel that knows neither reads page by page, as needed.
  ::madvise(mapping, size, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  ::madvise(mapping, size, MADV_POPULATE_READ);
#endif
  return mapping;
}

// How many bytes of the mapping that begins at `data` are in huge pages; 0 where the system does not say.
size_t huge_bytes(const void* data) {
  std::ostringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>(data) << '-';
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool found = false;
  while (std::getline(smaps, line)) {
    found = found || line.rfind(address.str(), 0) == 0;
    constexpr std::string_view kKey = "FilePmdMapped:";
    if (found && line.rfind(kKey, 0) == 0) return std::stoull(line.substr(kKey.size())) * 1024;
  }
  return 0;
}

// Where pages of a file were reclaimed before, those left keep the holes between them from being filled with
// huge pages. The file is then read anew, once; not where there is no huge page at all, as there never will
// be.
void* map_in_huge_pages(int file, size_t size) {
  void* mapping = map_file(file, size);
  if (mapping == MAP_FAILED) return mapping;
  const size_t huge = huge_bytes(mapping);
  if (huge == 0 || huge >= size - size / 10) return mapping;
  ::munmap(mapping, size);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  return map_file(file, size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "open");
  struct stat status = {};
  const bool known = ::fstat(file, &status) == 0;
  size_ = known ? static_cast<size_t>(status.st_size) : 0;
  void* mapping = size_ > 0 ? map_in_huge_pages(file, size_) : MAP_FAILED;
  ::close(file);
  if (known && size_ == 0) errno = ENODATA;
  if (mapping == MAP_FAILED) fail(path, "map");
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace ringline
