#include "base/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)  // clang's way of saying it
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

namespace myriad {
namespace {

bool own_pages(std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  (void)bytes;
  return false;  // from the heap the sanitizer sees a read past the end
#else
  return bytes >= AlignedBuffer::kOwnPages;
#endif
}

// Fresh pages, zeroed; nullptr when the system refuses. Large buffers begin where a large page could, and the system is
// asked for large pages wherever a whole one lies inside: weights that stream through a product cross a page every 250
// ns otherwise. Nothing outside the buffer is ever touched, so its resident size stays its size.
std::byte* map_pages(std::size_t bytes) {
  const auto map = [](std::size_t n) {
    void* const pages = ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? nullptr : static_cast<std::byte*>(pages);
  };
#if defined(MADV_HUGEPAGE)
  constexpr std::size_t kLarge = std::size_t{2} << 20, kPage = 4096;
  if (bytes >= kLarge && bytes <= SIZE_MAX - 2 * kLarge && ::sysconf(_SC_PAGESIZE) == kPage) {
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
    std::byte* const all = map(size + kLarge);
    if (all == nullptr) return map(bytes);
    const std::size_t before = (kLarge - reinterpret_cast<std::uintptr_t>(all) % kLarge) % kLarge;
    if (before > 0) ::munmap(all, before);
    if (before < kLarge) ::munmap(all + before + size, kLarge - before);
    ::madvise(all + before, size, MADV_HUGEPAGE);
    return all + before;
  }
#endif
  return map(bytes);
}

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes, std::string_view what) {
  std::byte* data = nullptr;
  if (own_pages(bytes)) {
    data = map_pages(bytes);
  } else {
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    data = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    if (data != nullptr) std::memset(data, 0, rounded);
  }
  if (data == nullptr)
    return fail(Code::does_not_fit, "allocating {} bytes for {}: the system refused; give this process more memory",
                bytes, what);
  AlignedBuffer buffer;
  buffer.data_ = std::unique_ptr<std::byte, Free>(data, Free(bytes));
  return buffer;
}

void AlignedBuffer::Free::operator()(std::byte* p) const {
  if (own_pages(bytes)) {
    ::munmap(p, bytes);
  } else {
    std::free(p);  // NOLINT: pairs with aligned_alloc
  }
}

}  // namespace myriad
