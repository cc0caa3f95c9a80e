//! Nectarine: streams, mailboxes and tasks from a Rust application (the Nectar paper's Nectarine, section 3.5, as a library).
//!
//! **Streams.** A [`Publisher`] sends records of one stream; a [`Subscriber`] receives what its query selects. Both block,
//! both are a session of their own with the daemon, and both come back by themselves when the daemon restarts.
//!
//! **Formats.** A subscriber may say which formats of the stream it accepts ([`SubscriberBuilder::accept`]); the daemon then
//! converts records of others on their way, by conversions that applications register ([`Converter`],
//! [`Publisher::register_conversion`]), and asks for those that are missing.
//!
//! **Mailboxes.** A [`Node`] is a daemon as the place of mailboxes: it creates them and the daemon's built-in tasks, opens them
//! for writing and reading, and finds other nodes by their names. Messages are bytes, filled and read in place.
//!
//! **Procedures.** A program offers a procedure by name ([`Node::serve`]), and programs anywhere call it with a deadline
//! ([`Node::procedure`]). Each call is carried out at most once.
//!
//! **Protocols.** Two programs have a session without a daemon between them ([`Direct`]). Beside records, datagrams and calls it carries
//! messages of their own protocols: each is a number, the template of a header and two hooks ([`Protocol`]). `examples/telemetry` adds one.
//!
//! **The way.** With a daemon on the same machine all this goes by shared memory, and nobody makes a system call while
//! messages flow; with one elsewhere by packets. Both have the same interface, but that a message over packets is one packet, and that
//! syncs, host conditions and calls of a core need shared memory. The address chooses (`host:port`, or `unix:PATH` and
//! `unix:@NAME` for shared memory at a socket of that name), unless [`Transport`] says which way it is to be.
//!
//! **Keys.** Every builder takes this program's private key and the daemon's public one (`keys`): sessions over packets are secure
//! then, as a daemon asks of all that are not on its machine or in a network that it trusts.
//!
//! **Source routes.** Every builder takes a [`NodeRoute`] beside keys: the session is with the last of its nodes, and its packets
//! take the others on their way.
//!
//! **Traces.** Every builder takes a [`Trace`] too: a file in the format of qlog that gets all packets of the session, and the state
//! of its path.
//!
//! The calling thread does the work: it packs, sends and receives itself, so that a message costs no hand-over between
//! threads. One keeper thread for all sessions of the process does what falls due while the application is busy elsewhere: the
//! linger's end; over packets also acknowledgements, retransmissions, and the daemon's questions whether anybody is there. It
//! starts with the first session, and ends 0.1 s after the last.
//!
//! **Values.** Types with serde's `Serialize` and `Deserialize` are published and come back ([`Publisher::send`],
//! [`Subscriber::typed`]), and the stream's format follows from the type ([`PublisherBuilder::typed`]); records without a type are
//! made by a `RecordBuilder`, and read by field.
//!
//! ```no_run
//! use crossdock_nectarine::{Publisher, Subscriber};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Debug)]
//! struct Flight {
//!     origin: String,
//!     delay: i32,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut publisher = Publisher::builder("127.0.0.1:7440").stream("flights").typed::<Flight>().connect()?;
//! let builder = Subscriber::builder("127.0.0.1:7440").sql("SELECT origin, delay FROM flights WHERE delay > 15");
//! let mut subscriber = builder.connect()?;
//! subscriber.on_event(|event| eprintln!("{event:?}")); // whatever is not a record
//!
//! publisher.send(&Flight { origin: "JFK".to_owned(), delay: 42 })?;
//! publisher.finish()?;
//!
//! for record in &mut subscriber {
//!     let record = record?;
//!     println!("{:?} {:?}", record.field("origin"), record.get(1));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Loops.** A loop over a subscriber, over its [batches](Subscriber::batches) or its [values](Subscriber::typed) ends with the
//! stream's last publisher. [`Subscriber::next_event`] gives the events one by one, and [`Subscriber::events`] goes on with the
//! next publisher. With the feature `futures` a subscriber is a `Stream` and a publisher a `Sink`, on any executor;
//! [`Subscriber::descriptor`] is for event loops.
//!
//! A task on the daemon's core that answers, and a program that asks:
//!
//! ```no_run
//! use crossdock_nectarine::{MailboxOptions, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::connect("127.0.0.1:7440")?;
//! node.create_mailbox("requests", MailboxOptions::default())?;
//! node.create_mailbox("replies", MailboxOptions::default())?;
//! node.create_task("echo", "requests", [("to", "replies")])?;
//!
//! let (mut requests, mut replies) = (node.writer("requests")?, node.reader("replies")?);
//! let mut put = requests.begin_put(64)?;
//! put.fill(7);
//! requests.end_put(put)?;
//! let reply = replies.begin_get()?;
//! assert_eq!(*reply, [7; 64]);
//! replies.end_get(reply);
//!
//! // The same on another machine, by its name.
//! let mut orders = node.named("east")?.writer("orders")?;
//! orders.put(b"three crates of apples")?;
//! orders.flush()?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the page's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/publish-subscribe.md")]
struct PublishAndSubscribe;

/// Compiles the page's example.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/mailboxes.md")]
struct Mailboxes;

mod account;
mod carrier;
mod client;
mod conversions;
mod direct;
mod error;
mod incoming;
mod iteration;
mod keeper;
mod link;
mod node;
mod outgoing;
mod owner;
mod packing;
mod ping;
mod post;
mod protocol;
mod publisher;
mod records;
mod route;
mod settings;
mod shared;
mod signal;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "futures")]
mod sinks;
#[cfg(feature = "futures")]
mod streams;
mod subscriber;
mod trace;
mod watch;

pub use client::Interrupter;
pub use conversions::{Converter, ConverterBuilder, ConverterWanted, FormatRef};
pub use crossdock_format::convert::Conversion;
pub use crossdock_mailbox::client::{Attachment, Condition, MailboxError, SyncWord, Wait};
pub use crossdock_mailbox::{ConditionAddress, SyncAddress};
pub use crossdock_transport::control::{Activity, DropCause, Implementation, Overflow, RowErrors, Unreadable};
pub use crossdock_transport::secure::{PrivateKey, PublicKey};
pub use direct::{Direct, DirectRecords};
pub use error::Error;
pub use iteration::{Batches, RecordIter, Typed};
pub use link::awaiting::PublisherEvent;
pub use node::{
    Burst, Call, CallError, MailboxOptions, Message, Messages, Node, NodeBuilder, Procedure, Put, Reader,
    ReaderOptions, RecordSender, Reply, Service, ServiceCounts, Writer, WriterOptions,
};
pub use ping::Pinger;
pub use post::DroppedMessages;
pub use protocol::{
    ArrivedData, DataPlace, HeaderTemplate, MAX_PROTOCOL_HEADER_BYTES, Protocol, ProtocolCounts, StartOfData,
};
#[cfg(feature = "simulation")]
pub use publisher::Announcement;
pub use publisher::{PublishSummary, Publisher, PublisherBuilder};
pub use records::{ReceivedRecord, Records, TakenRecords};
pub use route::NodeRoute;
pub use settings::{DeliveryClass, Transport};
#[cfg(feature = "simulation")]
pub use simulated::SimulatedDevice;
#[cfg(feature = "futures")]
pub use sinks::TypedSink;
#[cfg(feature = "futures")]
pub use streams::{BatchStream, TypedStream};
#[cfg(feature = "simulation")]
pub use subscriber::AskedQuery;
pub use subscriber::{Event, Subscriber, SubscriberBuilder};
pub use trace::Trace;
