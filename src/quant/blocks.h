// What the bytes of a quantised row mean. The layouts from Q8_0 to IQ4_XS are those of ggml (GGUF files hold them), all
// fields little-endian. `d`, `m` are f16 unless said otherwise; q is a code, fl() one rounding to f32:
//
//   type     values  bytes in order                                            value
//   mxfp4    32      e (E8M0), codes 16: value i in the low nibble of byte i,  E2M1 doubled · 2^(e-128)
//                    value 16+i in the high one
//   q8_0     32      d, int8 q[32]                                             d·q
//   q4_0     32      d, nibbles 16 (as mxfp4)                                  d·(q-8)
//   q4_1     32      d, m, nibbles 16                                          fl(d·q) + m
//   q5_0     32      d, fifth bits u32 (bit i of value i), nibbles 16          d·(q-16)
//   q5_1     32      d, m, fifth bits u32, nibbles 16                          fl(d·q) + m
//   iq4_nl   32      d, nibbles 16                                             d·kIq4Values[q]
//   q2_k     256     scale bytes 16 (low nibble s, high nibble t; one for 16 values), codes 64, d, dmin
//                                                                              fl(d·s·q) - dmin·t
//   q3_k     256     third bits 32, codes 64, scales 12 (16 of 6 bits, less 32), d    d·s·(q-4)
//   q4_k     256     d, dmin, scales and minima 12 (8 of 6 bits each), nibbles 128    fl(d·s·q) - dmin·t
//   q5_k     256     d, dmin, scales and minima 12, fifth bits 32, nibbles 128        fl(d·s·q) - dmin·t
//   q6_k     256     low nibbles 128, upper two bits 64, int8 scales 16, d            fl(d·s)·(q-32)
//   q8_k     256     d (f32), int8 q[256], sums of 16 (int16[16], not needed)         d·q
//   iq4_xs   256     d, upper bits of scales u16, lower nibbles 4, nibbles 128        d·(s-32)·kIq4Values[q]
//   i8_row   a row   d (f32), int8 q[k]                                        d·q
//   i4_zero  32      d, zero point u8, nibbles 16                              d·(q-zero)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "quant/formats.h"

namespace myriad {

// `values` values (whole blocks; of i8_row: the whole row) from their storage to f32; f32, bf16 and f16 too. Each value
// is rounded where the table above says fl() and once at the end; the products of scales are exact.
void dequantize(DType t, const std::byte* blocks, std::size_t values, float* out);

// Values that share a scale in the products: 16 or 32.
constexpr std::size_t scale_group(DType t) {
  return t == DType::q2_k || t == DType::q3_k || t == DType::q6_k ? 16 : 32;
}
// Whether something that does not depend on the code is taken off (q4_1 and q5_1 store its negative, m).
constexpr bool has_minima(DType t) {
  return t == DType::q4_1 || t == DType::q5_1 || t == DType::q2_k || t == DType::q4_k || t == DType::q5_k;
}

// The fields of one block of a quantised type, unpacked but not changed: what the tiles of the kernels are made of.
struct BlockFields {
  std::uint8_t codes[256];       // as the table has q, before offset or codebook; signed types plus 128
  std::uint16_t d = 0, m = 0;    // f16 bits: d and m or dmin; of mxfp4 d is e, of i4_zero m is the zero point
  float wide = 0;                // d of q8_k
  std::int16_t scales[16] = {};  // of the types with groups in a block: s, less 32 where the table says so
  std::uint8_t minima[16] = {};  // their t
};
// t is quantised and not i8_row; `block` has block_bytes(t) bytes.
void read_block(DType t, const std::byte* block, BlockFields& fields);

// What a code stands for: offset taken off or codebook looked up. Of i4_zero the code itself.
int code_value(DType t, std::uint8_t code);

// A quantised row as the integer products see it: value i is scale[i / group]·q[i] - minimum[i / group] before
// rounding, with group = scale_group(t).
struct GroupedRow {
  std::span<std::int16_t> q;  // [k]; i4_zero: q - zero
  std::span<float> scale;     // [ceil(k / group)]
  std::span<float> minimum;   // the same; not written unless has_minima(t)
};
// `row` has row_bytes(t, k) bytes.
void read_grouped_row(DType t, const std::byte* row, std::size_t k, const GroupedRow& out);

// The first of `rows` rows (row_bytes(t, k) apart) with a value that is not finite, or, of a quantised type, a scale or
// minimum that is not or is so large that a value could not be; nothing when all are good.
std::optional<std::size_t> find_not_finite(DType t, std::span<const std::byte> storage, std::size_t rows,
                                           std::size_t k);

}  // namespace myriad
