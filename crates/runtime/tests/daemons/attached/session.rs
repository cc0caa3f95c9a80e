//! An attached client that speaks the session's protocol by hand, and what tests need around it.

use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};
use crossdock_mailbox::client::{Attachment, MailboxError, Message, Reader, Wait, Writer};
use crossdock_runtime::{ContextConfig, ContextHandle};
use crossdock_transport::control::{Implementation, Overflow, Side};
use crossdock_transport::{ControlMessage, HEADER_BYTES, Header, Notice, PacketKind, Reply, Request};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How long a test waits for what must come: only a broken build waits so long.
pub(crate) fn patience() -> Wait {
    Wait::at_most(Duration::from_secs(20))
}

/// A context with little memory, on a free port.
pub(crate) fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.node = "here".to_owned();
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

/// Looks until something is so.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}: not within 20 s");
        std::thread::yield_now();
    }
}

/// number, group (number % 10), name (of growing length)
pub(crate) fn numbers() -> Format {
    Format::natural([
        FieldSpec::new("number", FieldType::U64),
        FieldSpec::new("grp", FieldType::I32),
        FieldSpec::new("name", FieldType::String),
    ])
    .unwrap()
}

/// The records of these numbers, in packets' payloads of at most `bytes` bytes: payload, records.
pub(crate) fn payloads(from: u64, to: u64, bytes: usize) -> Vec<(Vec<u8>, u16)> {
    let format = numbers();
    let mut row = RecordBuilder::new(&format);
    let mut payloads: Vec<(Vec<u8>, u16)> = Vec::new();
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        row.set(2, Value::Text("abcdefghij".repeat(1 + (number % 30) as usize).as_bytes())).unwrap();
        let record = row.finish().unwrap();
        match payloads.last_mut() {
            Some((payload, records)) if payload.len() + record.len() <= bytes => {
                payload.extend_from_slice(record);
                *records += 1;
            }
            _ => payloads.push((record.to_vec(), 1)),
        }
    }
    payloads
}

/// The numbers in a payload of the format `format`, whose first field they are.
pub(crate) fn numbers_in(format: &Format, payload: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    format
        .check_records(payload, |start, len| {
            let record = &payload[start as usize..][..len as usize];
            found.push(match Record::assume_checked(format, record).get(0) {
                Value::Uint(number) => number,
                Value::Int(number) => number as u64,
                other => panic!("{other:?}"),
            });
        })
        .unwrap();
    found
}

/// An arrival over a session.
#[derive(Debug)]
pub(crate) enum Came {
    /// Records of a subscription: its number as the descriptor says it, the header, and the message.
    Data(u32, Header, Message),
    Control(ControlMessage),
}

pub(crate) struct Session {
    pub(crate) attachment: Attachment,
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    id: u32,
    waiting: VecDeque<Came>,
}

impl Session {
    pub(crate) fn attach(context: &ContextHandle) -> Session {
        Session::over(Attachment::connect(context.attach_addr().unwrap()).unwrap())
    }

    pub(crate) fn over(attachment: Attachment) -> Session {
        let (writer, reader) = attachment.session().unwrap();
        Session { attachment, writer, reader, id: 0, waiting: VecDeque::new() }
    }

    /// Sends one packet.
    pub(crate) fn send(&mut self, header: Header, payload: &[u8]) -> Result<(), MailboxError> {
        let mut put = self.writer.begin_put(HEADER_BYTES + payload.len(), patience())?;
        let header = Header { payload_bytes: payload.len() as u16, ..header };
        put[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        put[HEADER_BYTES..].copy_from_slice(payload);
        self.writer.end_put(put)
    }

    /// The next thing that came.
    pub(crate) fn next(&mut self) -> Result<Came, MailboxError> {
        match self.waiting.pop_front() {
            Some(came) => Ok(came),
            None => self.receive(),
        }
    }

    fn receive(&mut self) -> Result<Came, MailboxError> {
        let message = self.reader.begin_get(patience())?;
        let header = Header::read(&message).unwrap();
        let payload = &message[HEADER_BYTES..][..header.payload_bytes.into()];
        match header.kind {
            PacketKind::Control => Ok(Came::Control(ControlMessage::decode(payload).unwrap())),
            PacketKind::Data => Ok(Came::Data(message.label().into(), header, message)),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request, and waits for the answer; what comes before it is kept.
    pub(crate) fn ask(&mut self, request: impl FnOnce(u32) -> Request) -> Result<Reply, MailboxError> {
        self.id += 1;
        let request = ControlMessage::Request(request(self.id));
        self.send(Header::new(PacketKind::Control, 0), &request.encode())?;
        loop {
            match self.receive()? {
                Came::Control(ControlMessage::Reply(reply)) => return Ok(reply),
                other => self.waiting.push_back(other),
            }
        }
    }

    /// As [`Session::ask`], for what must be done.
    pub(crate) fn must(&mut self, request: impl FnOnce(u32) -> Request) {
        let reply = self.ask(request).unwrap();
        assert!(matches!(reply, Reply::Done { .. } | Reply::Announced { .. }), "{reply:?}");
    }

    /// As [`Session::ask`], for what must be refused: the code and the words.
    pub(crate) fn refused(
        &mut self,
        request: impl FnOnce(u32) -> Request,
    ) -> (crossdock_transport::control::RefusalCode, String) {
        match self.ask(request).unwrap() {
            Reply::Refused { refusal, .. } => (refusal.code, refusal.message),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create(&mut self, name: &str, implementation: Implementation) {
        let name = name.to_owned();
        self.must(|id| Request::CreateMailbox { id, name, implementation, bound_messages: None, bound_bytes: None });
    }

    pub(crate) fn task(&mut self, task: &str, mailbox: &str, arguments: &[(&str, &str)]) {
        let arguments: BTreeMap<String, String> =
            arguments.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (task, mailbox) = (task.to_owned(), mailbox.to_owned());
        self.must(|id| Request::CreateTask { id, task, mailbox, arguments });
    }

    fn open(&mut self, name: &str, side: Side) -> (u16, Option<u16>) {
        let name = name.to_owned();
        match self.ask(|id| Request::OpenMailbox { id, name, side, message_bytes: None, ahead: None }).unwrap() {
            Reply::MailboxOpened { number, port, .. } => (number, port),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open_writer(&mut self, name: &str) -> Writer {
        let (number, port) = self.open(name, Side::Write);
        self.attachment.writer(number, port).unwrap()
    }

    /// Opens a mailbox for writing, to be named only as the target of an enqueue.
    pub(crate) fn open_number(&mut self, name: &str) -> u16 {
        self.open(name, Side::Write).0
    }

    pub(crate) fn open_reader(&mut self, name: &str) -> Reader {
        let (number, port) = self.open(name, Side::Read);
        self.attachment.reader(number, port).unwrap()
    }

    pub(crate) fn announce(&mut self, stream: u32, name: &str) {
        let (name, format) = (name.to_owned(), numbers().describe());
        self.must(|id| Request::Announce { id, stream, name, format, publication: None, key: Vec::new() });
    }

    /// Subscribes under `subscription`; the format of what will come.
    pub(crate) fn subscribe(&mut self, subscription: u32, sql: &str, overflow: Option<Overflow>) -> Format {
        let sql = sql.to_owned();
        match self
            .ask(|id| Request::Subscribe {
                id,
                subscription,
                sql,
                overflow,
                wait: false,
                accept: Vec::new(),
                unreadable: None,
                row_errors: Default::default(),
                positions: false,
                one_format: false,
            })
            .unwrap()
        {
            Reply::Subscribed { format, .. } => Format::parse(&format).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Publishes the records of these numbers under `stream`.
    pub(crate) fn publish(&mut self, stream: u32, from: u64, to: u64) -> Result<(), MailboxError> {
        let format = numbers().id().0;
        for (payload, records) in payloads(from, to, 60_000) {
            self.send(Header { stream, format, records, ..Header::new(PacketKind::Data, 0) }, &payload)?;
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, stream: u32) {
        self.must(|id| Request::Finish { id, stream });
    }

    /// All numbers of a subscription up to its stream's end, and how many records were said to be dropped. `from` is
    /// the format of what is sent.
    pub(crate) fn collect(&mut self, subscription: u32, format: &Format) -> (Vec<u64>, u64) {
        let (mut found, mut dropped) = (Vec::new(), 0);
        loop {
            match self.next().unwrap() {
                Came::Data(label, header, message) => {
                    assert_eq!(label, subscription);
                    assert_eq!(header.format, format.id().0);
                    let numbers = numbers_in(format, &message[HEADER_BYTES..][..header.payload_bytes.into()]);
                    assert_eq!(numbers.len(), usize::from(header.records));
                    found.extend(numbers);
                    self.reader.end_get(message);
                }
                Came::Control(ControlMessage::Notice(Notice::StreamEnded { publishers: 0, .. })) => {
                    return (found, dropped);
                }
                Came::Control(ControlMessage::Notice(Notice::StreamEnded { .. })) => {}
                Came::Control(ControlMessage::Notice(Notice::Dropped { records, .. })) => dropped += records,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Puts bytes into a mailbox.
pub(crate) fn put(writer: &mut Writer, bytes: &[u8]) -> Result<(), MailboxError> {
    let mut put = writer.begin_put(bytes.len(), patience())?;
    put.copy_from_slice(bytes);
    writer.end_put(put)
}

/// Gets a message out of a mailbox.
pub(crate) fn get(reader: &mut Reader) -> Vec<u8> {
    let message = reader.begin_get(patience()).unwrap();
    let bytes = message.to_vec();
    reader.end_get(message);
    bytes
}
