//! The table of the sides of mailboxes that sessions over packets have open. A side that has something to do is due; one that
//! could have, if its mailbox had a message or room, is in line at the mailbox. An idle side costs a turn nothing.

use crate::net::sides::RemoteSide;
use crate::present::present;
use crossdock_mailbox::host::{HostInterface, MailboxKey};
use slab::Slab;
use std::collections::{BTreeSet, HashMap};

/// No side.
const NONE: usize = usize::MAX;

/// Where a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It is looked at in this turn or the next.
    Due,
    /// A reader, for a message in its mailbox.
    Message,
    /// A writer, for room in its mailbox.
    Room,
}

/// The first and the last side of a line, or [`NONE`].
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: usize,
    last: usize,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

struct Entry {
    side: RemoteSide,
    line: Option<Line>,
    before: usize,
    after: usize,
}

/// The sides that are open at one mailbox.
struct OfMailbox {
    sides: BTreeSet<usize>,
    for_message: Ends,
    for_room: Ends,
}

/// All sides that sessions over packets have open.
pub(super) struct Remote {
    sides: Slab<Entry>,
    /// By peer, and its number for the side.
    of_peers: HashMap<usize, HashMap<u16, usize>>,
    of_mailboxes: HashMap<MailboxKey, OfMailbox>,
    due: Ends,
}

impl Default for Remote {
    fn default() -> Remote {
        Remote { sides: Slab::new(), of_peers: HashMap::new(), of_mailboxes: HashMap::new(), due: EMPTY }
    }
}

impl Remote {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sides.is_empty()
    }

    /// How many sides a peer has open.
    pub(super) fn count(&self, peer: usize) -> usize {
        self.of_peers.get(&peer).map_or(0, HashMap::len)
    }

    /// A number that a peer has no side for; it has fewer than there are numbers.
    pub(super) fn unused_number(&self, peer: usize) -> u16 {
        let numbers = self.of_peers.get(&peer);
        let is_unused = |number: &u16| numbers.is_none_or(|numbers| !numbers.contains_key(number));
        (0..=u16::MAX).find(is_unused).unwrap_or_default()
    }

    #[inline]
    pub(super) fn find(&self, peer: usize, number: u16) -> Option<usize> {
        self.of_peers.get(&peer)?.get(&number).copied()
    }

    /// A side that a peer has open.
    pub(super) fn any_of(&self, peer: usize) -> Option<usize> {
        self.of_peers.get(&peer)?.values().next().copied()
    }

    #[inline]
    #[track_caller]
    pub(super) fn side_mut(&mut self, key: usize) -> Option<&mut RemoteSide> {
        self.entry_mut(key).map(|entry| &mut entry.side)
    }

    /// The entry of a side that is open.
    #[inline]
    #[track_caller]
    fn entry_mut(&mut self, key: usize) -> Option<&mut Entry> {
        present(self.sides.get_mut(key), "side", key)
    }

    /// The sides that are open at a mailbox.
    pub(super) fn at(&self, mailbox: MailboxKey) -> impl Iterator<Item = (usize, &RemoteSide)> {
        let keys = self.of_mailboxes.get(&mailbox).into_iter().flat_map(|of| of.sides.iter().copied());
        keys.filter_map(|key| Some((key, &self.sides.get(key)?.side)))
    }

    /// Takes a side in; from then on its mailbox is watched.
    pub(super) fn insert(&mut self, side: RemoteSide, host: &mut HostInterface) -> usize {
        let (peer, number, mailbox) = (side.peer, side.number, side.mailbox);
        let key = self.sides.insert(Entry { side, line: None, before: NONE, after: NONE });
        let known = self.of_peers.entry(peer).or_default().insert(number, key);
        debug_assert!(known.is_none(), "the number was unused");
        let new = || OfMailbox { sides: BTreeSet::new(), for_message: EMPTY, for_room: EMPTY };
        self.of_mailboxes.entry(mailbox).or_insert_with(new).sides.insert(key);
        host.watch(mailbox, true);
        key
    }

    /// Takes a side out.
    pub(super) fn remove(&mut self, key: usize, host: &mut HostInterface) -> Option<RemoteSide> {
        self.leave(key);
        let Entry { side, .. } = self.sides.try_remove(key)?;
        if let Some(numbers) = self.of_peers.get_mut(&side.peer) {
            numbers.remove(&side.number);
            if numbers.is_empty() {
                self.of_peers.remove(&side.peer);
            }
        }
        if let Some(of) = self.of_mailboxes.get_mut(&side.mailbox) {
            of.sides.remove(&key);
            if of.sides.is_empty() {
                self.of_mailboxes.remove(&side.mailbox);
                host.watch(side.mailbox, false);
            }
        }
        Some(side)
    }

    /// The ends of a line, of the mailbox of the side where it is one's.
    fn ends(&mut self, line: Line, mailbox: MailboxKey) -> Option<&mut Ends> {
        Some(match line {
            Line::Due => &mut self.due,
            Line::Message => &mut self.of_mailboxes.get_mut(&mailbox)?.for_message,
            Line::Room => &mut self.of_mailboxes.get_mut(&mailbox)?.for_room,
        })
    }

    /// Puts a side at the end of a line, if it is in none.
    pub(super) fn join(&mut self, key: usize, line: Line) {
        let Some(entry) = self.entry_mut(key).filter(|entry| entry.line.is_none()) else { return };
        let mailbox = entry.side.mailbox;
        let ends = self.ends(line, mailbox);
        debug_assert!(ends.is_some(), "side {key} is at its mailbox");
        let Some(ends) = ends else { return };
        let last = std::mem::replace(&mut ends.last, key);
        if last == NONE {
            ends.first = key;
        }
        if let Some(last) = self.sides.get_mut(last) {
            last.after = key;
        }
        if let Some(entry) = self.sides.get_mut(key) {
            (entry.line, entry.before, entry.after) = (Some(line), last, NONE);
        }
    }

    /// Takes a side out of the line that it is in, if it is in one.
    pub(super) fn leave(&mut self, key: usize) {
        let Some(entry) = self.entry_mut(key) else { return };
        let (before, after, mailbox) = (entry.before, entry.after, entry.side.mailbox);
        let Some(line) = entry.line.take() else { return };
        if let Some(before) = self.sides.get_mut(before) {
            before.after = after;
        }
        if let Some(after) = self.sides.get_mut(after) {
            after.before = before;
        }
        if let Some(ends) = self.ends(line, mailbox) {
            if before == NONE {
                ends.first = after;
            }
            if after == NONE {
                ends.last = before;
            }
        }
    }

    /// Has a side looked at, wherever it waits.
    pub(super) fn make_due(&mut self, key: usize) {
        self.leave(key);
        self.join(key, Line::Due);
    }

    /// Has the first side looked at that is in a line of a mailbox; false if none is.
    pub(super) fn call(&mut self, mailbox: MailboxKey, line: Line) -> bool {
        let first = self.ends(line, mailbox).map_or(NONE, |ends| ends.first);
        if first != NONE {
            self.make_due(first);
        }
        first != NONE
    }

    /// Takes the next side out that is due.
    pub(super) fn next_due(&mut self) -> Option<usize> {
        let first = Some(self.due.first).filter(|first| *first != NONE)?;
        self.leave(first);
        Some(first)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crossdock_mailbox::DoorbellPage;
    use crossdock_mailbox::host::{HostConfig, MailboxOptions, Owner};
    use crossdock_transport::control::Side;
    use std::collections::VecDeque;

    /// Random sides join, leave and end: the lines are always those of a plain model.
    #[test]
    fn lines_are_as_sides_joined_them() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut host = HostInterface::new(HostConfig::default(), DoorbellPage::new().unwrap()).unwrap();
        let create = |host: &mut HostInterface, name: &str| host.create(Owner::Daemon, name, MailboxOptions::default());
        let mailboxes = ["a", "b", "c"].map(|name| create(&mut host, name).unwrap());
        let mut remote = Remote::default();
        let lines = [Line::Due, Line::Message, Line::Room];
        // Of each line and mailbox, the keys in order; all that are due are in the first mailbox's.
        let mut model: HashMap<(usize, usize), VecDeque<usize>> = HashMap::new();
        let mut open: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            match random.usize(0..6) {
                0 if open.len() < 50 => {
                    let (peer, at) = (random.usize(0..4), random.usize(0..3));
                    let number = remote.unused_number(peer);
                    let side = RemoteSide::new(peer, number, mailboxes[at], Side::Read, 0);
                    open.push((remote.insert(side, &mut host), at));
                }
                1 if !open.is_empty() => {
                    let (key, at) = open.swap_remove(random.usize(..open.len()));
                    assert_eq!(remote.remove(key, &mut host).unwrap().mailbox, mailboxes[at]);
                    model.values_mut().for_each(|line| line.retain(|other| *other != key));
                }
                2 if !open.is_empty() => {
                    let (key, at) = open[random.usize(..open.len())];
                    let line = random.usize(0..3);
                    remote.join(key, lines[line]);
                    if !model.values().any(|line| line.contains(&key)) {
                        model.entry((line, if line == 0 { 0 } else { at })).or_default().push_back(key);
                    }
                }
                3 => {
                    let (line, at) = (random.usize(1..3), random.usize(0..3));
                    let called = model.get_mut(&(line, at)).and_then(VecDeque::pop_front);
                    assert_eq!(remote.call(mailboxes[at], lines[line]), called.is_some());
                    model.entry((0, 0)).or_default().extend(called);
                }
                4 => assert_eq!(remote.next_due(), model.get_mut(&(0, 0)).and_then(VecDeque::pop_front)),
                _ => {
                    let peer = random.usize(0..4);
                    assert_eq!(remote.any_of(peer).is_some(), remote.count(peer) > 0);
                }
            }
        }
        for (key, _) in open {
            assert!(remote.remove(key, &mut host).is_some());
        }
        assert!(remote.is_empty() && remote.of_peers.is_empty() && remote.of_mailboxes.is_empty());
        assert_eq!(remote.next_due(), None);
    }
}
