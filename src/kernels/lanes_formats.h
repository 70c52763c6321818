// The quantised weight types over sixteen lanes: how the codes of a group of 32 columns and its scales are read from a
// tile (kernels/tile_format.h). Part of kernels_lanes.h.
//
// A type says
//   kType, kHalves (scales for 32 columns), kExtra (what there is besides scales), Dot (how its codes are multiplied)
//   Decoder   holds what decoding needs in registers; codes(planes, quad) gives four columns of sixteen rows, as bytes
//             that are Dot's offset too large
//   scales()  the scale of each half, and its minimum or zero point, in f32
#pragma once

#include "kernels/lanes_math.h"
#include "kernels/tile_format.h"

namespace myriad {
namespace {

// What stands beside the scales, and what the activations of a group bring along for it:
enum class Extra {
  offset,   // nothing; the integer that takes the offset of the codes off again
  minimum,  // a minimum; fl(as·Σq)
  zero,     // a zero point; Σq
};

// Where the parts of one group are.
struct Group {
  const unsigned char* codes;
  const unsigned char* scales;
  const unsigned char* block;  // scales of the whole record
};

// ---- planes

MYRIAD_LANES I nibbles(const unsigned char* plane, int quad) {
  const I both = load_bits(plane + 64 * (quad / 2));
  return bit_and(quad % 2 == 0 ? both : right_halves(both, 4), set1_bytes(15));
}

// `field` bits wide fields at bits field·i of each byte, field i moved to bit `to`; what else is there stays, for
// merge().
MYRIAD_LANES I move_field(I bytes, int field, int i, int to) {
  const int by = to - field * i;
  return by == 0 ? bytes : by > 0 ? left_halves(bytes, by) : right_halves(bytes, -by);
}

MYRIAD_LANES I pairs_at(const unsigned char* plane, int quad, int to) {
  return move_field(load_bits(plane + 64 * (quad / 4)), 2, quad % 4, to);
}

MYRIAD_LANES I bits_at(const unsigned char* plane, int quad, int to) {
  return move_field(load_bits(plane), 1, quad, to);
}

// ---- scales

MYRIAD_LANES F number(const unsigned char* p) {
  return to_float(load_bytes(p));
}

// ---- codes

struct PlainNibbles {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const { return nibbles(planes, quad); }
};

// kE2M1Doubled + 12
constexpr std::uint8_t kE2M1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
// kIq4Values + 127
constexpr std::uint8_t kIq4Codes[16] = {0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};

template <const std::uint8_t (&kCodes)[16]>
struct CodeBook {
  Table book = table(kCodes);
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const { return look_up(book, nibbles(planes, quad)); }
};

struct FiveBits {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const {
    return merge(nibbles(planes, quad), bits_at(planes + 256, quad, 4), set1_bytes(16));
  }
};

struct SixBits {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const {
    return merge(nibbles(planes, quad), pairs_at(planes + 256, quad, 4), set1_bytes(48));
  }
};

struct ThreeBits {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const {
    return merge(bit_and(pairs_at(planes, quad, 0), set1_bytes(3)), bits_at(planes + 128, quad, 2), set1_bytes(4));
  }
};

struct TwoBits {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const {
    return bit_and(pairs_at(planes, quad, 0), set1_bytes(3));
  }
};

struct WholeBytes {
  MYRIAD_LANES I codes(const unsigned char* planes, int quad) const { return load_bits(planes + 64 * quad); }
};

// ---- types

template <DType kT, int kHalvesOf, Extra kExtraOf, class DecoderOf, int kMax, int kOffset>
struct TypeBase {
  static constexpr DType kType = kT;
  static constexpr int kHalves = kHalvesOf;
  static constexpr Extra kExtra = kExtraOf;
  using Decoder = DecoderOf;
  using Dot = myriad::Dot<kMax, kOffset>;
  static constexpr int kCodeOffset = kOffset;
};

struct Mxfp4 : TypeBase<DType::mxfp4, 1, Extra::offset, CodeBook<kE2M1Codes>, 24, 12> {
  // 2^(e-128), halved because the codes are doubled; e = 0 is a subnormal
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&)[1]) {
    scale[0] = mul(from_bits(max_bits(left<23>(load_bytes(g.scales)), set1_bits(0x00400000u))), set1(0.5f));
  }
};

template <DType kT, class DecoderOf, int kMax, int kOffset>
struct HalfScaled : TypeBase<kT, 1, Extra::offset, DecoderOf, kMax, kOffset> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&)[1]) { scale[0] = load_f16(g.scales); }
};
using Q4_0 = HalfScaled<DType::q4_0, PlainNibbles, 15, 8>;
using Iq4Nl = HalfScaled<DType::iq4_nl, CodeBook<kIq4Codes>, 240, 127>;
using Q5_0 = HalfScaled<DType::q5_0, FiveBits, 31, 16>;
using Q8_0 = HalfScaled<DType::q8_0, WholeBytes, 255, 128>;

template <DType kT, class DecoderOf, int kMax>
struct HalfScaledAbove : TypeBase<kT, 1, Extra::minimum, DecoderOf, kMax, 0> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&minimum)[1]) {
    scale[0] = load_f16(g.scales);
    minimum[0] = negative(load_f16(g.scales + 32));
  }
};
using Q4_1 = HalfScaledAbove<DType::q4_1, PlainNibbles, 15>;
using Q5_1 = HalfScaledAbove<DType::q5_1, FiveBits, 31>;

struct I4Zero : TypeBase<DType::i4_zero, 1, Extra::zero, PlainNibbles, 15, 0> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&zero_point)[1]) {
    scale[0] = load_f16(g.scales);
    zero_point[0] = number(g.scales + 32);
  }
};

struct Q2K : TypeBase<DType::q2_k, 2, Extra::minimum, TwoBits, 3, 0> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[2], F (&minimum)[2]) {
    const F d = load_f16(g.block), least = load_f16(g.block + 32);
    for (int h = 0; h < 2; ++h) {
      const I both = load_bytes(g.scales + 16 * h);
      scale[h] = mul(d, to_float(bit_and(both, set1_bits(15))));
      minimum[h] = mul(least, to_float(right<4>(both)));
    }
  }
};

template <DType kT, class DecoderOf, int kMax, int kOffset>
struct Sixteens : TypeBase<kT, 2, Extra::offset, DecoderOf, kMax, kOffset> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[2], F (&)[2]) {
    const F d = load_f16(g.block);
    for (int h = 0; h < 2; ++h) scale[h] = mul(d, load_i8(g.scales + 16 * h));
  }
};
using Q3K = Sixteens<DType::q3_k, ThreeBits, 7, 4>;
using Q6K = Sixteens<DType::q6_k, SixBits, 63, 32>;

template <DType kT, class DecoderOf, int kMax>
struct ScaledAbove : TypeBase<kT, 1, Extra::minimum, DecoderOf, kMax, 0> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&minimum)[1]) {
    scale[0] = mul(load_f16(g.block), number(g.scales));
    minimum[0] = mul(load_f16(g.block + 32), number(g.scales + 16));
  }
};
using Q4K = ScaledAbove<DType::q4_k, PlainNibbles, 15>;
using Q5K = ScaledAbove<DType::q5_k, FiveBits, 31>;

struct Iq4Xs : TypeBase<DType::iq4_xs, 1, Extra::offset, CodeBook<kIq4Codes>, 240, 127> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&)[1]) {
    scale[0] = mul(load_f16(g.block), load_i8(g.scales));
  }
};

template <DType kT>
struct WideScaled : TypeBase<kT, 1, Extra::offset, WholeBytes, 255, 128> {
  MYRIAD_LANES static void scales(const Group& g, F (&scale)[1], F (&)[1]) { scale[0] = from_bits(load_bits(g.block)); }
};
using Q8K = WideScaled<DType::q8_k>;
using I8Row = WideScaled<DType::i8_row>;

// Calls f with the type that `t` names; nothing for types that are not quantised.
template <class Body>
MYRIAD_LANES void with_type(DType t, Body f) {
  switch (t) {
    case DType::mxfp4:
      return f(Mxfp4());
    case DType::q8_0:
      return f(Q8_0());
    case DType::q4_0:
      return f(Q4_0());
    case DType::q4_1:
      return f(Q4_1());
    case DType::q5_0:
      return f(Q5_0());
    case DType::q5_1:
      return f(Q5_1());
    case DType::q2_k:
      return f(Q2K());
    case DType::q3_k:
      return f(Q3K());
    case DType::q4_k:
      return f(Q4K());
    case DType::q5_k:
      return f(Q5K());
    case DType::q6_k:
      return f(Q6K());
    case DType::q8_k:
      return f(Q8K());
    case DType::iq4_nl:
      return f(Iq4Nl());
    case DType::iq4_xs:
      return f(Iq4Xs());
    case DType::i8_row:
      return f(I8Row());
    case DType::i4_zero:
      return f(I4Zero());
    case DType::f32:
    case DType::bf16:
    case DType::f16:
      break;
  }
}

// ---- the groups of a tile, one after the other

template <class Type>
struct Groups {
  static constexpr TileFormat kFormat = tile_format(Type::kType);
  static constexpr std::size_t kRecord = kFormat.record_groups, kCodes = kFormat.code_bytes(),
                               kScales = kFormat.scale_bytes, kBlock = kFormat.block_bytes, kTile = kFormat.tile_bytes;
  // Bytes of memory a group takes, on average and rounded up: how far to prefetch for each.
  static constexpr std::size_t kStep = kCodes + kScales + (kBlock + kRecord - 1) / kRecord;

  static std::size_t tile_size(std::size_t groups) {
    return (groups * (kCodes + kScales) + (groups + kRecord - 1) / kRecord * kBlock + kTile + 63) / 64 * 64;
  }

  // Calls body(group, number) for groups [begin, end); begin is a multiple of kRecord.
  template <class Body>
  MYRIAD_LANES static void each(const unsigned char* tile, std::size_t groups, std::size_t begin, std::size_t end,
                                Body body) {
    const unsigned char* record = tile + begin / kRecord * (kRecord * (kCodes + kScales) + kBlock);
    for (std::size_t a = begin; a < end;) {
      const std::size_t in_record = groups - a < kRecord ? groups - a : kRecord;
      const std::size_t now = end - a < in_record ? end - a : in_record;
      const unsigned char* block = kTile > 0 ? tile + groups * kCodes : record + in_record * (kCodes + kScales);
      Group group{record, record + in_record * kCodes, block};
      for (std::size_t i = 0; i < now; ++i, ++a) {
        body(group, a);
        group.codes += kCodes;
        group.scales += kScales;
      }
      record += in_record * (kCodes + kScales) + kBlock;
    }
  }
};

}  // namespace
}  // namespace myriad
