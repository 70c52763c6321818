#include <flatbuffers/flatbuffers.h>

#include "proto/wire.h"
#include "wire_generated.h"

namespace myriad {
namespace {

// The deepest message is Envelope > Assign > NodeAddress; tables are at least one per node or item.
constexpr flatbuffers::uoffset_t kMaxDepth = 8;
constexpr flatbuffers::uoffset_t kMaxTables = kMaxNodesPerMessage + 8;

// Copies out of a verified buffer. FlatBuffers lets many fields share the same bytes, by which a small message could
// ask for a large copy; our writer never shares, so each byte of the message pays for one byte of the copy and no more.
class Reader {
 public:
  Reader(std::size_t budget, std::vector<TensorDescription>& tensors) : budget_(budget), tensors_(tensors) {}

  [[nodiscard]] const Status& status() const { return status_; }

  std::string text(const flatbuffers::String* s, std::size_t maximum, const char* what) {
    if (s == nullptr || !may_take(s->size(), 1, maximum, what)) return {};
    return s->str();
  }

  template <class T, class W, class F>
  std::vector<T> list(const flatbuffers::Vector<W>* v, std::size_t maximum, const char* what, F convert) {
    std::vector<T> out;
    if (v == nullptr || !may_take(v->size(), element_bytes<W>(), maximum, what)) return out;
    // The verifier of 2.0.8 looks at the alignment of a vector's length only.
    if (v->size() > 0 && reinterpret_cast<std::uintptr_t>(v->Data()) % element_alignment<W>() != 0) {
      refuse(Code::corrupt, "{} lie at an odd address", what);
      return out;
    }
    out.reserve(v->size());
    for (flatbuffers::uoffset_t i = 0; i < v->size() && status_; ++i) out.push_back(convert(v->Get(i)));
    return out;
  }

  template <class T>
  std::vector<T> numbers(const flatbuffers::Vector<T>* v, std::size_t maximum, const char* what) {
    return list<T>(v, maximum, what, [](T x) { return x; });
  }

  template <class E>
  E enumerator(std::uint8_t value, E last, const char* what) {
    if (value > static_cast<std::uint8_t>(last)) {
      refuse(Code::corrupt, "{} has the number {}, expected at most {}", what, value, static_cast<unsigned>(last));
      return E{};
    }
    return static_cast<E>(value);
  }

  Budget budget(const wire::Budget* b) {
    if (b == nullptr) {
      refuse(Code::corrupt, "the budget is missing");
      return {};
    }
    return {b->sequences(), b->context(),  b->step_rows(),
            b->positions(), b->prefixes(), enumerator(b->cache(), KvCache::i8, "type of cache"),
            b->drafts()};
  }

  std::vector<NodeAddress> addresses(const flatbuffers::Vector<flatbuffers::Offset<wire::NodeAddress>>* v) {
    return list<NodeAddress>(v, kMaxNodesPerMessage, "nodes", [&](const wire::NodeAddress* n) {
      return NodeAddress{node(n->node()), text(n->host(), kMaxHostBytes, "host"), n->port()};
    });
  }

  NodeId node(const flatbuffers::String* s) { return {text(s, kMaxNodeIdBytes, "node")}; }

  std::vector<StageAssignment> stages(const flatbuffers::Vector<const wire::StageAssignment*>* v) {
    return list<StageAssignment>(v, kMaxStages, "stages", [](const wire::StageAssignment* s) {
      return StageAssignment{s->lead(), s->first(), s->last()};
    });
  }

  std::vector<SequenceRows> sequences(const flatbuffers::Vector<const wire::SequenceRows*>* v) {
    return list<SequenceRows>(v, kMaxRowsPerStep, "sequences", [](const wire::SequenceRows* s) {
      return SequenceRows{{s->sequence()}, s->first_position(), s->rows(), {s->from()}, {s->keep()}};
    });
  }

  void tensors(const flatbuffers::Vector<const wire::Tensor*>* v) {
    tensors_ = list<TensorDescription>(v, kMaxTensorsPerFrame, "tensors", [&](const wire::Tensor* t) {
      const Form form = enumerator(t->form(), Form::i8, "a tensor's form");
      if (t->rows() > kMaxRowsPerStep || t->width() > kMaxTensorWidth)
        refuse(Code::limit, "a tensor of {} rows of {} values, expected at most {} rows of {}", t->rows(), t->width(),
               kMaxRowsPerStep, kMaxTensorWidth);
      return TensorDescription{form, t->rows(), t->width()};
    });
  }

  PartId part_id(const wire::Digest& d) {
    PartId id;
    for (std::uint32_t i = 0; i < id.digest.size(); ++i) id.digest[i] = std::byte{d.bytes()->Get(i)};
    return id;
  }

  PartSpec spec(const wire::PartSpec& s) {
    return {{s.layer(), enumerator(s.role(), OpRole::head, "a part's role"), s.index()}, s.begin(), s.end()};
  }

  Hello read(const wire::Hello& m) {
    return {enumerator(m.role(), Role::tool, "role"), node(m.node()), m.incarnation()};
  }
  Register read(const wire::Register& m) {
    return {node(m.node()),
            m.incarnation(),
            m.memory_bytes(),
            m.process_bytes(),
            m.cores(),
            m.speed(),
            text(m.isa(), kMaxNameBytes, "isa"),
            text(m.host(), kMaxHostBytes, "host"),
            m.port(),
            list<PartId>(m.held(), kMaxHeldParts, "held parts", [&](const wire::Digest* d) { return part_id(*d); })};
  }
  Registered read(const wire::Registered& m) {
    return {m.heartbeat_ms(), m.lease_ms(), m.http_port(), text(m.fetch_ticket(), kMaxNameBytes, "ticket")};
  }
  Heartbeat read(const wire::Heartbeat& m) {
    return {node(m.node()),  m.incarnation(), {m.epoch()},     enumerator(m.state(), NodeState::lost, "node state"),
            m.memory_used(), m.calls(),       m.parts_loaded()};
  }
  HeartbeatReply read(const wire::HeartbeatReply& m) { return {{m.epoch()}}; }
  Assign read(const wire::Assign& m) {
    return {{m.epoch()},
            text(m.config_json(), kMaxWireConfigBytes, "config"),
            enumerator(m.profile(), Profile::fast, "profile"),
            budget(m.budget()),
            addresses(m.nodes()),
            m.self(),
            list<PartAssignment>(
                m.parts(), kMaxPartsPerAssign, "parts",
                [&](const wire::PartAssignment* p) {
                  return PartAssignment{p->index(), spec(p->spec()), part_id(p->id()), p->bytes(), p->owner()};
                }),
            stages(m.stages())};
  }
  Assigned read(const wire::Assigned& m) { return {{m.epoch()}, m.part_bytes(), m.state_bytes(), m.resident_bytes()}; }
  Watch read(const wire::Watch&) { return {}; }
  PlanUpdate read(const wire::PlanUpdate& m) {
    return {{m.epoch()},
            enumerator(m.state(), FleetState::degraded, "fleet state"),
            text(m.reason(), kMaxTextBytes, "reason"),
            text(m.model_name(), kMaxNameBytes, "model name"),
            enumerator(m.profile(), Profile::fast, "profile"),
            budget(m.budget()),
            addresses(m.nodes()),
            stages(m.stages()),
            list<NodeId>(m.lost(), kMaxNodesPerMessage, "lost nodes",
                         [&](const flatbuffers::String* s) { return node(s); }),
            m.http_port(),
            text(m.fetch_ticket(), kMaxNameBytes, "ticket"),
            m.vocabulary(),
            m.own_context()};
  }
  StatusRequest read(const wire::StatusRequest&) { return {}; }
  StatusReply read(const wire::StatusReply& m) { return {text(m.json(), kMaxStatusBytes, "status")}; }
  KillRequest read(const wire::KillRequest& m) { return {node(m.node())}; }
  Shutdown read(const wire::Shutdown&) { return {}; }
  Done read(const wire::Done&) { return {}; }
  Call read(const wire::Call& m) {
    tensors(m.tensors());
    return {{m.epoch()},
            sequences(m.sequences()),
            numbers(m.tokens(), kMaxRowsPerStep, "tokens"),
            list<CallItem>(m.items(), kMaxItemsPerCall, "items",
                           [&](const wire::CallItem* i) {
                             return CallItem{i->part(), numbers(i->inputs(), kMaxInputsPerItem, "inputs"),
                                             numbers(i->rows(), kMaxRowsPerStep, "rows"),
                                             enumerator(i->want(), HeadWant::logits, "what is wanted of a head part")};
                           }),
            {}};
  }
  CallReply read(const wire::CallReply& m) {
    tensors(m.tensors());
    return {};
  }
  Step read(const wire::Step& m) {
    tensors(m.tensors());
    return {{m.epoch()},
            m.step(),
            sequences(m.sequences()),
            numbers(m.tokens(), kMaxRowsPerStep, "tokens"),
            list<SampledRow>(m.wanted(), kMaxRowsPerStep, "wanted rows",
                             [&](const wire::SampledRow* r) {
                               const wire::SampleSpec& s = r->sample();
                               return SampledRow{r->row(),
                                                 enumerator(r->want(), HeadWant::logits, "what is wanted of a row"),
                                                 {s.temperature(), s.top_p(), s.top_k(), s.seed(), s.choice(),
                                                  s.position(), s.top_logprobs()}};
                             }),
            {},
            m.next_stage()};
  }
  StepReply read(const wire::StepReply& m) {
    tensors(m.tensors());
    return {list<Sample>(m.samples(), kMaxRowsPerStep, "samples",
                         [&](const wire::Sample* s) {
                           return Sample{s->drawn()->token(), s->drawn()->logprob(),
                                         list<TokenLogprob>(s->top(), kMaxTopLogprobs, "likeliest tokens",
                                                            [](const wire::TokenLogprob* t) {
                                                              return TokenLogprob{t->token(), t->logprob()};
                                                            })};
                         }),
            {}};
  }
  Release read(const wire::Release& m) {
    return {list<SequenceId>(m.sequences(), kMaxReleasedSequences, "sequences",
                             [](std::uint64_t v) { return SequenceId{v}; })};
  }
  Failure read(const wire::Failure& m) {
    return {{enumerator(m.code(), Code::stale, "error code"), text(m.message(), kMaxTextBytes, "error message"),
             text(m.node(), kMaxNodeIdBytes, "error node"), text(m.part(), kMaxNameBytes, "error part")}};
  }
  Cancel read(const wire::Cancel&) { return {}; }
  Ping read(const wire::Ping&) { return {}; }
  Pong read(const wire::Pong&) { return {}; }

 private:
  template <class W>
  static constexpr std::size_t element_bytes() {
    if constexpr (std::is_pointer_v<W>) {
      return sizeof(std::remove_pointer_t<W>);  // structs in place
    } else {
      return sizeof(W);
    }
  }

  template <class W>
  static constexpr std::size_t element_alignment() {
    return alignof(std::conditional_t<std::is_pointer_v<W>, std::remove_pointer_t<W>, W>);
  }

  bool may_take(std::size_t count, std::size_t each, std::size_t maximum, const char* what) {
    if (count > maximum) {
      refuse(Code::limit, "{} {}, expected at most {}", count, what, maximum);
    } else if (count * each > budget_) {
      refuse(Code::corrupt, "fields share bytes ({})", what);
    } else {
      budget_ -= count * each;
    }
    return status_.has_value();
  }

  template <class... Args>
  void refuse(Code code, fmt::format_string<Args...> format, Args&&... args) {
    if (status_) status_ = fail(code, format, std::forward<Args>(args)...);
  }

  std::size_t budget_;
  std::vector<TensorDescription>& tensors_;
  Status status_;
};

Message read_body(Reader& r, const wire::Envelope& e) {
  switch (e.body_type()) {
#define MYRIAD_BODY(kind) \
  case wire::Body_##kind: \
    return r.read(*e.body_as_##kind())
    MYRIAD_BODY(Hello);
    MYRIAD_BODY(Register);
    MYRIAD_BODY(Registered);
    MYRIAD_BODY(Heartbeat);
    MYRIAD_BODY(HeartbeatReply);
    MYRIAD_BODY(Assign);
    MYRIAD_BODY(Assigned);
    MYRIAD_BODY(Watch);
    MYRIAD_BODY(PlanUpdate);
    MYRIAD_BODY(StatusRequest);
    MYRIAD_BODY(StatusReply);
    MYRIAD_BODY(KillRequest);
    MYRIAD_BODY(Shutdown);
    MYRIAD_BODY(Done);
    MYRIAD_BODY(Call);
    MYRIAD_BODY(CallReply);
    MYRIAD_BODY(Step);
    MYRIAD_BODY(StepReply);
    MYRIAD_BODY(Release);
    MYRIAD_BODY(Failure);
    MYRIAD_BODY(Cancel);
    MYRIAD_BODY(Ping);
    MYRIAD_BODY(Pong);
#undef MYRIAD_BODY
    case wire::Body_NONE:
      break;
  }
  return Done{};  // unreachable: the caller has checked the kind
}

}  // namespace

Result<Envelope> read_envelope(std::span<const std::byte> bytes, std::vector<TensorDescription>& tensors) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), kMaxDepth,
                                 kMaxTables);
  if (bytes.size() < 8 || !wire::VerifyEnvelopeBuffer(verifier))
    return fail(Code::corrupt, "reading a frame: its message of {} bytes does not keep to the schema", bytes.size());
  const wire::Envelope& e = *wire::GetEnvelope(bytes.data());
  if (e.body() == nullptr || e.body_type() == wire::Body_NONE || e.body_type() > wire::Body_MAX)
    return fail(Code::corrupt, "reading a frame: its message is of kind {}, expected 1 to {}",
                static_cast<unsigned>(e.body_type()), static_cast<unsigned>(wire::Body_MAX));
  Reader reader(bytes.size(), tensors);
  Envelope out{e.call(), e.answer(), e.deadline_ms(), read_body(reader, e)};
  if (!reader.status()) {
    Error error = reader.status().error();
    return std::unexpected(std::move(error).within(fmt::format("reading a {} frame", message_name(out.message))));
  }
  return out;
}

}  // namespace myriad
