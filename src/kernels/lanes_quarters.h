// Sixteen f32 lanes as four registers of four, for instruction sets without wider ones. Included by lanes_neon.h and
// lanes_altivec.h, which have before it the operations on four lanes:
//   F4, I4 (four f32, as many bits), load4, same4 (all lanes alike), fma4, fnma4 (−(a·b) + c), mul4, div4, to_float4,
//   greater4, equal4, below4 (unsigned integers), select4, max4, left4, right4, float4 and bits4 (each the bits of the
//   other), zip_low (a0 b0 a1 b1), zip_high (a2 b2 a3 b3)
// and +, -, &, |, ^, ~ on them.
#pragma once

namespace myriad {
namespace {

struct F {
  F4 a, b, c, d;
};
struct I {
  I4 a, b, c, d;
};
using Mask = I;  // all bits of a lane, or none

MYRIAD_LANES Mask first(std::size_t n) {
  const I4 count = same4(static_cast<std::uint32_t>(n));
  return {below4(I4{0, 1, 2, 3}, count), below4(I4{4, 5, 6, 7}, count), below4(I4{8, 9, 10, 11}, count),
          below4(I4{12, 13, 14, 15}, count)};
}

MYRIAD_LANES I set1_bits(std::uint32_t v) {
  const I4 x = same4(v);
  return {x, x, x, x};
}

MYRIAD_LANES F fma(F x, F y, F z) {
  return {fma4(x.a, y.a, z.a), fma4(x.b, y.b, z.b), fma4(x.c, y.c, z.c), fma4(x.d, y.d, z.d)};
}
MYRIAD_LANES F fnma(F x, F y, F z) {
  return {fnma4(x.a, y.a, z.a), fnma4(x.b, y.b, z.b), fnma4(x.c, y.c, z.c), fnma4(x.d, y.d, z.d)};
}
MYRIAD_LANES F add(F x, F y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}
MYRIAD_LANES F sub(F x, F y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d};
}
MYRIAD_LANES F mul(F x, F y) {
  return {mul4(x.a, y.a), mul4(x.b, y.b), mul4(x.c, y.c), mul4(x.d, y.d)};
}
MYRIAD_LANES F div(F x, F y) {
  return {div4(x.a, y.a), div4(x.b, y.b), div4(x.c, y.c), div4(x.d, y.d)};
}

MYRIAD_LANES I bits(F v) {
  return {bits4(v.a), bits4(v.b), bits4(v.c), bits4(v.d)};
}
MYRIAD_LANES F from_bits(I v) {
  return {float4(v.a), float4(v.b), float4(v.c), float4(v.d)};
}
MYRIAD_LANES I bit_and(I x, I y) {
  return {x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d};
}
MYRIAD_LANES I bit_or(I x, I y) {
  return {x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d};
}
MYRIAD_LANES I bit_xor(I x, I y) {
  return {x.a ^ y.a, x.b ^ y.b, x.c ^ y.c, x.d ^ y.d};
}
MYRIAD_LANES I add_bits(I x, I y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}
MYRIAD_LANES I max_bits(I x, I y) {
  return {max4(x.a, y.a), max4(x.b, y.b), max4(x.c, y.c), max4(x.d, y.d)};
}
template <int n>
MYRIAD_LANES I left(I v) {
  return {left4<n>(v.a), left4<n>(v.b), left4<n>(v.c), left4<n>(v.d)};
}
template <int n>
MYRIAD_LANES I right(I v) {
  return {right4<n>(v.a), right4<n>(v.b), right4<n>(v.c), right4<n>(v.d)};
}
// a | (b & mask)
MYRIAD_LANES I merge(I x, I y, I mask) {
  return bit_or(x, bit_and(y, mask));
}

MYRIAD_LANES F to_float(I v) {
  return {to_float4(v.a), to_float4(v.b), to_float4(v.c), to_float4(v.d)};
}

MYRIAD_LANES Mask greater(F x, F y) {
  return {greater4(x.a, y.a), greater4(x.b, y.b), greater4(x.c, y.c), greater4(x.d, y.d)};
}
MYRIAD_LANES Mask less(F x, F y) {
  return greater(y, x);
}
MYRIAD_LANES Mask not_a_number(F v) {
  return {~equal4(v.a, v.a), ~equal4(v.b, v.b), ~equal4(v.c, v.c), ~equal4(v.d, v.d)};
}
MYRIAD_LANES F select(Mask m, F yes, F no) {
  return {select4(m.a, yes.a, no.a), select4(m.b, yes.b, no.b), select4(m.c, yes.c, no.c), select4(m.d, yes.d, no.d)};
}

// Rows become columns.
MYRIAD_LANES void transpose_four(F4& r0, F4& r1, F4& r2, F4& r3) {
  const F4 even_low = zip_low(r0, r2), even_high = zip_high(r0, r2);
  const F4 odd_low = zip_low(r1, r3), odd_high = zip_high(r1, r3);
  r0 = zip_low(even_low, odd_low);
  r1 = zip_high(even_low, odd_low);
  r2 = zip_low(even_high, odd_high);
  r3 = zip_high(even_high, odd_high);
}

MYRIAD_LANES void transpose(F (&v)[16]) {
  F4 q[4][16];  // [columns 4i …][row], each four rows a 4x4 transposition
  for (int r = 0; r < 16; ++r) {
    q[0][r] = v[r].a;
    q[1][r] = v[r].b;
    q[2][r] = v[r].c;
    q[3][r] = v[r].d;
  }
  for (int i = 0; i < 4; ++i)
    for (int r = 0; r < 16; r += 4) transpose_four(q[i][r], q[i][r + 1], q[i][r + 2], q[i][r + 3]);
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < 4; ++c) v[4 * i + c] = {q[i][c], q[i][4 + c], q[i][8 + c], q[i][12 + c]};
}

// p[4·lane + j] for j < 4: 16 channels of 4 taps.
MYRIAD_LANES void load_by_four(const float* p, F (&out)[4]) {
  F v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = {load4(p + 16 * i), load4(p + 16 * i + 4), load4(p + 16 * i + 8), load4(p + 16 * i + 12)};
    transpose_four(v[i].a, v[i].b, v[i].c, v[i].d);
  }
  out[0] = {v[0].a, v[1].a, v[2].a, v[3].a};
  out[1] = {v[0].b, v[1].b, v[2].b, v[3].b};
  out[2] = {v[0].c, v[1].c, v[2].c, v[3].c};
  out[3] = {v[0].d, v[1].d, v[2].d, v[3].d};
}

// The fixed tree over 16 stripes down to its last four.
MYRIAD_LANES F4 tree_of_four(F v) {
  return (v.a + v.c) + (v.b + v.d);
}
// Four trees at once: those of v[0] … v[3].
MYRIAD_LANES F4 four_trees(const F (&v)[4]) {
  F4 s0 = tree_of_four(v[0]), s1 = tree_of_four(v[1]), s2 = tree_of_four(v[2]), s3 = tree_of_four(v[3]);
  transpose_four(s0, s1, s2, s3);
  return (s0 + s2) + (s1 + s3);
}

}  // namespace
}  // namespace myriad
