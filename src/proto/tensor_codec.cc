#include "proto/tensor_codec.h"

#include <cstring>

#include "base/bytes.h"
#include "quant/formats.h"

namespace myriad {
namespace {

std::size_t padded_q(std::size_t rows, std::size_t width) {
  return (rows * width + 3) / 4 * 4;
}

void write_floats(std::span<const float> values, std::byte* out) {
  if constexpr (std::endian::native == std::endian::little) {
    if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) store_le(out + 4 * i, values[i]);
  }
}

// Integers, not floats, are moved until the bytes are in place: a signalling NaN must not pass through a register that
// quiets it.
void read_floats(const std::byte* in, std::span<float> values) {
  if (!values.empty()) std::memcpy(values.data(), in, 4 * values.size());
  if constexpr (std::endian::native != std::endian::little) {
    for (float& v : values) {
      std::uint32_t u;
      std::memcpy(&u, &v, sizeof u);
      u = little(u);
      std::memcpy(&v, &u, sizeof u);
    }
  }
}

// Values of a bf16 row are rounded already: their lower halves are zero, but for a NaN's, which stays one.
void write_upper_halves(const float* __restrict values, std::size_t n, std::byte* __restrict out) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits |= (bits & 0x7fffffffU) > 0x7f800000U ? 0x00400000U : 0U;
    const std::uint16_t half = little(static_cast<std::uint16_t>(bits >> 16));
    std::memcpy(out + 2 * i, &half, sizeof half);
  }
}
void read_upper_halves(const std::byte* __restrict in, std::size_t n, float* __restrict values) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof half);
    const std::uint32_t bits = std::uint32_t{little(half)} << 16;
    std::memcpy(values + i, &bits, sizeof bits);
  }
}

}  // namespace

std::size_t tensor_bytes(Form form, std::size_t rows, std::size_t width) {
  switch (form) {
    case Form::f32:
      return rows * width * 4;
    case Form::bf16:
      return rows * width * 2;
    case Form::i8:
      return padded_q(rows, width) + rows * ((width + 31) / 32) * 4;
  }
  return 0;
}

void write_tensor(const Activation& tensor, std::byte* out) {
  switch (tensor.form) {
    case Form::f32:
      write_floats(tensor.values, out);
      break;
    case Form::bf16: {
      write_upper_halves(tensor.values.data(), tensor.values.size(), out);
      break;
    }
    case Form::i8:
      if (!tensor.q.empty()) std::memcpy(out, tensor.q.data(), tensor.q.size());
      write_floats(tensor.scales, out + padded_q(tensor.rows, tensor.width));
      break;
  }
}

Activation read_tensor(Form form, std::size_t rows, std::size_t width, const std::byte* in) {
  Activation t;
  t.form = form;
  t.rows = rows;
  t.width = width;
  switch (form) {
    case Form::f32:
      t.values.resize(rows * width);
      read_floats(in, t.values);
      break;
    case Form::bf16: {
      t.values.resize(rows * width);
      read_upper_halves(in, rows * width, t.values.data());
      break;
    }
    case Form::i8:
      t.q.resize(rows * width);
      if (!t.q.empty()) std::memcpy(t.q.data(), in, t.q.size());
      t.scales.resize(rows * t.groups());
      read_floats(in + padded_q(rows, width), t.scales);
      break;
  }
  return t;
}

}  // namespace myriad
