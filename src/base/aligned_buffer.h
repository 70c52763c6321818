// Memory for weights and state: 64-byte aligned, zeroed, accounted by its exact size.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"

namespace myriad {

class AlignedBuffer {
 public:
  // From this size on a buffer is pages of its own from the system, and gives them back the moment it goes: from the
  // heap, weights that come and go between small blocks leave gaps that nothing fills, up to a third of a small node.
  static constexpr std::size_t kOwnPages = std::size_t{64} << 10;

  AlignedBuffer() = default;
  // Errors: does_not_fit, when the system refuses; `what` says what it was for.
  static Result<AlignedBuffer> allocate(std::size_t bytes, std::string_view what);

  [[nodiscard]] std::byte* data() { return data_.get(); }
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_ == nullptr ? 0 : data_.get_deleter().bytes; }
  [[nodiscard]] std::span<std::byte> bytes() { return {data(), size()}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data(), size()}; }

 private:
  struct Free {
    Free() : bytes(0) {}  // no default initialiser: unique_ptr looks at this before the class is complete
    explicit Free(std::size_t n) : bytes(n) {}
    std::size_t bytes;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace myriad
