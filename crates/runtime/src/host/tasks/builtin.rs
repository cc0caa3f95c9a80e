//! The tasks that every daemon has.

use super::{Core, MAX_STEP_BYTES, Task, TaskFactory, TaskSetup};
use crate::host::services::Service;
use crossdock_mailbox::host::{ClientKey, MailboxKey, Message};
use std::collections::HashMap;

/// All of them, by name.
pub(super) fn factories() -> HashMap<String, TaskFactory> {
    let all: [(&str, TaskFactory); 8] = [
        ("echo", Box::new(echo)),
        ("copy", Box::new(copy)),
        ("sum", Box::new(sum)),
        ("discard", Box::new(discard)),
        ("call", Box::new(call)),
        ("log", Box::new(log)),
        ("read_file", Box::new(read_file)),
        ("dump", Box::new(dump)),
    ];
    all.into_iter().map(|(name, factory)| (name.to_owned(), factory)).collect()
}

type Made = Result<Box<dyn Task>, String>;

/// `echo`: each message moves on to the mailbox `to`, uncopied.
struct Echo {
    to: MailboxKey,
}

fn echo(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["to"])?;
    Ok(Box::new(Echo { to: setup.other_mailbox("to")? }))
}

impl Task for Echo {
    #[inline]
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        match core.has_room(self.to) {
            true => core.put(self.to, message),
            false => core.drop_for_bound(message),
        }
    }
}

/// `copy`: reads every byte of a message, and puts a new one of the same bytes into the mailbox `to`.
struct Copy {
    to: MailboxKey,
}

fn copy(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["to"])?;
    Ok(Box::new(Copy { to: setup.other_mailbox("to")? }))
}

/// Copies a whole message to the start of `bytes`, which grows as needed; `None` for one that is too long for a step.
fn read_all<'a>(core: &Core<'_>, message: &Message, bytes: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    if message.len() > MAX_STEP_BYTES {
        return None;
    }
    if bytes.len() < message.len() {
        bytes.resize(message.len(), 0);
    }
    let bytes = &mut bytes[..message.len()];
    core.read(message, 0, bytes).then_some(&*bytes)
}

/// Answers a message with a new one that holds `bytes`, and frees it.
#[inline]
fn answer(core: &mut Core<'_>, to: MailboxKey, message: Message, bytes: &[u8]) {
    if !core.has_room(to) {
        return core.drop_for_bound(message);
    }
    match core.put_bytes(to, bytes) {
        Ok(()) => core.free(message),
        Err(_) => core.drop_for_memory(message),
    }
}

impl Task for Copy {
    #[inline]
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        if message.len() > MAX_STEP_BYTES {
            return core.drop_too_long(message);
        }
        if !core.has_room(self.to) {
            return core.drop_for_bound(message);
        }
        match core.put_copy(self.to, &message) {
            Ok(()) => core.free(message),
            Err(_) => core.drop_for_memory(message),
        }
    }
}

/// `sum`: adds up a message's bytes and puts the sum, 8 bytes little-endian, into the mailbox `to`, where one is named.
struct Sum {
    to: Option<MailboxKey>,
    bytes: Vec<u8>,
}

fn sum(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["to"])?;
    Ok(Box::new(Sum { to: optional(setup, "to")?, bytes: Vec::new() }))
}

/// The sum of all bytes, eight at a time.
#[inline]
fn add_up(bytes: &[u8]) -> u64 {
    /// Words that are added up in four sums of 16 bits at most: each takes two bytes of each word.
    const WORDS: usize = 128;
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, rest) = bytes.as_chunks::<8>();
    let sums = words.chunks(WORDS).map(|words| {
        let sums = words.iter().fold(0, |sums, word| {
            let word = u64::from_le_bytes(*word);
            sums + (word & EVEN) + (word >> 8 & EVEN)
        });
        (0..4).map(|at| sums >> (16 * at) & 0xffff).sum::<u64>()
    });
    sums.sum::<u64>() + rest.iter().map(|&byte| u64::from(byte)).sum::<u64>()
}

impl Task for Sum {
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        match read_all(core, &message, &mut self.bytes) {
            Some(bytes) => {
                let sum = add_up(bytes);
                match self.to {
                    Some(to) => answer(core, to, message, &sum.to_le_bytes()),
                    None => core.free(message),
                }
            }
            None => core.drop_too_long(message),
        }
    }

    fn upcall_batch(&mut self, core: &mut Core<'_>, messages: &mut Vec<Message>) {
        if self.to.is_some() || messages.iter().any(|message| message.len() > MAX_STEP_BYTES) {
            messages.reverse();
            while let Some(message) = messages.pop() {
                self.upcall(core, message);
            }
            return;
        }
        for message in &*messages {
            let sum = read_all(core, message, &mut self.bytes).map(add_up);
            // Nobody asked for the sum, but for its cost.
            std::hint::black_box(sum);
        }
    }
}

/// `discard`: lets each message go.
struct Discard;

fn discard(setup: &TaskSetup<'_>) -> Made {
    setup.only(&[])?;
    Ok(Box::new(Discard))
}

impl Task for Discard {
    #[inline]
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        core.free(message);
    }

    #[inline]
    fn upcall_batch(&mut self, core: &mut Core<'_>, messages: &mut Vec<Message>) {
        core.free_all(messages);
    }
}

/// `call`: has the client that made the task run its own `procedure`, with a message's first 8 bytes (little-endian,
/// fewer are filled up with zeros) as the argument; the result goes to the mailbox `to`, where one is named.
struct Call {
    client: ClientKey,
    procedure: u16,
    to: Option<MailboxKey>,
}

fn call(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["procedure", "to"])?;
    let client = setup.client().ok_or("only a client that is attached by shared memory has procedures to be called")?;
    let procedure =
        setup.argument("procedure").ok_or("the argument `procedure` is missing: give a number up to 65535")?;
    let procedure = procedure
        .parse()
        .map_err(|_| format!("`{procedure}` is not a procedure's number: give a number up to 65535"))?;
    Ok(Box::new(Call { client, procedure, to: optional(setup, "to")? }))
}

/// The mailbox that an argument names, if it is there.
fn optional(setup: &TaskSetup<'_>, argument: &str) -> Result<Option<MailboxKey>, String> {
    setup.argument(argument).map(|_| setup.mailbox(argument)).transpose()
}

impl Task for Call {
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        let mut argument = [0; size_of::<u64>()];
        let bytes = message.len().min(argument.len());
        core.read(&message, 0, &mut argument[..bytes]);
        core.call(self.client, self.procedure, u64::from_le_bytes(argument), self.to);
        core.free(message);
    }
}

/// A task that hands each message to a service of the host.
struct Forwarder {
    service: Service,
    to: Option<MailboxKey>,
}

impl Task for Forwarder {
    fn upcall(&mut self, core: &mut Core<'_>, message: Message) {
        core.ask(self.service, &message, self.to);
        core.free(message);
    }
}

/// `log`: each message is a line of the daemon's log.
fn log(setup: &TaskSetup<'_>) -> Made {
    setup.only(&[])?;
    Ok(Box::new(Forwarder { service: Service::Log, to: None }))
}

/// `read_file`: each message is the name of a file below the daemon's configured directory; what is in it goes to the
/// mailbox `to`.
fn read_file(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["to"])?;
    Ok(Box::new(Forwarder { service: Service::ReadFile, to: Some(setup.mailbox("to")?) }))
}

/// `dump`: each message becomes a file of the daemon's configured directory, for a debugger; its name goes to the
/// mailbox `to`, where one is named.
fn dump(setup: &TaskSetup<'_>) -> Made {
    setup.only(&["to"])?;
    Ok(Box::new(Forwarder { service: Service::Dump, to: optional(setup, "to")? }))
}

#[cfg(test)]
mod tests {
    use super::add_up;

    #[test]
    fn bytes_added_up_by_words_give_the_sum_of_each() {
        let bytes: Vec<u8> = (0..100u32).map(|at| (at * 89 + 200) as u8).chain([255; 64]).collect();
        for (from, to) in (0..bytes.len()).flat_map(|from| (from..=bytes.len()).map(move |to| (from, to))) {
            let each: u64 = bytes[from..to].iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(add_up(&bytes[from..to]), each, "{from} to {to}");
        }
    }
}
