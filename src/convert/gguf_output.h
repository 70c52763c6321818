// A quantised model as a GGUF file (internal to `convert`).
#pragma once

#include "convert/output.h"

namespace myriad {

// `files` were opened for this kind, and every type of the plan is one of GGUF's.
Result<std::unique_ptr<QuantizedOutput>> create_gguf_output(const ModelFiles& files,
                                                            const std::vector<TensorPlan>& plan,
                                                            const std::filesystem::path& path);

}  // namespace myriad
