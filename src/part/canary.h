// A part's canary: the digest of its outputs for inputs drawn from a seed, in the `exact` profile, written when the
// part is cut and checked when a node has loaded it: weights, kernels and byte order are right together, or the part is
// not used.
#pragma once

#include "base/sha256.h"
#include "part/part_file.h"

namespace myriad {

std::uint64_t canary_seed(const PartSpec& spec);
// Errors: internal, if the part cannot be run at all.
Result<Sha256Digest> canary(const Graph& graph, const Part& part, const Kernels& kernels);
// Errors: corrupt, naming the part.
Status check_canary(const Graph& graph, const Part& part, const Kernels& kernels);

}  // namespace myriad
