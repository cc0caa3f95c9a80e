//! The numbers of direct rings: what their clients say of them, and where it is counted when they are over.

use super::Direct;
use crate::host::HostInterface;
use crate::host::client::Client;
use crate::host::losses::MessageLoss;
use crate::host::mailbox::{Mailbox, Side};
use crate::shared::{DirectCounts, SLOTS};
use slab::Slab;

/// The most that one pair of rings adds to the numbers of its mailbox, whatever its clients say.
pub(super) const MOST_COUNTED: u64 = 1 << 40;

/// The counts of direct rings so far, as their clients say.
#[derive(Clone, Copy, Default)]
pub(in crate::host) struct Passed {
    pub(in crate::host) puts: u64,
    pub(in crate::host) put_bytes: u64,
    pub(in crate::host) gets: u64,
    pub(in crate::host) got_bytes: u64,
    pub(in crate::host) waits: u64,
    /// Messages that the reader was handed.
    pub(in crate::host) handed: u64,
    /// Messages in them, and their bytes.
    pub(in crate::host) depth: u32,
    pub(in crate::host) bytes: u64,
}

impl Direct {
    /// The counts that the mailbox does not have itself.
    pub(in crate::host) fn passed(&self) -> Passed {
        let written = self.written();
        if self.is_folded {
            return Passed { waits: written.waits, ..Passed::default() };
        }
        let read = self.read();
        // A message that the core took is counted where it went.
        let puts = written.puts.saturating_sub(self.taken.0);
        let put_bytes = written.put_bytes.saturating_sub(self.taken.1);
        Passed {
            puts,
            put_bytes,
            waits: written.waits,
            depth: puts.saturating_sub(read.gets).min(SLOTS as u64) as u32,
            bytes: put_bytes.saturating_sub(read.got_bytes),
            ..read
        }
    }

    /// The writer's own counts.
    pub(super) fn written(&self) -> Passed {
        let said = |which| self.put.get(which).min(MOST_COUNTED);
        let (puts, put_bytes) = (said(DirectCounts::MESSAGES), said(DirectCounts::BYTES));
        Passed { puts, put_bytes, waits: said(DirectCounts::THIRD), ..Passed::default() }
    }

    /// The reader's own counts.
    pub(super) fn read(&self) -> Passed {
        let said = |which| self.got.get(which).min(MOST_COUNTED);
        let gets = said(DirectCounts::MESSAGES) + self.dropped.0;
        let got_bytes = said(DirectCounts::BYTES) + self.dropped.1;
        Passed { gets, got_bytes, handed: said(DirectCounts::THIRD), ..Passed::default() }
    }
}

/// The counts of a mailbox's direct rings, if it has any now.
pub(in crate::host) fn passed_of(directs: &Slab<Direct>, mailbox: &Mailbox) -> Passed {
    let direct = mailbox.direct.and_then(|pair| directs.get(pair as usize));
    direct.map(Direct::passed).unwrap_or_default()
}

impl HostInterface {
    /// Counts what a reader got over direct rings that it uses no more. The messages that it had not ended went with it.
    pub(super) fn fold_direct(&mut self, pair: u32) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        if std::mem::replace(&mut direct.is_folded, true) {
            return;
        }
        let (mailbox, Passed { handed, gets, .. }) = (direct.mailbox, direct.read());
        let reason = match self.mailbox_mut(mailbox) {
            Some(mailbox) => {
                mailbox.counters.puts = mailbox.counters.puts.wrapping_add(handed);
                mailbox.counters.gets = mailbox.counters.gets.wrapping_add(handed);
                MessageLoss::ReaderGone
            }
            None => MessageLoss::Undeliverable,
        };
        self.count_loss(mailbox, reason, handed.saturating_sub(gets).min(SLOTS as u64));
    }

    /// The counts of a side over direct rings are its client's from here on: it uses them no more.
    pub(super) fn count_side(&mut self, pair: u32, side: Side) {
        let Some(direct) = self.directs.get(pair as usize) else { return };
        match side {
            Side::Write => {
                let written = direct.written();
                let Some(client) = self.clients.at_mut(direct.writer.client) else { return };
                client.messages_in = client.messages_in.wrapping_add(written.puts);
                client.bytes_in = client.bytes_in.wrapping_add(written.put_bytes);
                client.waits = client.waits.wrapping_add(written.waits);
            }
            Side::Read => {
                let read = direct.read();
                let Some(client) = self.clients.at_mut(direct.reader.client) else { return };
                client.messages_out = client.messages_out.wrapping_add(read.handed);
                client.bytes_out = client.bytes_out.wrapping_add(read.got_bytes);
            }
        }
    }

    /// The counts of a client's direct rings so far: as their writer, and as their reader.
    pub(in crate::host) fn passed_by(&self, client: &Client) -> [Passed; 2] {
        let mut sums = [Passed::default(); 2];
        for port in client.ports.iter().flatten() {
            let Some(direct) = port.direct.pair.and_then(|pair| self.directs.get(pair as usize)) else { continue };
            let (written, read) = (direct.written(), direct.read());
            let sum = &mut sums[usize::from(port.side == Side::Read)];
            sum.puts += written.puts;
            sum.put_bytes += written.put_bytes;
            sum.waits += written.waits;
            sum.handed += read.handed;
            sum.got_bytes += read.got_bytes;
        }
        sums
    }
}
