//! The library's side: a session between two programs, polled.

use super::sends::{RTT_BYTES, Sends, number};
use crate::cpu::Error;
use crate::process::say;
use crossdock_nectarine::{DeliveryClass, Direct, Error as SessionError, PrivateKey};
use serde_json::json;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long the other side may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The formats of records that are sent back, and of those that are counted.
const ECHOED: u64 = 1;
const COUNTED: u64 = 2;
/// The call that asks how many bytes have arrived.
const ARRIVED: &[u8] = b"arrived";

/// Records of a session.
pub(super) struct Records {
    session: Direct,
    format: u64,
    class: DeliveryClass,
    /// Messages of one way, from the one that was sent first: the session keeps a long one until the other side has it.
    messages: VecDeque<Arc<Vec<u8>>>,
}

/// The keys of the side that answers and of the one that sends: nobody else sees this loopback.
fn keys() -> [PrivateKey; 2] {
    [1, 2].map(|first| PrivateKey::from_random([first; 32]))
}

/// Publishes a record in a class, polling while there is no room for it.
fn publish(session: &mut Direct, record: &[u8], format: u64, class: DeliveryClass) -> Result<(), SessionError> {
    loop {
        let is_taken = match class {
            DeliveryClass::Reliable => session.publish(record, format)?,
            DeliveryClass::Datagram => session.publish_datagram(record, format)?,
        };
        if is_taken {
            return Ok(());
        }
        session.turn()?;
    }
}

impl Records {
    pub(super) fn connect(addr: SocketAddr, is_echoed: bool, class: DeliveryClass) -> Result<Records, Error> {
        Ok(Records::of(Direct::connect(addr, PATIENCE)?, is_echoed, class))
    }

    /// The same in a secure session.
    pub(super) fn connect_secure(addr: SocketAddr, is_echoed: bool, class: DeliveryClass) -> Result<Records, Error> {
        let [listening, dialling] = keys();
        let session = Direct::connect_secure(addr, dialling, listening.public(), PATIENCE)?;
        Ok(Records::of(session, is_echoed, class))
    }

    fn of(session: Direct, is_echoed: bool, class: DeliveryClass) -> Records {
        Records { session, format: if is_echoed { ECHOED } else { COUNTED }, class, messages: VecDeque::new() }
    }

    /// The other side, until this one ends.
    pub(super) fn answer(is_secure: bool) -> Result<(), Error> {
        let (addr, [listening, dialling]) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), keys());
        let mut session = if is_secure {
            Direct::listen_secure(addr, listening, &[dialling.public()])?
        } else {
            Direct::listen(addr)?
        };
        say(&json!({"listen": session.local_addr().to_string()}));
        let mut arrived = 0u64;
        loop {
            match session.turn() {
                Err(SessionError::Closed(_)) => return Ok(()),
                turned => turned?,
            }
            let mut is_answered = false;
            while let Some(records) = session.next_records() {
                if records.format() == ECHOED {
                    for record in records.bytes() {
                        publish(&mut session, record, ECHOED, records.class())?;
                    }
                    is_answered = true;
                } else {
                    arrived += records.fragments().map(|bytes| bytes.len() as u64).sum::<u64>();
                }
            }
            session.serve(|request, reply| {
                is_answered = true;
                match request {
                    ARRIVED => reply.extend(arrived.to_le_bytes()),
                    _ => reply.extend(request),
                }
                Ok(())
            })?;
            if is_answered {
                session.send()?;
            }
        }
    }
}

impl Sends for Records {
    fn round_trip(&mut self, message: &mut [u8]) -> Result<(), Error> {
        publish(&mut self.session, message, self.format, self.class)?;
        self.session.send()?;
        loop {
            self.session.turn()?;
            if let Some(records) = self.session.next_records() {
                let record = records.bytes().next().filter(|record| record.len() == RTT_BYTES);
                message.copy_from_slice(record.ok_or("no record came back")?);
                return Ok(());
            }
        }
    }

    fn send(&mut self, bytes: usize, of: u64) -> Result<(), Error> {
        if self.class != DeliveryClass::Reliable {
            return Err("records that may be lost are measured by their round trips".into());
        }
        // The one that was sent first, unless the session has it still.
        let is_free = |message: &mut Arc<Vec<u8>>| message.len() == bytes && Arc::get_mut(message).is_some();
        if !self.messages.front_mut().is_some_and(is_free) {
            self.messages.push_front(Arc::new(vec![7; bytes]));
        }
        self.messages.rotate_left(1);
        let message = self.messages.back_mut().ok_or("no message")?;
        number(Arc::get_mut(message).ok_or("the session has the message")?, of);
        while !self.session.publish_shared(message, self.format)? {
            self.session.turn()?;
        }
        Ok(())
    }

    fn arrived(mut self: Box<Self>) -> Result<u64, Error> {
        let reply = self.session.call(ARRIVED, PATIENCE)?;
        Ok(u64::from_le_bytes(reply.as_slice().try_into()?))
    }
}

/// Calls of a session.
pub(super) struct Called(pub(super) Records);

impl Sends for Called {
    fn round_trip(&mut self, message: &mut [u8]) -> Result<(), Error> {
        let reply = self.0.session.call(message, PATIENCE)?;
        message.copy_from_slice(reply.get(..message.len()).ok_or("the reply is too short")?);
        Ok(())
    }

    fn send(&mut self, _: usize, _: u64) -> Result<(), Error> {
        Err("calls are measured by their round trips".into())
    }

    fn arrived(self: Box<Self>) -> Result<u64, Error> {
        Err("calls are measured by their round trips".into())
    }
}
