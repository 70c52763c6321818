// Whole files, bounded, and written so that they are either there entirely or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/aligned_buffer.h"
#include "base/error.h"

namespace myriad {

// Errors: not_found, io, limit (longer than `limit`).
Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t limit);
// The same into aligned memory;.
Result<AlignedBuffer> read_aligned_file(const std::filesystem::path& path, std::size_t limit);
// To a temporary name in the same directory, then renamed.
Status write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace myriad
