// A file's bytes, alone and with more data behind them than a small input could hold: what is accepted must be
// consistent, every value of it can be asked for as anything, and its metadata survives being written and read again.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "model/gguf_header.h"

namespace {

using namespace myriad;

void require(bool condition) {
  if (!condition) std::abort();
}

// Behind the input come as many zeros as the piece that is read at its end takes.
Result<GgufHeader> parse(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  const GgufReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) -> Status {
    if (offset >= bytes.size() && !out.empty()) return fail(Code::io, "beyond the input");
    const std::size_t n = std::min<std::uint64_t>(out.size(), bytes.size() - offset);
    std::ranges::fill(out, std::byte{0});
    if (n > 0) std::memcpy(out.data(), bytes.data() + offset, n);
    return {};
  };
  return parse_gguf_header(read, file_bytes, "fuzz");
}

template <class T>
void ask(const GgufMetadata& metadata, std::string_view key) {
  if (const auto one = metadata.get<T>(key); one) require(one->has_value());
  if (const auto all = metadata.get_array<T>(key); all) require(all->has_value());
  if (const auto all = metadata.get_per_layer<T>(key, 3); all) require((*all)->size() == 3);
}

void check(const GgufHeader& header, std::uint64_t file_bytes) {
  std::uint64_t sum = 0;
  for (const GgufTensor& t : header.tensors) {
    require(!t.name.empty() && t.elements() > 0);
    require(t.offset >= header.data_begin && t.offset % header.alignment == 0 && t.offset < file_bytes &&
            t.bytes <= file_bytes - t.offset);
    sum += t.bytes;
  }
  require(header.tensors.empty() || sum <= file_bytes - header.data_begin);  // else they would overlap
  // The metadata alone, as another file.
  ByteWriter again;
  again.put_bytes(std::as_bytes(std::span(std::string_view("GGUF"))));
  again.put(std::uint32_t{3});
  again.put(std::uint64_t{0});
  again.put(std::uint64_t{header.metadata.size()});
  for (const GgufKey& key : header.metadata.keys()) {
    ask<bool>(header.metadata, key.name);
    ask<std::uint32_t>(header.metadata, key.name);
    ask<std::int32_t>(header.metadata, key.name);
    ask<std::uint64_t>(header.metadata, key.name);
    ask<std::int64_t>(header.metadata, key.name);
    ask<float>(header.metadata, key.name);
    ask<double>(header.metadata, key.name);
    static_cast<void>(header.metadata.get<std::string_view>(key.name));
    std::size_t characters = 0;
    if (const auto strings = header.metadata.get_strings(key.name); strings)
      for (std::size_t i = 0; i < (*strings)->size(); ++i) characters += (**strings)[i].size();
    require(characters <= file_bytes && !header.metadata.value_text(key.name).empty());
    again.put(std::uint64_t{key.name.size()});
    again.put_bytes(std::as_bytes(std::span(key.name)));
    header.metadata.append_value(key.name, again.bytes());
  }
  const auto second = parse(again.bytes(), again.bytes().size());
  require(second.has_value() && second->metadata.size() == header.metadata.size());
  std::vector<std::byte> a;
  std::vector<std::byte> b;
  for (const GgufKey& key : header.metadata.keys()) {
    header.metadata.append_value(key.name, a);
    second->metadata.append_value(key.name, b);
  }
  require(a == b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const std::uint64_t file_bytes : {std::uint64_t{size}, std::uint64_t{1} << 40}) {
    const auto header = parse(bytes, file_bytes);
    if (header) {
      check(*header, file_bytes);
    } else {
      require(!header.error().message.empty());
    }
  }
  return 0;
}
