// Memory for weights and state: 64-byte aligned, zeroed, accounted by its exact size.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/error.h"

namespace myriad {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Errors: does_not_fit, when the system refuses; `what` says what it was for.
  static Result<AlignedBuffer> allocate(std::size_t bytes, std::string_view what) {
    AlignedBuffer b;
    b.data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
    if (b.data_ == nullptr)
      return fail(Code::does_not_fit, "allocating {} bytes for {}: the system refused; give this process more memory",
                  bytes, what);
    std::memset(b.data_.get(), 0, (bytes + 63) / 64 * 64);
    b.size_ = bytes;
    return b;
  }
  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }  // NOLINT: pairs with aligned_alloc
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace myriad
