// Cuts a model into parts: which pieces there are (pure), and the bytes of one piece (reads the model's files in
// bounded pieces).
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "model/weights.h"
#include "part/manifest.h"
#include "part/part_file.h"

namespace myriad {

struct CutOptions {
  std::uint64_t target_bytes = std::uint64_t{16} << 20;  // no part is larger unless one granule is
  std::uint64_t random_seed = 0;                         // not 0: cuts at random granules instead (for property tests)
};

// The parts of a model in execution order: every operator once, without gaps.
std::vector<PartSpec> cut(const Graph& graph, const CutOptions& options);

// What a cut for `nodes` nodes of `node_memory` bytes (0: unknown) should aim for: small enough that every node can get
// its share.
std::uint64_t target_part_bytes(const Graph& graph, std::size_t nodes, Bytes node_memory);

// The canonical bytes of one part (little-endian), with its canary; without it only for use in this process, where
// nobody will ask for it. Peak memory: the part, and a bounded read buffer.
Result<AlignedBuffer> build_part(const ModelWeights& weights, const PartSpec& spec, bool with_canary = true);

struct CutProgress {
  std::size_t parts_done = 0, parts = 0;
  std::uint64_t bytes_done = 0, bytes = 0;
};
// Writes a cut directory (manifest last, so that a directory with a manifest is complete). Parts that are there already
// with the right hash are kept, so an interrupted cut resumes. The parts' names in the error if one fails.
Result<Manifest> cut_model(const ModelWeights& weights, const CutOptions& options, const std::filesystem::path& out,
                           std::string model_name, const std::function<void(const CutProgress&)>& progress);

// A model's name for the API: the name of its directory.
std::string model_name_of(const std::filesystem::path& directory);

}  // namespace myriad
