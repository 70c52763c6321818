// The tokenizer and chat template in a GGUF file.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

namespace myriad {

// The name under which a cut directory carries them: a GGUF file without tensors.
inline constexpr const char* kGgufTokenizerName = "tokenizer.gguf";

// Errors: not_found (the file has no vocabulary), corrupt, unsupported, with file and key.
Result<Tokenizer> gguf_tokenizer(const GgufFile& file);
// tokenizer.chat_template; nothing if the file has none.
Result<std::optional<std::string>> gguf_chat_template(const GgufFile& file);

}  // namespace myriad
