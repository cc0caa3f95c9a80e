//! The baseline `iceoryx2`: its publish-subscribe between two processes, polling, one service each way.
//!
//! Its settings are the leanest that it has for one publisher and one subscriber that lose nothing. Each file that it
//! leaves under /dev/shm and in the file system bears a name of this run's own and is cleared away even where a side
//! was killed.

use super::measure::{BATCH, check, fill, round_trips};
use crate::cpu::Error;
use crate::process::say;
use crossdock_device::pin_to_cpu;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{
    BackpressureStrategy, Config, FileName, LogLevel, Node, NodeBuilder, Path, SemanticString, SignalHandlingMode, ipc,
    set_log_level,
};
use serde_json::json;
use std::fs;

const BYTES: usize = 64;
type Message = [u8; BYTES];

/// Every byte of the last message is this; no other message's is.
const END: u8 = u8::MAX;

/// Takes away what a run under this name left.
pub(super) fn clear(name: &str) {
    let _none = fs::remove_dir_all(folder(name));
    let Ok(files) = fs::read_dir("/dev/shm") else { return };
    for file in files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with(name)) {
        let _gone = fs::remove_file(file.path());
    }
}

/// Where a run's files are, other than the shared memory.
fn folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(name)
}

/// One side: what it sends on and what it receives from.
struct Side {
    to: Publisher<ipc::Service, Message, ()>,
    from: Subscriber<ipc::Service, Message, ()>,
    // Last, so that it outlives its ports.
    _node: Node<ipc::Service>,
}

impl Side {
    fn open(name: &str, to: &str, from: &str) -> Result<Side, Error> {
        set_log_level(LogLevel::Error);
        let mut config = Config::default();
        config.global.prefix = FileName::new(name.as_bytes())?;
        config.global.set_root_path(&Path::new(folder(name).to_string_lossy().as_bytes())?);
        let handling = SignalHandlingMode::Disabled;
        let node = NodeBuilder::new().signal_handling_mode(handling).config(&config).create::<ipc::Service>()?;
        let service = |name: &str| -> Result<_, Error> {
            let builder = node.service_builder(&name.try_into()?).publish_subscribe::<Message>();
            let builder = builder.max_publishers(1).max_subscribers(1).max_nodes(2).history_size(0);
            let builder = builder.subscriber_max_buffer_size(2).subscriber_max_borrowed_samples(1);
            Ok(builder.enable_safe_overflow(false).open_or_create()?)
        };
        let wait = BackpressureStrategy::RetryUntilDelivered;
        let to = service(to)?.publisher_builder().max_loaned_samples(1).backpressure_strategy(wait).create()?;
        let from = service(from)?.subscriber_builder().create()?;
        Ok(Side { to, from, _node: node })
    }

    /// Allocates, fills, sends.
    fn put(&self, message: Message) -> Result<(), Error> {
        self.to.loan_uninit()?.write_payload(message).send()?;
        Ok(())
    }

    /// Polls until a message is there.
    fn get<T>(&self, take: impl FnOnce(&Message) -> T) -> Result<T, Error> {
        loop {
            if let Some(message) = self.from.receive()? {
                return Ok(take(message.payload()));
            }
        }
    }
}

/// The echoing side: reads every byte, allocates anew, fills.
pub(super) fn echo(name: &str, cpu: usize) -> Result<(), Error> {
    let side = Side::open(name, "back", "there")?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    loop {
        let message = side.get(|message| *message)?;
        if message == [END; BYTES] {
            return Ok(());
        }
        side.put(message)?;
    }
}

/// The pinging side.
pub(super) fn ping(name: &str, cpu: usize) -> Result<(), Error> {
    let side = Side::open(name, "there", "back")?;
    pin_to_cpu(cpu)?;
    let mut number = 0;
    round_trips(BATCH, || {
        number = (number + 1) % u64::from(END);
        let mut message = [0; BYTES];
        fill(&mut message, number);
        side.put(message)?;
        side.get(|message| check(message, BYTES, number))?
    })?;
    side.put([END; BYTES])
}
