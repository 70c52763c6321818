// The messages between processes, as plain structures, and their encoding: a frame holds one FlatBuffers message and
// the raw bytes of its tensors. Pure functions on bytes; nothing here opens a socket.
//
// Frame (all little-endian, at most kMaxFrameBytes in all):
//   u32 magic "MYF1" | u32 message bytes | u32 payload bytes | u32 CRC32C over the 12 bytes before it, message and
//   payload message: FlatBuffers `Envelope` (proto/wire.fbs) | payload: tensors one after the other, each aligned to 16
//   bytes
// Tensors: f32 and bf16 little-endian, row-major; i8: q [rows, width], padded to 4 bytes, then scales f32 [rows,
// groups].
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "model/activation.h"
#include "model/graph.h"
#include "model/sampler.h"
#include "part/manifest.h"

namespace myriad {

inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{8} << 20;
inline constexpr std::uint16_t kProtocolVersion = 2;        // what we speak
inline constexpr std::uint16_t kOldestProtocolVersion = 2;  // the oldest that we still speak
inline constexpr std::size_t kMaxNodeIdBytes = 64;
inline constexpr std::size_t kMaxTextBytes = 4096;                        // error messages and the like
inline constexpr std::size_t kMaxWireConfigBytes = std::size_t{1} << 20;  // config.json inside Assign
inline constexpr std::size_t kMaxStatusBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxHostBytes = 255;
inline constexpr std::size_t kMaxNameBytes = 256;  // of a model, an instruction set, a ticket
inline constexpr std::size_t kMaxNodesPerMessage = std::size_t{1} << 17;
inline constexpr std::size_t kMaxPartsPerAssign = std::size_t{1} << 16;
inline constexpr std::size_t kMaxHeldParts = std::size_t{1} << 17;
inline constexpr std::size_t kMaxStages = std::size_t{1} << 13;
inline constexpr std::size_t kMaxRowsPerStep = 1024;
inline constexpr std::size_t kMaxItemsPerCall = 4096;
inline constexpr std::size_t kMaxInputsPerItem = 256;
inline constexpr std::size_t kMaxTensorsPerFrame = 4096;
inline constexpr std::size_t kMaxTensorWidth = std::size_t{1} << 24;
inline constexpr std::size_t kMaxReleasedSequences = std::size_t{1} << 16;

enum class Role : std::uint8_t { node = 0, gateway = 1, controller = 2, tool = 3 };
enum class NodeState : std::uint8_t { joining = 0, loading = 1, ready = 2, spare = 3, failed = 4, lost = 5 };
enum class FleetState : std::uint8_t {
  waiting = 0,
  loading = 1,
  ready = 2,
  degraded = 3
};  // waiting: for nodes; degraded: parts are missing
std::string_view role_name(Role r);
std::string_view node_state_name(NodeState s);
std::string_view fleet_state_name(FleetState s);

// ---- membership
struct Hello {  // first message of either side of a connection, after the handshake
  Role role = Role::node;
  NodeId node;
  std::uint64_t incarnation = 0;  // grows with each start of this node's process (wall-clock nanoseconds)
};
struct Register {
  NodeId node;
  std::uint64_t incarnation = 0;
  std::uint64_t memory_bytes = 0;   // budget of the whole process
  std::uint64_t process_bytes = 0;  // resident before any part is loaded
  std::uint32_t cores = 1;
  std::uint64_t speed = 0;  // weight bytes a second, measured at start by running kernels
  std::string isa;
  std::string host;  // where its data port can be reached; empty: the address that the controller sees
  std::uint16_t port = 0;
  std::vector<PartId> held;  // parts already in its store
};
struct Registered {
  std::uint32_t heartbeat_ms = 500;
  std::uint32_t lease_ms = 2000;
  std::uint16_t http_port = 0;  // of the controller's part server
  std::string fetch_ticket;     // presented as `Authorization: Bearer …`
};
struct Heartbeat {
  NodeId node;
  std::uint64_t incarnation = 0;
  Epoch epoch;  // of the assignment it runs
  NodeState state = NodeState::joining;
  std::uint64_t memory_used = 0;
  std::uint64_t calls = 0;
  std::uint64_t parts_loaded = 0;
};
struct HeartbeatReply {
  Epoch epoch;  // the newest that concerns this node
};

// ---- assignment
struct NodeAddress {
  NodeId node;
  std::string host;
  std::uint16_t port = 0;
};
struct PartAssignment {
  std::uint32_t index = 0;  // in the manifest; names the part in calls of this epoch
  PartSpec spec;
  PartId id;
  std::uint64_t bytes = 0;
  std::uint32_t owner = 0;  // index into nodes
};
struct StageAssignment {
  std::uint32_t lead = 0;    // index into nodes
  Half first = 0, last = 0;  // half-layers [first, last)
};
struct Budget {
  std::uint32_t sequences = 4;   // at once
  std::uint32_t context = 4096;  // positions of one sequence
  std::uint32_t step_rows = 64;  // rows of one step
  std::uint32_t positions = 0;   // in the caches of all sequences together; 0: every sequence can be as long as any
  std::uint32_t prefixes =
      0;  // states of prompts that are kept beside the running sequences, for requests that begin alike
  KvCache cache = KvCache::by_profile;
  std::uint32_t drafts = 0;  // tokens that are guessed from what the text repeats, and checked in one step
};
inline constexpr std::uint32_t kMaxDrafts = 16;
// Caches are given out in pages of whole positions; the page tables are the same in all parts of a node.
struct CachePages {
  std::uint32_t positions;  // of a page
  std::uint64_t count;      // of the pool
  [[nodiscard]] std::uint64_t for_positions(std::uint64_t n) const { return (n + positions - 1) / positions; }
};
CachePages cache_pages(const Budget& budget);
// States there is room for: of running sequences, of kept prefixes, and of sequences as they were before a guess.
constexpr std::uint64_t state_slots(const Budget& b) {
  return std::uint64_t{b.sequences} * (b.drafts != 0 ? 2 : 1) + b.prefixes;
}
// Attention state of a part of `units` units under `budget`; 0 for what is not attention. Saturates.
std::uint64_t attention_state_bytes(const Operator& op, std::uint32_t units, Profile profile, const Budget& budget);

struct Assign {  // controller → node: everything it must hold, and the routes of the stages that it leads
  Epoch epoch;
  std::string config_json;
  Profile profile = Profile::fast;
  Budget budget;
  std::vector<NodeAddress> nodes;
  std::uint32_t self = 0;
  std::vector<PartAssignment> parts;    // its own, and those of the halves that it leads
  std::vector<StageAssignment> stages;  // all, ascending
};
struct Assigned {  // the answer, when everything is loaded (or a Failure)
  Epoch epoch;
  std::uint64_t part_bytes = 0, state_bytes = 0, resident_bytes = 0;
};
struct Watch {};  // gateway → controller: send PlanUpdate now and whenever something changes
struct PlanUpdate {
  Epoch epoch;
  FleetState state = FleetState::waiting;
  std::string reason;  // a sentence, when not ready
  std::string model_name;
  Profile profile = Profile::fast;
  Budget budget;
  std::vector<NodeAddress> nodes;
  std::vector<StageAssignment> stages;
  std::vector<NodeId> lost;  // nodes of this epoch that are gone
  std::uint16_t http_port = 0;
  std::string fetch_ticket;
  std::uint32_t vocabulary = 0;   // tokens
  std::uint64_t own_context = 0;  // positions that the model was trained for; 0: unknown
};
struct StatusRequest {};
struct StatusReply {
  std::string json;
};
struct KillRequest {
  NodeId node;
};                   // tool → controller → node: stop this process
struct Shutdown {};  // the whole fleet goes down
struct Done {};      // a bare acknowledgement

// ---- data plane
// Rows of a call or step are those of `sequences` one after the other; positions ascend by one within an entry.
struct SequenceRows {
  SequenceId sequence;
  std::uint32_t first_position = 0;
  std::uint32_t rows = 0;
  SequenceId from;  // not 0: this sequence begins as that one is, which must stand at first_position
  SequenceId keep;  // not 0: before these rows, the state is copied under this name
};
enum class HeadWant : std::uint8_t { nothing = 0, candidates = 1, logits = 2 };
struct CallItem {
  std::uint32_t part = 0;             // PartAssignment::index
  std::vector<std::uint16_t> inputs;  // indices into tensors
  std::vector<std::uint16_t> rows;    // which rows of the inputs (of `tokens` for embed parts); empty: all
  HeadWant want = HeadWant::logits;   // of head parts: logits, or candidates packed as in model/sampler.h
};
struct Call {  // lead → helper
  Epoch epoch;
  std::vector<SequenceRows> sequences;  // for parts with state; empty otherwise
  std::vector<std::int32_t> tokens;     // for embed parts: those tokens whose rows are wanted
  std::vector<CallItem> items;
  std::vector<Activation> tensors;
};
struct CallReply {
  std::vector<Activation> tensors;
};  // one an item, in order

struct SampledRow {  // what the caller wants of one row of a step
  std::uint16_t row = 0;
  HeadWant want = HeadWant::candidates;  // logits: all of them come back, nothing is sampled
  SampleSpec sample;
};
struct Step {  // gateway → first lead, lead → next lead
  Epoch epoch;
  std::uint64_t step = 0;
  std::vector<SequenceRows> sequences;
  std::vector<std::int32_t> tokens;  // one a row; for the first stage
  std::vector<SampledRow> wanted;
  std::vector<Activation> tensors;  // later stages: residual stream, then the banked blocks
  std::uint32_t next_stage = 0;     // index of the stage that this message is for
};
struct StepReply {
  std::vector<Sample> samples;      // one for each wanted row, in order
  std::vector<Activation> tensors;  // [rows wanted with HeadWant::logits, vocabulary] f32, if any
};
struct Release {
  std::vector<SequenceId> sequences;
};  // forget their state; no answer

// ---- calls
struct Failure {
  Error error;
};
struct Cancel {};  // with the id of the call that is not wanted any more; no answer
struct Ping {};
struct Pong {};

using Message = std::variant<Hello, Register, Registered, Heartbeat, HeartbeatReply, Assign, Assigned, Watch,
                             PlanUpdate, StatusRequest, StatusReply, KillRequest, Shutdown, Done, Call, CallReply, Step,
                             StepReply, Release, Failure, Cancel, Ping, Pong>;
std::string_view message_name(const Message& m);

// `call` pairs an answer with its question: questions carry a number that is new on this connection (odd from the side
// that connected, even from the other), answers the same; 0 where none is expected. deadline_ms: time left for a
// question, 0 none.
struct Envelope {
  std::uint64_t call = 0;
  bool answer = false;
  std::uint32_t deadline_ms = 0;
  Message message;
};

// Does the message keep the bounds above and agree with itself: enums in range, indices inside what they point into,
// tensors as long as their rows and width say, rows of a step as many as its sequences have? The same check stands on
// both sides of the wire. Errors: limit (a named maximum), `otherwise` for everything else.
Status check_message(const Message& message, Code otherwise);

// Errors: limit, if the frame would be longer than kMaxFrameBytes (the message says by how much and what was in it);
// invalid_argument, if check_message refuses the message. The texts of a Failure are cut to kMaxTextBytes instead.
Result<std::vector<std::byte>> encode_frame(const Envelope& envelope);

struct FrameHeader {
  std::uint32_t message_bytes = 0, payload_bytes = 0, crc = 0;
};
// From exactly kFrameHeaderBytes bytes. Errors: corrupt (magic), limit (length).
Result<FrameHeader> decode_frame_header(std::span<const std::byte> bytes);
// `body` is message and payload; checks CRC, schema and every bound before it allocates. Errors: corrupt, limit.
Result<Envelope> decode_frame(const FrameHeader& header, std::span<const std::byte> header_bytes,
                              std::span<const std::byte> body);

}  // namespace myriad
