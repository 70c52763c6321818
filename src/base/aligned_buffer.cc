#include "base/aligned_buffer.h"

#include <sys/mman.h>

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

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes, std::string_view what) {
  std::byte* data = nullptr;
  if (own_pages(bytes)) {
    void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) data = static_cast<std::byte*>(pages);
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
