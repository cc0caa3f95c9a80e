-- A dissector of Crossdock's session protocol for Wireshark and tshark (docs/protocol.md).
--
--   tshark -X lua_script:docs/wireshark/crossdock.lua -i lo -f 'udp port 7440'
--
-- Packets of UDP port 7440 are dissected, and others whose first bytes are a header of ours (a heuristic; "Decode As…" also works).
-- What is in envelopes of secure sessions is not opened: the keys are with the programs. Routed packets travel in envelopes; they are
-- dissected where a program shows what it has opened.

local VERSION = 6
local PORT = 7440
local HEADER_BYTES, HEAD_BYTES, TAG_BYTES = 32, 16, 16

local KINDS = {
  [1] = "hello", [2] = "welcome", [3] = "data", [4] = "control", [5] = "ack", [6] = "close", [7] = "ping", [8] = "message",
  [9] = "reset", [10] = "datagram", [11] = "probe", [12] = "probed", [13] = "part",
}
local PIECES = { [0] = "whole", [1] = "first", [2] = "middle", [3] = "last" }
local ENVELOPES = { [0xc1] = "initial", [0xc2] = "cookie", [0xc3] = "response", [0xc4] = "data", [0xc5] = "refusal" }
local REFUSALS = {
  [1] = "the client's key is not authorised", [2] = "the packet was in no envelope", [3] = "there are no keys for the index",
  [4] = "the daemon has as many clients as it takes",
}
local ROUTED = 0x80
local COURSES = { [1] = "forward", [2] = "backward", [3] = "refusal" }
local ROUTE_REFUSALS = {
  [1] = "the route is a loop", [2] = "the next node is no neighbour", [3] = "the hop before may not send there",
  [4] = "the packet is out of place",
}

local crossdock = Proto("crossdock", "Crossdock")

-- The header, and an error of it.
local f = {
  version = ProtoField.uint8("crossdock.version", "Version"),
  kind = ProtoField.uint8("crossdock.kind", "Kind", base.DEC, KINDS),
  length = ProtoField.uint16("crossdock.length", "Length of the payload"),
  session = ProtoField.uint32("crossdock.session", "Session"),
  seq = ProtoField.uint64("crossdock.seq", "Sequence number"),
  format = ProtoField.uint64("crossdock.format", "Format", base.HEX),
  stream = ProtoField.uint32("crossdock.stream", "Stream"),
  records = ProtoField.uint16("crossdock.records", "Records"),
  piece = ProtoField.uint8("crossdock.piece", "Piece", base.DEC, PIECES),
  reserved = ProtoField.uint8("crossdock.reserved", "Reserved"),
  payload = ProtoField.bytes("crossdock.payload", "Payload"),
  padding = ProtoField.bytes("crossdock.padding", "Padding"),
  -- Hello and welcome.
  nonce = ProtoField.uint64("crossdock.nonce", "Nonce", base.HEX),
  own_session = ProtoField.uint32("crossdock.own_session", "Sender's number for the session"),
  packet_bytes = ProtoField.uint32("crossdock.packet_bytes", "Packet size"),
  window_bytes = ProtoField.uint32("crossdock.window_bytes", "Window of data"),
  flags = ProtoField.uint32("crossdock.flags", "Flags", base.HEX),
  -- Acks.
  next_seq = ProtoField.uint64("crossdock.ack.next_seq", "Next sequence number"),
  data_limit = ProtoField.uint64("crossdock.ack.data_limit", "Units of data taken"),
  control_limit = ProtoField.uint64("crossdock.ack.control_limit", "Packets of control taken"),
  delay = ProtoField.uint32("crossdock.ack.delay_us", "Delay (µs)"),
  ranges = ProtoField.uint32("crossdock.ack.ranges", "Ranges"),
  range_from = ProtoField.uint64("crossdock.ack.range.from", "From"),
  range_to = ProtoField.uint64("crossdock.ack.range.to", "To"),
  datagrams_end = ProtoField.uint64("crossdock.ack.datagrams_end", "Behind the highest datagram"),
  datagrams = ProtoField.uint64("crossdock.ack.datagrams", "Datagrams arrived"),
  ect_0 = ProtoField.uint64("crossdock.ack.ect_0", "Packets with ECT(0)"),
  ce = ProtoField.uint64("crossdock.ack.ce", "Packets with CE"),
  -- Close, pieces, parts, control.
  again = ProtoField.bool("crossdock.close.again", "Makes sense to come back"),
  reason = ProtoField.string("crossdock.close.reason", "Reason", base.UNICODE),
  message_bytes = ProtoField.uint64("crossdock.message_bytes", "Length of the message"),
  control = ProtoField.string("crossdock.control", "Control message", base.UNICODE),
  part_offset = ProtoField.uint32("crossdock.part.offset", "Begins in the packet at"),
  part_total = ProtoField.uint32("crossdock.part.total", "Length of the packet"),
  part_kind = ProtoField.uint32("crossdock.part.kind", "Kind of the packet", base.DEC, KINDS),
  part_bytes = ProtoField.uint16("crossdock.part.bytes", "Length of all parts but the last"),
  -- Envelopes.
  envelope = ProtoField.uint8("crossdock.envelope", "Envelope", base.HEX, ENVELOPES),
  handshake = ProtoField.uint8("crossdock.envelope.version", "Version of the handshake", base.HEX),
  phase = ProtoField.uint8("crossdock.envelope.phase", "Phase of the key"),
  mailboxes = ProtoField.uint8("crossdock.envelope.mailboxes", "For mailboxes or tasks"),
  refusal = ProtoField.uint8("crossdock.envelope.refusal", "Refusal", base.DEC, REFUSALS),
  index = ProtoField.uint32("crossdock.envelope.index", "Index of the keys", base.HEX),
  number = ProtoField.uint64("crossdock.envelope.number", "Number"),
  cookie = ProtoField.bytes("crossdock.envelope.cookie", "Cookie"),
  handshake_message = ProtoField.bytes("crossdock.envelope.message", "Message of the handshake"),
  sealed = ProtoField.bytes("crossdock.envelope.sealed", "Sealed packet"),
  tag = ProtoField.bytes("crossdock.envelope.tag", "Tag"),
  -- Routed packets.
  course = ProtoField.uint8("crossdock.route.course", "Course", base.DEC, COURSES),
  nodes = ProtoField.uint8("crossdock.route.nodes", "Nodes"),
  place = ProtoField.uint8("crossdock.route.place", "Place"),
  origin = ProtoField.uint32("crossdock.route.origin", "Origin"),
  node = ProtoField.uint64("crossdock.route.node", "Node", base.HEX),
  route_refusal = ProtoField.uint8("crossdock.route.refusal", "Refusal", base.DEC, ROUTE_REFUSALS),
  refused_at = ProtoField.uint8("crossdock.route.refused_at", "Place of the node that refuses"),
}
local fields = {}
for _, field in pairs(f) do fields[#fields + 1] = field end
crossdock.fields = fields

local malformed = ProtoExpert.new("crossdock.malformed", "It is not as the protocol has it", expert.group.MALFORMED, expert.severity.ERROR)
crossdock.experts = { malformed }

local function greeting(tree, payload, has_flags)
  if payload:len() < 20 then return false end
  tree:add_le(f.nonce, payload(0, 8))
  tree:add_le(f.own_session, payload(8, 4))
  tree:add_le(f.packet_bytes, payload(12, 4))
  tree:add_le(f.window_bytes, payload(16, 4))
  if has_flags and payload:len() >= 24 then tree:add_le(f.flags, payload(20, 4)) end
  return true
end

local function ack(tree, payload)
  local len = payload:len()
  if len < 32 then return false end
  tree:add_le(f.next_seq, payload(0, 8))
  tree:add_le(f.data_limit, payload(8, 8))
  tree:add_le(f.control_limit, payload(16, 8))
  tree:add_le(f.delay, payload(24, 4))
  local count = payload(28, 4):le_uint()
  tree:add_le(f.ranges, payload(28, 4))
  if count > 64 or len < 32 + 8 * count then return false end
  local at, stop = 32, payload(0, 8):le_uint64()
  for _ = 1, count do
    local range = payload(at, 8)
    local start = stop + UInt64(payload(at, 4):le_uint())
    stop = start + UInt64(payload(at + 4, 4):le_uint())
    tree:add(f.range_from, range, start)
    tree:add(f.range_to, range, stop)
    at = at + 8
  end
  if len >= at + 16 then
    tree:add_le(f.datagrams_end, payload(at, 8))
    tree:add_le(f.datagrams, payload(at + 8, 8))
    at = at + 16
  end
  if len >= at + 16 then
    tree:add_le(f.ect_0, payload(at, 8))
    tree:add_le(f.ce, payload(at + 8, 8))
    at = at + 16
  end
  return at == len
end

-- The payload of each kind that has more than records; whether it is as it should be.
local PAYLOADS = {
  [1] = function(tree, payload) return greeting(tree, payload, true) end,
  [2] = function(tree, payload) return greeting(tree, payload, false) end,
  [5] = ack,
  [6] = function(tree, payload)
    if payload:len() < 1 then return false end
    tree:add(f.again, payload(0, 1))
    if payload:len() > 1 then tree:add(f.reason, payload(1)) end
    return true
  end,
}

-- The fields of a header that a part has others in.
local function part_header(tree, buffer)
  tree:add_le(f.part_offset, buffer(16, 4))
  tree:add_le(f.part_total, buffer(20, 4))
  tree:add_le(f.part_kind, buffer(24, 4))
  tree:add_le(f.part_bytes, buffer(28, 2))
end

local function record_header(tree, buffer)
  tree:add_le(f.format, buffer(16, 8))
  tree:add_le(f.stream, buffer(24, 4))
  tree:add_le(f.records, buffer(28, 2))
end

-- The payload, and whether it is as it should be.
local function dissect_payload(tree, payload, kind, piece)
  local known = PAYLOADS[kind]
  if known then return known(tree, payload) end
  local from = 0
  if piece == 1 and kind ~= 13 then
    if payload:len() < 8 then return false end
    tree:add_le(f.message_bytes, payload(0, 8))
    from = 8
  end
  if payload:len() > from then
    local field = (kind == 4 and piece == 0) and f.control or f.payload
    tree:add(field, payload(from))
  end
  return true
end

local function dissect_packet(buffer, pinfo, root)
  local len = buffer:len()
  local kind, piece, payload_bytes = buffer(1, 1):uint(), buffer(30, 1):uint(), buffer(2, 2):le_uint()
  local name = KINDS[kind] or "unknown"
  local tree = root:add(crossdock, buffer(), "Crossdock, " .. name)
  tree:add(f.version, buffer(0, 1))
  tree:add(f.kind, buffer(1, 1))
  tree:add_le(f.length, buffer(2, 2))
  tree:add_le(f.session, buffer(4, 4))
  tree:add_le(f.seq, buffer(8, 8))
  if kind == 13 then part_header(tree, buffer) else record_header(tree, buffer) end
  tree:add(f.piece, buffer(30, 1))
  tree:add(f.reserved, buffer(31, 1))
  pinfo.cols.info:append(string.format(" %s session=%u seq=%s len=%u", name, buffer(4, 4):le_uint(),
    tostring(buffer(8, 8):le_uint64()), payload_bytes))
  local is_good = KINDS[kind] ~= nil and PIECES[piece] ~= nil and HEADER_BYTES + payload_bytes <= len
  if is_good then
    -- A range of no bytes cannot be made.
    local payload = payload_bytes > 0 and buffer(HEADER_BYTES, payload_bytes):tvb() or nil
    if payload then
      is_good = dissect_payload(tree, payload, kind, piece)
    else
      is_good = PAYLOADS[kind] == nil
    end
    local from = HEADER_BYTES + payload_bytes
    if from < len then tree:add(f.padding, buffer(from)) end
  end
  if not is_good then tree:add_proto_expert_info(malformed) end
end

local function dissect_envelope(buffer, pinfo, root)
  local len, kind = buffer:len(), buffer(0, 1):uint()
  local name = ENVELOPES[kind]
  local tree = root:add(crossdock, buffer(), "Crossdock, envelope: " .. name)
  tree:add(f.envelope, buffer(0, 1))
  pinfo.cols.info:append(" envelope " .. name)
  if kind == 0xc1 then
    tree:add(f.handshake, buffer(1, 1))
    tree:add(f.mailboxes, buffer(2, 1))
  elseif kind == 0xc4 then
    tree:add(f.phase, buffer(1, 1))
  elseif kind == 0xc5 then
    tree:add(f.refusal, buffer(2, 1))
  end
  tree:add_le(f.index, buffer(4, 4))
  if kind == 0xc4 then tree:add_le(f.number, buffer(8, 8)) end
  local is_good = true
  if kind == 0xc1 then
    is_good = len == HEAD_BYTES + 16 + 96
    if is_good then
      tree:add(f.cookie, buffer(HEAD_BYTES, 16))
      tree:add(f.handshake_message, buffer(HEAD_BYTES + 16, 96))
    end
  elseif kind == 0xc2 then
    is_good = len == HEAD_BYTES + 16
    if is_good then tree:add(f.cookie, buffer(HEAD_BYTES, 16)) end
  elseif kind == 0xc3 then
    is_good = len == HEAD_BYTES + 52
    if is_good then tree:add(f.handshake_message, buffer(HEAD_BYTES, 52)) end
  elseif kind == 0xc4 then
    is_good = len > HEAD_BYTES + TAG_BYTES
    if is_good then
      tree:add(f.sealed, buffer(HEAD_BYTES, len - HEAD_BYTES - TAG_BYTES))
      tree:add(f.tag, buffer(len - TAG_BYTES, TAG_BYTES))
    end
  end
  if not is_good then tree:add_proto_expert_info(malformed) end
end

local function dissect_routed(buffer, pinfo, root)
  local len, course, nodes, place = buffer:len(), buffer(1, 1):uint(), buffer(2, 1):uint(), buffer(3, 1):uint()
  local tree = root:add(crossdock, buffer(), "Crossdock, routed packet: " .. (COURSES[course] or "unknown"))
  tree:add(f.course, buffer(1, 1))
  tree:add(f.nodes, buffer(2, 1))
  tree:add(f.place, buffer(3, 1))
  tree:add_le(f.origin, buffer(4, 4))
  pinfo.cols.info:append(string.format(" routed %s place=%u of %u", COURSES[course] or "unknown", place, nodes))
  local from = 8 + 8 * nodes
  local is_good = COURSES[course] ~= nil and nodes >= 2 and nodes <= 8 and place < nodes and len >= from
  if is_good then
    for at = 0, nodes - 1 do tree:add(f.node, buffer(8 + 8 * at, 8)) end
    if course == 3 then
      is_good = len >= from + 8
      if is_good then
        tree:add(f.route_refusal, buffer(from, 1))
        tree:add(f.refused_at, buffer(from + 1, 1))
      end
    elseif len >= from + HEAD_BYTES and ENVELOPES[buffer(from, 1):uint()] then
      dissect_envelope(buffer(from):tvb(), pinfo, tree)
    elseif len > from then
      tree:add(f.payload, buffer(from))
    end
  end
  if not is_good then tree:add_proto_expert_info(malformed) end
end

-- Bytes of it that are ours; 0 for none, so that others may look.
function crossdock.dissector(buffer, pinfo, root)
  local len = buffer:len()
  if len < HEAD_BYTES then return 0 end
  local first = buffer(0, 1):uint()
  if ENVELOPES[first] then
    pinfo.cols.protocol = "Crossdock"
    pinfo.cols.info = ""
    dissect_envelope(buffer, pinfo, root)
  elseif first == VERSION and len >= HEADER_BYTES then
    pinfo.cols.protocol = "Crossdock"
    pinfo.cols.info = ""
    dissect_packet(buffer, pinfo, root)
  elseif first == ROUTED and len >= HEAD_BYTES then
    pinfo.cols.protocol = "Crossdock"
    pinfo.cols.info = ""
    dissect_routed(buffer, pinfo, root)
  else
    return 0
  end
  return len
end

DissectorTable.get("udp.port"):add(PORT, crossdock)
-- Sockets of clients have ports of the system's choosing, and so may daemons: whatever begins with a header of this version is taken.
crossdock:register_heuristic("udp", function(buffer, pinfo, root)
  if buffer:len() < HEADER_BYTES or buffer(0, 1):uint() ~= VERSION or not KINDS[buffer(1, 1):uint()] then return false end
  if not PIECES[buffer(30, 1):uint()] or buffer(31, 1):uint() ~= 0 then return false end
  if HEADER_BYTES + buffer(2, 2):le_uint() > buffer:len() then return false end
  return crossdock.dissector(buffer, pinfo, root) > 0
end)
