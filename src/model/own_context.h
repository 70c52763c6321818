// Positions behind those that a model was made for. That is a limit of sense, not of the program, which computes them
// all the same; so whoever asks for them is told, everywhere in these words.
#pragma once

#include <cstdint>
#include <string>

namespace myriad {

// A sentence, if `positions` of one sequence are more than `own`, the model's own context (ModelConfig::max_positions;
// 0: unknown); else empty.
std::string beyond_own_context(std::uint64_t positions, std::uint64_t own);

}  // namespace myriad
