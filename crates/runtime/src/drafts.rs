//! Results for an attached subscriber: packed straight into the inbox that its domain reads, which is the one copy of
//! them.

use crate::attached::{Attached, Label, Outgoing};
use crate::counters::{Counters, DropReason};
use crossdock_engine::Sink;
use crossdock_mailbox::host::{Draft, HostInterface};
use crossdock_transport::{HEADER_BYTES, Header, Kind, MAX_SUPER_BYTES};
use std::ops::Range;

/// Sizes of drafts in bytes: the next is larger when one was filled and smaller when one left nearly empty, so that a
/// slow stream's few records do not hold large buffers.
const DRAFT_BYTES: Range<usize> = 4 << 10..64 << 10;

/// The location of a draft's bytes.
#[derive(Debug)]
enum Space {
    Inbox(Draft),
    /// In the daemon's own memory, while the inbox is full.
    Own(Box<[u8]>),
}

/// A packet that is being filled for a subscription.
#[derive(Debug)]
pub(crate) struct OpenDraft {
    space: Space,
    used: usize,
    records: u16,
    format: u64,
    pub(crate) opened_ns: u64,
}

impl OpenDraft {
    /// Appends records that lie back to back; `false` when they do not fit any more.
    #[inline]
    fn push(&mut self, bytes: &[u8], records: u16) -> bool {
        let end = self.used + bytes.len();
        let space: &mut [u8] = match &mut self.space {
            Space::Inbox(draft) => draft,
            Space::Own(own) => own,
        };
        let Some(records) = self.records.checked_add(records) else { return false };
        match space.get_mut(self.used..end) {
            Some(room) if end <= MAX_SUPER_BYTES => room.copy_from_slice(bytes),
            _ => return false,
        }
        (self.used, self.records) = (end, records);
        true
    }

    /// Leaves for the session.
    pub(crate) fn send(self, attached: &mut Attached, host: &mut HostInterface, subscription: u32, droppable: bool) {
        let OpenDraft { space, used, records, format, .. } = self;
        let payload_bytes = (used - HEADER_BYTES) as u16;
        let header =
            Header { stream: subscription, format, records, payload_bytes, ..Header::new(Kind::Data, 0) }.to_bytes();
        let label = Label { subscription: subscription as u16, records: records.into(), droppable };
        let outgoing = match space {
            Space::Inbox(mut draft) => {
                draft[..HEADER_BYTES].copy_from_slice(&header);
                Outgoing::Drafted(draft.finish(used), label)
            }
            Space::Own(mut own) => {
                own[..HEADER_BYTES].copy_from_slice(&header);
                let mut own = own.into_vec();
                own.truncate(used);
                Outgoing::Own(own.into_boxed_slice(), label)
            }
        };
        attached.send(host, outgoing);
    }
}

/// The sink of a handler's records for one subscription of an attached client.
pub(crate) struct DraftPacker<'a> {
    pub(crate) open: &'a mut Option<OpenDraft>,
    /// Size of the next draft, in bytes.
    pub(crate) draft_bytes: &'a mut usize,
    pub(crate) attached: &'a mut Attached,
    pub(crate) host: &'a mut HostInterface,
    pub(crate) counters: &'a mut Counters,
    pub(crate) subscription: u32,
    pub(crate) droppable: bool,
    /// Format of the records pushed.
    pub(crate) format: u64,
    pub(crate) now_ns: u64,
    /// Records taken.
    pub(crate) taken: u64,
    /// Records that could not be taken; they are reported to the subscriber.
    pub(crate) lost: u64,
}

impl Sink for DraftPacker<'_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        self.push_all(record, 1);
    }
}

impl DraftPacker<'_> {
    /// Takes `records` records that lie back to back.
    #[inline]
    pub(crate) fn push_all(&mut self, bytes: &[u8], records: u16) {
        if let Some(open) = self.open
            && open.format == self.format
            && open.push(bytes, records)
        {
            self.taken += u64::from(records);
            return;
        }
        self.push_into_new(bytes, records);
    }

    #[cold]
    fn push_into_new(&mut self, bytes: &[u8], records: u16) {
        if self.open.is_some() {
            *self.draft_bytes = (*self.draft_bytes * 4).min(DRAFT_BYTES.end);
            self.flush();
        }
        let needed = HEADER_BYTES + bytes.len();
        if needed > MAX_SUPER_BYTES {
            self.counters.drop(DropReason::TooLong, records.into());
            self.lost += u64::from(records);
            return;
        }
        *self.draft_bytes = (*self.draft_bytes).clamp(DRAFT_BYTES.start, DRAFT_BYTES.end);
        let size = needed.max(*self.draft_bytes);
        // Nothing of what was let in is lost because the inbox is full; the session's bound counts these bytes too.
        let inbox = if self.attached.is_late() { None } else { self.host.begin_send(self.attached.client, size).ok() };
        let space = inbox.map_or_else(|| Space::Own(vec![0; size].into_boxed_slice()), Space::Inbox);
        let mut open = OpenDraft { space, used: HEADER_BYTES, records: 0, format: self.format, opened_ns: self.now_ns };
        if open.push(bytes, records) {
            self.taken += u64::from(records);
        }
        *self.open = Some(open);
    }

    /// Sends the open draft to the session.
    pub(crate) fn flush(&mut self) {
        if let Some(open) = self.open.take() {
            open.send(self.attached, self.host, self.subscription, self.droppable);
        }
    }
}

/// The size of the next draft, after one of `used` bytes that left before it was full.
pub(crate) fn shrink(draft_bytes: &mut usize, open: &OpenDraft) {
    if open.used < *draft_bytes / 4 {
        *draft_bytes = (*draft_bytes / 4).max(DRAFT_BYTES.start);
    }
}
