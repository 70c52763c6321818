#include <flatbuffers/flatbuffers.h>

#include "base/bytes.h"
#include "proto/crc32c.h"
#include "proto/messages.h"
#include "proto/tensor_codec.h"
#include "proto/wire.h"

namespace myriad {
namespace {

constexpr std::uint32_t kFrameMagic = 0x3146594d;  // "MYF1"
constexpr std::size_t kCrcAt = 12;                 // the checksum covers what stands before and behind it

std::size_t padded(std::size_t n) {
  return (n + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

}  // namespace

Result<std::vector<std::byte>> encode_frame(const Envelope& envelope) {
  const auto doing = [&] { return fmt::format("writing a {} frame", message_name(envelope.message)); };
  if (auto checked = check_message(envelope.message, Code::invalid_argument); !checked)
    return std::unexpected(std::move(checked).error().within(doing()));

  std::size_t payload_bytes = 0;
  const std::vector<Activation>* tensors = tensors_of(envelope.message);
  if (tensors != nullptr)
    for (const Activation& t : *tensors) payload_bytes += padded_tensor(tensor_bytes(t.form, t.rows, t.width));
  // Before the schema part is built: it is small, and this is where a frame that is too long comes from.
  if (payload_bytes > kMaxFrameBytes)
    return fail(Code::limit, "{}: {} tensors take {} bytes, a frame holds at most {}; send fewer rows at once", doing(),
                tensors->size(), grouped(payload_bytes), grouped(kMaxFrameBytes));

  flatbuffers::FlatBufferBuilder builder(512);
  write_envelope(builder, envelope);
  // Padded, so that the payload and the next frame start on a 16-byte boundary of the stream.
  const std::size_t message_bytes = padded(builder.GetSize());
  const std::size_t total = kFrameHeaderBytes + message_bytes + payload_bytes;
  if (total > kMaxFrameBytes)
    return fail(Code::limit, "{}: {} bytes of message and {} of tensors, a frame holds at most {}", doing(),
                grouped(message_bytes), grouped(payload_bytes), grouped(kMaxFrameBytes));

  std::vector<std::byte> out(total);
  store_le(out.data(), kFrameMagic);
  store_le(out.data() + 4, static_cast<std::uint32_t>(message_bytes));
  store_le(out.data() + 8, static_cast<std::uint32_t>(payload_bytes));
  std::memcpy(out.data() + kFrameHeaderBytes, builder.GetBufferPointer(), builder.GetSize());
  std::byte* at = out.data() + kFrameHeaderBytes + message_bytes;
  if (tensors != nullptr)
    for (const Activation& t : *tensors) {
      write_tensor(t, at);
      at += padded_tensor(tensor_bytes(t.form, t.rows, t.width));
    }
  const std::span<const std::byte> whole(out);
  store_le(out.data() + kCrcAt, crc32c(crc32c(0, whole.first(kCrcAt)), whole.subspan(kFrameHeaderBytes)));
  return out;
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeaderBytes)
    return fail(Code::corrupt, "reading a frame: a header of {} bytes, expected {}", bytes.size(), kFrameHeaderBytes);
  const auto magic = load_le<std::uint32_t>(bytes.data());
  if (magic != kFrameMagic)
    return fail(Code::corrupt, "reading a frame: it starts with {:08x}, expected {:08x}", magic, kFrameMagic);
  FrameHeader h{load_le<std::uint32_t>(bytes.data() + 4), load_le<std::uint32_t>(bytes.data() + 8),
                load_le<std::uint32_t>(bytes.data() + kCrcAt)};
  // In 64 bits: the sum of two foreign lengths must not wrap.
  const std::uint64_t total = std::uint64_t{kFrameHeaderBytes} + h.message_bytes + h.payload_bytes;
  if (total > kMaxFrameBytes)
    return fail(Code::limit, "reading a frame: it announces {} bytes, expected at most {}", grouped(total),
                grouped(kMaxFrameBytes));
  return h;
}

Result<Envelope> decode_frame(const FrameHeader& header, std::span<const std::byte> header_bytes,
                              std::span<const std::byte> body) {
  if (header_bytes.size() != kFrameHeaderBytes ||
      body.size() != std::uint64_t{header.message_bytes} + header.payload_bytes)
    return fail(Code::corrupt, "reading a frame: {} bytes follow the header, expected {}", body.size(),
                std::uint64_t{header.message_bytes} + header.payload_bytes);
  const std::uint32_t crc = crc32c(crc32c(0, header_bytes.first(kCrcAt)), body);
  if (crc != header.crc)
    return fail(Code::corrupt, "reading a frame: checksum {:08x}, expected {:08x}; the bytes were damaged on their way",
                crc, header.crc);

  auto message = body.first(header.message_bytes);
  std::vector<std::uint64_t> aligned;
  if (reinterpret_cast<std::uintptr_t>(message.data()) % 8 != 0) {
    aligned.resize((message.size() + 7) / 8);
    if (!message.empty()) std::memcpy(aligned.data(), message.data(), message.size());
    message = std::as_bytes(std::span(aligned)).first(message.size());
  }
  std::vector<TensorDescription> descriptions;
  MYRIAD_TRY(Envelope envelope, read_envelope(message, descriptions));

  const auto payload = body.subspan(header.message_bytes);
  std::uint64_t expected = 0;  // at most 4,096 · 2^36
  for (const TensorDescription& d : descriptions) expected += padded_tensor(tensor_bytes(d.form, d.rows, d.width));
  if (expected != payload.size())
    return fail(Code::corrupt, "reading a {} frame: its {} tensors need {} bytes, found {}",
                message_name(envelope.message), descriptions.size(), expected, payload.size());
  if (std::vector<Activation>* tensors = tensors_of(envelope.message); tensors != nullptr) {
    tensors->reserve(descriptions.size());
    const std::byte* at = payload.data();
    for (const TensorDescription& d : descriptions) {
      tensors->push_back(read_tensor(d.form, d.rows, d.width, at));
      at += padded_tensor(tensor_bytes(d.form, d.rows, d.width));
    }
  }
  if (auto checked = check_message(envelope.message, Code::corrupt); !checked)
    return std::unexpected(
        std::move(checked).error().within(fmt::format("reading a {} frame", message_name(envelope.message))));
  return envelope;
}

}  // namespace myriad
