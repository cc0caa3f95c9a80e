//! A client for tests: an attachment, and its session as the way to ask for mailboxes, one line of text each way.

use super::LONG;
use crossdock_mailbox::attach::AttachAddr;
use crossdock_mailbox::client::{Attachment, Reader, Wait, Writer};
use crossdock_mailbox::host::Implementation;

/// Waits for what must come.
pub(crate) fn soon() -> Wait {
    Wait::at_most(LONG)
}

/// An attached client.
pub(crate) struct Client {
    pub(crate) attachment: Attachment,
    asks: Writer,
    answers: Reader,
}

impl Client {
    pub(crate) fn attach(address: &AttachAddr) -> Client {
        Client::over(Attachment::connect(address).unwrap())
    }

    pub(crate) fn over(attachment: Attachment) -> Client {
        let (asks, answers) = attachment.session().unwrap();
        Client { attachment, asks, answers }
    }

    /// Asks the core for something; what it says to it, or why it refuses.
    pub(crate) fn ask(&mut self, request: &str) -> Result<String, String> {
        let mut put = self.asks.begin_put(request.len(), soon()).unwrap();
        put.copy_from_slice(request.as_bytes());
        self.asks.end_put(put).unwrap();
        let message = self.answers.begin_get(soon()).unwrap();
        let answer = String::from_utf8(message.to_vec()).unwrap();
        self.answers.end_get(message);
        match answer.split_once(' ') {
            Some(("ok", said)) => Ok(said.to_owned()),
            Some(("no", why)) => Err(why.to_owned()),
            _ => panic!("the core answers `{answer}`"),
        }
    }

    /// Makes a mailbox that goes with this client.
    pub(crate) fn create(&mut self, name: &str, implementation: Implementation, bound: u32) {
        self.ask(&format!("create {name} {} {bound}", implementation.name())).unwrap();
    }

    /// Opens a mailbox to write; also this client's number for that side.
    pub(crate) fn writer(&mut self, name: &str) -> Result<(Writer, u16), String> {
        let (number, port) = self.open("write", name)?;
        Ok((self.attachment.writer(number, port).unwrap(), number))
    }

    /// Opens a mailbox to read; also this client's number for that side.
    pub(crate) fn reader(&mut self, name: &str) -> Result<(Reader, u16), String> {
        let (number, port) = self.open("read", name)?;
        Ok((self.attachment.reader(number, port).unwrap(), number))
    }

    fn open(&mut self, side: &str, name: &str) -> Result<(u16, Option<u16>), String> {
        let opened = self.ask(&format!("{side} {name}"))?;
        let (number, port) = opened.split_once(' ').unwrap();
        Ok((number.parse().unwrap(), port.parse().ok()))
    }

    /// Closes a side without anything left.
    pub(crate) fn close(&mut self, number: u16) {
        self.ask(&format!("close {number}")).unwrap();
    }
}
