//! The work of the process that is killed or stopped: every operation there is, round after round, with the friend's messages
//! and its own in an order that both check.

use crate::daemon::client::{Client, soon};
use crate::daemon::{ADD_ONE, CALL_BACK};
use crossdock_mailbox::ConditionAddress;
use crossdock_mailbox::client::{Message, Reader, Wait, Writer};
use crossdock_mailbox::host::Implementation;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Names where it dies: see [`crossdock_mailbox::failpoint`].
pub(crate) const FAILPOINT: &str = "CROSSDOCK_FAILPOINT";
/// Names a condition of the friend's, as a word.
pub(crate) const SIGNALLED: &str = "CROSSDOCK_TEST_CONDITION";
/// Rounds until it ends by itself if it was to die at a certain place: so often it did not pass that.
const ROUNDS: u64 = 200;
/// Both implementations, and how their mailboxes are called.
pub(crate) const BOTH: [(Implementation, &str); 2] =
    [(Implementation::Rings, "rings"), (Implementation::SignalQueue, "queue")];
/// The mailboxes that it owns; the last is made last.
pub(crate) const OWN: [&str; 6] = ["loop-rings", "loop-queue", "idle-rings", "idle-queue", "full-rings", "full-queue"];
/// Their bound in messages, and that of the friend's.
pub(crate) const BOUND: u32 = 4;

/// The victim's ends of one implementation's mailboxes.
struct Ends {
    kind: &'static str,
    input: Reader,
    output: Writer,
    output_number: u16,
    /// Messages that it got, and that it put.
    got: u64,
    put: u64,
    /// A file that says how many it put, for the process that outlives it: a word for each implementation, this one included.
    said: (OwnedFd, u64),
}

pub(crate) fn run(address: &str, said: &OwnedFd) {
    let mut client = Client::attach(&address.parse().unwrap());
    client.attachment.on_upcall(|_, argument| argument + 1).unwrap();
    for name in OWN {
        let is_rings = name.ends_with("rings");
        client.create(name, BOTH[usize::from(!is_rings)].0, BOUND);
    }
    let mut ends: Vec<Ends> = Vec::new();
    for (at, (_, kind)) in BOTH.into_iter().enumerate() {
        let (input, _) = client.reader(&format!("in-{kind}")).unwrap();
        let (output, output_number) = client.writer(&format!("out-{kind}")).unwrap();
        let said = (said.try_clone().unwrap(), 8 * at as u64);
        ends.push(Ends { kind, input, output, output_number, got: 0, put: 0, said });
    }
    let rounds = std::env::var(FAILPOINT).map_or(u64::MAX, |_| ROUNDS);
    for round in 0..rounds {
        for ends in &mut ends {
            ends.messages(&mut client);
        }
        words(&client, round);
    }
}

impl Ends {
    /// All that can be done with mailboxes.
    fn messages(&mut self, client: &mut Client) {
        let name = format!("loop-{}", self.kind);
        let (mut writer, write_number) = client.writer(&name).unwrap();
        let (mut reader, read_number) = client.reader(&name).unwrap();
        // Messages are ended, dropped, and moved on.
        let message = self.get();
        self.input.end_get(message);
        drop(self.get());
        let message = self.get();
        let last = message.to_vec();
        self.input.enqueue(message, write_number).unwrap();
        let moved = reader.begin_get(soon()).unwrap();
        assert_eq!(*moved, *last);
        reader.end_get(moved);
        {
            let burst = self.input.get_many(1, soon()).unwrap();
            assert_eq!(burst[0][..8], self.got.to_le_bytes());
        }
        self.got += 1;
        // Nothing more is there: it is given up at once, and asleep.
        assert!(reader.try_begin_get().unwrap().is_none());
        reader.begin_get(Wait::Until(Instant::now())).unwrap_err();
        reader.begin_get(Wait::at_most(Duration::from_millis(1))).unwrap_err();
        assert_eq!(self.output.put_many([self.put.to_le_bytes()], soon()), Ok(1));
        self.says_it_put();
        // Puts are ended, dropped, and ended elsewhere; short ones and such as must be asked for.
        for len in [8, 5000] {
            let mut put = self.output.begin_put(len, soon()).unwrap();
            put[..8].copy_from_slice(&self.put.to_le_bytes());
            self.output.end_put(put).unwrap();
            self.says_it_put();
            drop(writer.begin_put(len, soon()).unwrap());
        }
        let mut put = writer.begin_put(8, soon()).unwrap();
        put.copy_from_slice(&self.put.to_le_bytes());
        writer.enqueue(put, self.output_number).unwrap();
        self.says_it_put();
        drop((writer, reader));
        client.close(write_number);
        client.close(read_number);
    }

    fn says_it_put(&mut self) {
        self.put += 1;
        rustix::io::pwrite(&self.said.0, &self.put.to_le_bytes(), self.said.1).unwrap();
    }

    /// The next message, which is the one that comes next.
    fn get(&mut self) -> Message {
        let message = self.input.begin_get(soon()).unwrap();
        assert_eq!(message[..8], self.got.to_le_bytes(), "message of {}", self.kind);
        self.got += 1;
        message
    }
}

/// All that can be done with syncs, conditions and calls.
fn words(client: &Client, round: u64) {
    let attachment = &client.attachment;
    let mut sync = attachment.alloc_sync().unwrap();
    attachment.write_sync(sync.address(), round).unwrap();
    assert_eq!(sync.read(soon()), Ok(round));
    let given_up = attachment.alloc_sync().unwrap();
    attachment.write_sync(given_up.address(), round).unwrap();
    given_up.cancel();
    let condition = attachment.condition().unwrap();
    let seen = condition.value();
    condition.wait(seen, Wait::Until(Instant::now())).unwrap_err();
    condition.signal();
    condition.wait(seen, soon()).unwrap();
    let friends = std::env::var(SIGNALLED).unwrap().parse().unwrap();
    attachment.signal(ConditionAddress::from_word(friends).unwrap()).unwrap();
    assert_eq!(attachment.call(ADD_ONE, round, soon()), Ok(round + 1));
    assert_eq!(attachment.call(CALL_BACK, round, soon()), Ok(round + 1));
    attachment.arm();
}
