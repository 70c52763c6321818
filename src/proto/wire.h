// Private to proto/*.cc: between messages and FlatBuffers. Tensors appear here only as descriptions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/messages.h"

namespace flatbuffers {
class FlatBufferBuilder;
}

namespace myriad {

struct TensorDescription {
  Form form = Form::f32;
  std::size_t rows = 0, width = 0;
};

// The tensors that a message carries; nullptr if its kind has none.
const std::vector<Activation>* tensors_of(const Message& message);
std::vector<Activation>* tensors_of(Message& message);

// Builds and finishes `envelope`, which has passed check_message.
void write_envelope(flatbuffers::FlatBufferBuilder& builder, const Envelope& envelope);

// Verifies and reads; the tensors of the result are empty, `tensors` says what they will be. `bytes` is foreign; its
// start is aligned to 8 bytes. Errors: corrupt, limit.
Result<Envelope> read_envelope(std::span<const std::byte> bytes, std::vector<TensorDescription>& tensors);

}  // namespace myriad
