// For tests: random valid messages, and comparison field by field (through the structure itself, so that no field can
// be forgotten).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <tuple>
#include <type_traits>

#include "proto/messages.h"

namespace myriad::test {

struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): only ever named, never called
};

// How many fields an aggregate has.
template <class T, class... A>
constexpr std::size_t field_count() {
  if constexpr (requires { T{A{}..., Anything{}}; }) {
    return field_count<T, A..., Anything>();
  } else {
    return sizeof...(A);
  }
}

template <class T>
auto fields(T& v) {
  constexpr std::size_t n = field_count<std::remove_const_t<T>>();
  static_assert(n <= 13);
  if constexpr (n == 0) {
    return std::tuple<>();
  } else if constexpr (n == 1) {
    auto& [a] = v;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = v;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = v;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = v;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = v;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = v;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = v;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = v;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = v;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
}

template <class T>
struct IsVector : std::false_type {};
template <class T, class Allocator>
struct IsVector<std::vector<T, Allocator>> : std::true_type {};

// Floats by their bits: a NaN is the same as itself.
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string> ||
                       std::is_same_v<T, PartId>) {
    return a == b;
  } else if constexpr (IsVector<T>::value) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same(x, y); });
  } else if constexpr (std::is_same_v<T, Activation>) {
    return a.form == b.form && a.rows == b.rows && a.width == b.width && same(a.values, b.values) && a.q == b.q &&
           same(a.scales, b.scales);
  } else if constexpr (std::is_same_v<T, Message>) {
    return a.index() == b.index() &&
           std::visit([&](const auto& m) { return same(m, std::get<std::decay_t<decltype(m)>>(b)); }, a);
  } else {
    return std::apply(
        [&](const auto&... x) { return std::apply([&](const auto&... y) { return (same(x, y) && ...); }, fields(b)); },
        fields(a));
  }
}

class RandomMessages {
 public:
  explicit RandomMessages(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  Message any() { return of_kind(below(std::variant_size_v<Message>)); }

  Message of_kind(std::size_t index) { return make<0>(index); }

  Activation tensor(std::size_t rows) {
    const auto form = static_cast<Form>(below(3));
    const std::size_t width = below(70);
    Activation t;
    t.form = form;
    t.rows = rows;
    t.width = width;
    if (form == Form::i8) {
      for (std::size_t i = 0; i < rows * width; ++i) t.q.push_back(static_cast<std::int8_t>(random_()));
      for (std::size_t i = 0; i < rows * t.groups(); ++i) t.scales.push_back(number());
    } else {
      for (std::size_t i = 0; i < rows * width; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(number());
        t.values.push_back(std::bit_cast<float>(form == Form::bf16 ? bits & 0xffff0000u : bits));
      }
    }
    return t;
  }

 private:
  // Every value that the wire keeps bit for bit, with the awkward ones often.
  float number() {
    constexpr float awkward[] = {0.0F, -0.0F, 1.0F, INFINITY, -INFINITY, 1e-45F};
    if (below(8) == 0) return awkward[below(std::size(awkward))];
    if (below(16) == 0) return std::bit_cast<float>(0x7fc00000u);
    const auto bits = static_cast<std::uint32_t>(random_());
    return std::isnan(std::bit_cast<float>(bits)) ? 2.5F : std::bit_cast<float>(bits);
  }

  template <std::size_t I>
  Message make(std::size_t index) {
    if constexpr (I < std::variant_size_v<Message>) {
      if (index != I) return make<I + 1>(index);
      std::variant_alternative_t<I, Message> m;
      fill(m);
      return m;
    } else {
      return Done{};
    }
  }

  void fill(std::string& s) {
    s.clear();
    for (std::size_t n = below(20); n > 0; --n) s += static_cast<char>(random_());
  }
  void fill(NodeId& id) {
    id.value.clear();
    constexpr std::string_view letters = "abcXYZ019._-";
    for (std::size_t n = below(kMaxNodeIdBytes + 1); n > 0; --n) id.value += letters[below(letters.size())];
  }
  void fill(PartId& id) {
    for (std::byte& b : id.digest) b = static_cast<std::byte>(random_());
  }
  void fill(Role& v) { v = static_cast<Role>(below(4)); }
  void fill(NodeState& v) { v = static_cast<NodeState>(below(6)); }
  void fill(FleetState& v) { v = static_cast<FleetState>(below(4)); }
  void fill(Profile& v) { v = static_cast<Profile>(below(2)); }
  void fill(KvCache& v) { v = static_cast<KvCache>(below(5)); }
  void fill(OpRole& v) { v = static_cast<OpRole>(below(17)); }
  void fill(HeadWant& v) { v = static_cast<HeadWant>(below(3)); }
  void fill(Code& v) { v = static_cast<Code>(below(15)); }
  void fill(float& v) { v = number(); }
  template <class T>
  requires std::is_integral_v<T>
  void fill(T& v) { v = static_cast<T>(below(4) == 0 ? 0 : random_()); }
  void fill(Activation& t) { t = tensor(below(5)); }
  template <class T>
  void fill(std::vector<T>& v) {
    v.resize(below(6));
    for (T& x : v) fill(x);
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void fill(T& v) {
    std::apply([&](auto&... x) { (fill(x), ...); }, fields(v));
    repair(v);
  }

  // What fields must be to agree with each other.
  template <class T>
  void repair(T&) {}
  void repair(SampleSpec& s) {
    s.temperature = static_cast<float>(below(20)) / 10;
    s.top_p = static_cast<float>(1 + below(10)) / 10;
    s.top_logprobs = static_cast<std::uint8_t>(below(kMaxTopLogprobs + 1));
  }
  void repair(SequenceRows& s) {
    s.rows = static_cast<std::uint32_t>(1 + below(3));
    s.first_position /= 2;
  }
  void repair(PartSpec& s) {
    s.begin /= 2;
    s.end = s.begin + 1 + static_cast<std::uint32_t>(below(100));
  }
  void repair(std::vector<StageAssignment>& stages, std::size_t nodes) {
    for (StageAssignment& s : stages) {
      s.lead = static_cast<std::uint32_t>(below(nodes));
      s.first /= 2;
      s.last = s.first + static_cast<Half>(below(100));
    }
  }
  void repair(Assign& a) {
    a.nodes.resize(1 + below(5));
    a.self = static_cast<std::uint32_t>(below(a.nodes.size()));
    for (PartAssignment& p : a.parts) p.owner = static_cast<std::uint32_t>(below(a.nodes.size()));
    repair(a.stages, a.nodes.size());
  }
  void repair(PlanUpdate& p) {
    p.nodes.resize(1 + below(5));
    repair(p.stages, p.nodes.size());
  }
  void repair(Call& c) {
    for (CallItem& i : c.items) {
      std::size_t rows = c.tensors.empty() ? c.tokens.size() : 1000;
      if (c.tensors.empty()) i.inputs.clear();
      for (std::uint16_t& input : i.inputs) {
        input = static_cast<std::uint16_t>(below(c.tensors.size()));
        rows = std::min(rows, c.tensors[input].rows);
      }
      if (i.inputs.empty()) rows = c.tokens.size();
      if (rows == 0) i.rows.clear();
      for (std::uint16_t& row : i.rows) row = static_cast<std::uint16_t>(below(rows));
    }
  }
  void repair(Step& s) {
    std::size_t rows = 0;
    for (const SequenceRows& r : s.sequences) rows += r.rows;
    s.tokens.resize(below(2) == 0 ? 0 : rows);
    if (rows == 0) s.wanted.clear();
    for (SampledRow& w : s.wanted) w.row = static_cast<std::uint16_t>(below(rows));
    for (Activation& t : s.tensors) t = tensor(rows);
    s.next_stage = static_cast<std::uint32_t>(below(kMaxStages));
  }

  std::mt19937_64 random_;
};

}  // namespace myriad::test
