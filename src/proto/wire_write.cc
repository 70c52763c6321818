#include <flatbuffers/flatbuffers.h>

#include "proto/wire.h"
#include "wire_generated.h"

namespace myriad {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using Body = std::pair<wire::Body, Offset<void>>;

template <class T>
Body body(wire::Body kind, Offset<T> offset) {
  return {kind, offset.Union()};
}

wire::Digest digest(const PartId& id) {
  return wire::Digest(flatbuffers::span<const std::uint8_t, 32>(reinterpret_cast<const std::uint8_t*>(id.digest.data()),
                                                                id.digest.size()));
}

wire::PartSpec spec(const PartSpec& s) {
  return {s.op.layer, static_cast<std::uint8_t>(s.op.role), s.op.index, s.begin, s.end};
}

// A vector of structs, filled in place. (CreateUninitializedVectorOfStructs of 2.0.8 aligns to the size of the struct,
// which is wrong when that is no power of two.)
template <class W, class T, class F>
Offset<flatbuffers::Vector<const W*>> structs(FlatBufferBuilder& b, const std::vector<T>& from, F convert) {
  return b.CreateVectorOfStructs<W>(
      from.size(), [&](std::size_t i, W* out, const F* f) { *out = (*f)(from[i]); }, &convert);
}

auto addresses(FlatBufferBuilder& b, const std::vector<NodeAddress>& from) {
  std::vector<Offset<wire::NodeAddress>> out;
  out.reserve(from.size());
  for (const NodeAddress& n : from) {
    const auto node = b.CreateString(n.node.value);
    const auto host = b.CreateString(n.host);
    out.push_back(wire::CreateNodeAddress(b, node, host, n.port));
  }
  return b.CreateVector(out);
}

auto stages(FlatBufferBuilder& b, const std::vector<StageAssignment>& from) {
  return structs<wire::StageAssignment>(
      b, from, [](const StageAssignment& s) { return wire::StageAssignment(s.lead, s.first, s.last); });
}

auto sequences(FlatBufferBuilder& b, const std::vector<SequenceRows>& from) {
  return structs<wire::SequenceRows>(b, from, [](const SequenceRows& s) {
    return wire::SequenceRows(s.sequence.value, s.first_position, s.rows, s.from.value, s.keep.value);
  });
}

auto tensors(FlatBufferBuilder& b, const std::vector<Activation>& from) {
  return structs<wire::Tensor>(b, from, [](const Activation& t) {
    return wire::Tensor(static_cast<std::uint32_t>(t.rows), static_cast<std::uint32_t>(t.width),
                        static_cast<std::uint8_t>(t.form));
  });
}

wire::Budget budget(const Budget& x) {
  return {x.sequences, x.context, x.step_rows, x.positions, x.prefixes, static_cast<std::uint8_t>(x.cache), x.drafts};
}

Body write(FlatBufferBuilder& b, const Hello& m) {
  const auto node = b.CreateString(m.node.value);
  return body(wire::Body_Hello, wire::CreateHello(b, static_cast<std::uint8_t>(m.role), node, m.incarnation));
}

Body write(FlatBufferBuilder& b, const Register& m) {
  const auto node = b.CreateString(m.node.value);
  const auto isa = b.CreateString(m.isa);
  const auto host = b.CreateString(m.host);
  const auto held = structs<wire::Digest>(b, m.held, digest);
  return body(wire::Body_Register, wire::CreateRegister(b, node, m.incarnation, m.memory_bytes, m.process_bytes,
                                                        m.cores, m.speed, isa, host, m.port, held));
}

Body write(FlatBufferBuilder& b, const Registered& m) {
  const auto ticket = b.CreateString(m.fetch_ticket);
  return body(wire::Body_Registered, wire::CreateRegistered(b, m.heartbeat_ms, m.lease_ms, m.http_port, ticket));
}

Body write(FlatBufferBuilder& b, const Heartbeat& m) {
  const auto node = b.CreateString(m.node.value);
  return body(wire::Body_Heartbeat,
              wire::CreateHeartbeat(b, node, m.incarnation, m.epoch.value, static_cast<std::uint8_t>(m.state),
                                    m.memory_used, m.calls, m.parts_loaded));
}

Body write(FlatBufferBuilder& b, const HeartbeatReply& m) {
  return body(wire::Body_HeartbeatReply, wire::CreateHeartbeatReply(b, m.epoch.value));
}

Body write(FlatBufferBuilder& b, const Assign& m) {
  const auto config = b.CreateString(m.config_json);
  const auto nodes = addresses(b, m.nodes);
  const auto parts = structs<wire::PartAssignment>(b, m.parts, [](const PartAssignment& p) {
    return wire::PartAssignment(p.index, spec(p.spec), digest(p.id), p.bytes, p.owner);
  });
  const auto routes = stages(b, m.stages);
  const auto limits = budget(m.budget);
  return body(wire::Body_Assign, wire::CreateAssign(b, m.epoch.value, config, static_cast<std::uint8_t>(m.profile),
                                                    &limits, nodes, m.self, parts, routes));
}

Body write(FlatBufferBuilder& b, const Assigned& m) {
  return body(wire::Body_Assigned,
              wire::CreateAssigned(b, m.epoch.value, m.part_bytes, m.state_bytes, m.resident_bytes));
}

Body write(FlatBufferBuilder& b, const Watch&) {
  return body(wire::Body_Watch, wire::CreateWatch(b));
}

Body write(FlatBufferBuilder& b, const PlanUpdate& m) {
  const auto reason = b.CreateString(m.reason);
  const auto model = b.CreateString(m.model_name);
  const auto nodes = addresses(b, m.nodes);
  const auto routes = stages(b, m.stages);
  std::vector<Offset<flatbuffers::String>> names;
  names.reserve(m.lost.size());
  for (const NodeId& n : m.lost) names.push_back(b.CreateString(n.value));
  const auto lost = b.CreateVector(names);
  const auto ticket = b.CreateString(m.fetch_ticket);
  const auto limits = budget(m.budget);
  return body(wire::Body_PlanUpdate,
              wire::CreatePlanUpdate(b, m.epoch.value, static_cast<std::uint8_t>(m.state), reason, model,
                                     static_cast<std::uint8_t>(m.profile), &limits, nodes, routes, lost, m.http_port,
                                     ticket, m.vocabulary, m.own_context));
}

Body write(FlatBufferBuilder& b, const StatusRequest&) {
  return body(wire::Body_StatusRequest, wire::CreateStatusRequest(b));
}

Body write(FlatBufferBuilder& b, const StatusReply& m) {
  const auto json = b.CreateString(m.json);
  return body(wire::Body_StatusReply, wire::CreateStatusReply(b, json));
}

Body write(FlatBufferBuilder& b, const KillRequest& m) {
  const auto node = b.CreateString(m.node.value);
  return body(wire::Body_KillRequest, wire::CreateKillRequest(b, node));
}

Body write(FlatBufferBuilder& b, const Shutdown&) {
  return body(wire::Body_Shutdown, wire::CreateShutdown(b));
}
Body write(FlatBufferBuilder& b, const Done&) {
  return body(wire::Body_Done, wire::CreateDone(b));
}

Body write(FlatBufferBuilder& b, const Call& m) {
  std::vector<Offset<wire::CallItem>> entries;
  entries.reserve(m.items.size());
  for (const CallItem& i : m.items) {
    // Absent and empty are the same to the reader.
    const auto inputs = i.inputs.empty() ? 0 : b.CreateVector(i.inputs);
    const auto rows = i.rows.empty() ? 0 : b.CreateVector(i.rows);
    entries.push_back(wire::CreateCallItem(b, i.part, inputs, rows, static_cast<std::uint8_t>(i.want)));
  }
  const auto items = b.CreateVector(entries);
  const auto rows = m.sequences.empty() ? 0 : sequences(b, m.sequences);
  const auto tokens = m.tokens.empty() ? 0 : b.CreateVector(m.tokens);
  const auto carried = tensors(b, m.tensors);
  return body(wire::Body_Call, wire::CreateCall(b, m.epoch.value, rows, tokens, items, carried));
}

Body write(FlatBufferBuilder& b, const CallReply& m) {
  const auto carried = tensors(b, m.tensors);
  return body(wire::Body_CallReply, wire::CreateCallReply(b, carried));
}

Body write(FlatBufferBuilder& b, const Step& m) {
  const auto rows = sequences(b, m.sequences);
  const auto tokens = b.CreateVector(m.tokens);
  const auto wanted = structs<wire::SampledRow>(b, m.wanted, [](const SampledRow& r) {
    const SampleSpec& s = r.sample;
    return wire::SampledRow(
        r.row, static_cast<std::uint8_t>(r.want),
        wire::SampleSpec(s.temperature, s.top_p, s.top_k, s.seed, s.choice, s.position, s.top_logprobs));
  });
  const auto carried = tensors(b, m.tensors);
  return body(wire::Body_Step, wire::CreateStep(b, m.epoch.value, m.step, rows, tokens, wanted, carried, m.next_stage));
}

Body write(FlatBufferBuilder& b, const StepReply& m) {
  std::vector<Offset<wire::Sample>> entries;
  entries.reserve(m.samples.size());
  for (const Sample& s : m.samples) {
    const auto top = structs<wire::TokenLogprob>(
        b, s.top, [](const TokenLogprob& t) { return wire::TokenLogprob(t.token, t.logprob); });
    const wire::TokenLogprob drawn(s.token, s.logprob);
    entries.push_back(wire::CreateSample(b, &drawn, top));
  }
  const auto samples = b.CreateVector(entries);
  const auto carried = tensors(b, m.tensors);
  return body(wire::Body_StepReply, wire::CreateStepReply(b, samples, carried));
}

Body write(FlatBufferBuilder& b, const Release& m) {
  std::uint64_t* out = nullptr;
  const auto offset = b.CreateUninitializedVector(m.sequences.size(), &out);
  for (const SequenceId id : m.sequences) *out++ = flatbuffers::EndianScalar(id.value);
  return body(wire::Body_Release, wire::CreateRelease(b, Offset<flatbuffers::Vector<std::uint64_t>>(offset)));
}

// A failure must always get through, so what is too long is cut, never in the middle of a character.
std::string_view cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

Body write(FlatBufferBuilder& b, const Failure& m) {
  const auto text = cut(m.error.message, kMaxTextBytes);
  const auto node = cut(m.error.node, kMaxNodeIdBytes);
  const auto part = cut(m.error.part, kMaxNameBytes);
  const auto text_at = b.CreateString(text.data(), text.size());
  const auto node_at = b.CreateString(node.data(), node.size());
  const auto part_at = b.CreateString(part.data(), part.size());
  return body(wire::Body_Failure,
              wire::CreateFailure(b, static_cast<std::uint8_t>(m.error.code), text_at, node_at, part_at));
}

Body write(FlatBufferBuilder& b, const Cancel&) {
  return body(wire::Body_Cancel, wire::CreateCancel(b));
}
Body write(FlatBufferBuilder& b, const Ping&) {
  return body(wire::Body_Ping, wire::CreatePing(b));
}
Body write(FlatBufferBuilder& b, const Pong&) {
  return body(wire::Body_Pong, wire::CreatePong(b));
}

}  // namespace

void write_envelope(FlatBufferBuilder& builder, const Envelope& envelope) {
  const auto [kind, offset] = std::visit([&](const auto& m) { return write(builder, m); }, envelope.message);
  builder.Finish(wire::CreateEnvelope(builder, envelope.call, envelope.answer, envelope.deadline_ms, kind, offset));
}

}  // namespace myriad
