//! Packets that a peer sends while one of its requests is with the planner or the catalog: they wait, in order, until
//! the answer is there. So a session's requests take effect in the order in which they were sent, and so do its records.
//!
//! A session over packets can have at most its credit waiting, for data and for control: neither is renewed once a packet
//! of its waits. An attached client's packets stay in its own memory, and it gets no new buffers.

use crate::context::{Context, InWork};
use crate::net::frames::Data;
use crate::net::payload::Deferred;
use crate::net::peers::PeerRef;
use crate::pending::Pending;
use crate::refusal::refuse;
use crossdock_transport::Reply;
use crossdock_transport::control::RefusalCode;

impl Context {
    /// From here on the packets of a peer wait, until this request of its is answered.
    pub(crate) fn pause(&mut self, key: usize, id: u32) -> Option<Pending> {
        let (peer, inbox) = (self.net.pause(key)?, self.inbox.own().clone());
        // The context may have stopped.
        let go_on = move |unanswered| drop(inbox.post(move |context| context.refuse_lost(peer, unanswered)));
        Some(Pending::new(peer, id, go_on))
    }

    /// Answers a request for which a peer was paused, and goes on with what it has sent meanwhile.
    pub(crate) fn answer_with(&mut self, pending: &Pending, reply: Reply) {
        // It may have gone meanwhile.
        if let Some(key) = self.net.still_there(pending.peer()) {
            self.send_control(key, &reply.into());
        }
        self.go_on_unanswered(pending);
    }

    /// Goes on with what a peer has sent since it was paused; its request has been answered, or is later.
    pub(crate) fn go_on_unanswered(&mut self, pending: &Pending) {
        pending.settle();
        if let Some(key) = self.net.still_there(pending.peer()) {
            self.resume(key);
        }
    }

    /// A request was lost before its peer went on, which is a mistake of Crossdock's, or its peer has gone. With the request's
    /// number if it has no answer.
    fn refuse_lost(&mut self, peer: PeerRef, unanswered: Option<u32>) {
        let Some(key) = self.net.still_there(peer) else { return };
        if let Some(id) = unanswered {
            let refusal = refuse(RefusalCode::State, "the request failed because of a bug in the daemon");
            self.send_control(key, &Reply::Refused { id, refusal }.into());
        }
        self.resume(key);
    }

    /// Takes what a peer has sent since it was paused, up to the next request that pauses it.
    pub(crate) fn resume(&mut self, key: usize) {
        if !self.net.unpause(key) {
            return;
        }
        if self.net.note_lagging(key) {
            return self.tick_lagging();
        }
        while let Some(deferred) = self.net.next_deferred_packets(key) {
            match deferred {
                Deferred::Packets { buffer, header, spans, stride } => {
                    self.in_work = Some(InWork::Deferred(key));
                    self.deliver(key, Data { buffer, header, spans: &spans, stride }, 0);
                    self.in_work = None;
                }
                Deferred::End(why) => return self.remove_peer(key, why, None),
            }
        }
        self.grant_credit(key);
        self.net.touch(key);
    }

    /// A session over packets has ended: at once, or behind what waits.
    pub(crate) fn end_session(&mut self, key: usize, why: &'static str) {
        if !self.net.defer_end(key, why) {
            self.remove_peer(key, why, None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crate::config::ContextConfig;
    use crate::handle::ContextHandle;
    use crossdock_format::Format;
    use crossdock_transport::control::RowErrors;
    use crossdock_transport::{ControlMessage, FormatName, HEADER_BYTES, Header, Hello, PacketKind, Request, Welcome};
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::time::Duration;

    /// A client of the daemon's that takes replies.
    struct Client {
        socket: UdpSocket,
        session: u32,
        seq: u64,
        next: u64,
    }

    impl Client {
        fn connect(daemon: SocketAddr, number: u64) -> Client {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.connect(daemon).unwrap();
            // Only a broken build waits so long.
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut client = Client { socket, session: 0, seq: 0, next: 0 };
            let hello = Hello {
                nonce: number,
                session: number as u32,
                packet_bytes: 1472,
                window_bytes: 16 * 1472,
                uses_mailboxes: false,
            };
            client.socket.send(&hello.packet()).unwrap();
            client.session = Welcome::decode(&client.receive(PacketKind::Welcome).1).unwrap().session;
            client
        }

        fn receive(&self, kind: PacketKind) -> (Header, Vec<u8>) {
            let mut packet = [0; 65_536];
            loop {
                let len = self.socket.recv(&mut packet).unwrap();
                let header = Header::read(&packet[..len]).unwrap();
                if header.kind == kind {
                    return (header, packet[HEADER_BYTES..len].to_vec());
                }
            }
        }

        fn send(&mut self, request: Request) {
            let header = Header { seq: self.seq, ..Header::new(PacketKind::Control, self.session) };
            self.seq += 1;
            let payload = ControlMessage::Request(request).encode();
            self.socket.send(&header.packet(&payload).unwrap()).unwrap();
        }

        /// A subscription to a stream of one format that accepts this format only.
        fn subscribe(id: u32) -> Request {
            Request::Subscribe {
                id,
                subscription: 1,
                sql: "SELECT * FROM N".into(),
                overflow: None,
                wait: false,
                accept: vec![FormatName::Version(1)],
                unreadable: None,
                row_errors: RowErrors::default(),
                positions: false,
                one_format: false,
            }
        }

        fn expect_lost(&mut self, id: u32) {
            let lost = self.reply();
            let Reply::Refused { id: refused, refusal } = lost else { panic!("{lost:?}") };
            assert_eq!((refused, refusal.message.as_str()), (id, "the request failed because of a bug in the daemon"));
        }

        /// The answer to a request that was sent behind another one.
        fn expect_next(&mut self, id: u32) {
            let next = self.reply();
            assert!(matches!(next, Reply::Refused { id: next, .. } if next == id), "{next:?}");
        }

        fn reply(&mut self) -> Reply {
            loop {
                let (header, payload) = self.receive(PacketKind::Control);
                // Nothing acknowledges what came before, so it may come again.
                if header.seq < self.next {
                    continue;
                }
                self.next = header.seq + 1;
                match ControlMessage::decode(&payload).unwrap() {
                    ControlMessage::Reply(reply) => return reply,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A panic on the control thread, in a context, or in what waits there for something else.
    #[test]
    fn a_request_that_is_lost_by_a_panic_is_refused_and_its_session_goes_on() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let mut client = Client::connect(daemon.local_addr(), 7);
        let losing: [fn(&mut Context, Pending); 4] = [
            |context, pending| context.ask_catalog(move |_| lose(pending), |_, ()| {}),
            |context, pending| context.ask_catalog(|_| (), move |_, ()| lose(pending)),
            |context, pending| context.plan(|_| (), move |_, _| lose(pending)),
            |context, pending| context.plan(move |_| lose(pending), |_, _| {}),
        ];
        for (id, lose) in (1..).zip(losing) {
            let (inboxes, _) = daemon.inside();
            let begun = inboxes[0].run(move |context| {
                let key = context.net.peers().next().unwrap().0;
                let pending = context.pause(key, id).unwrap();
                lose(context, pending);
            });
            begun.unwrap();
            client.send(Request::CountSubscriptions { id: 100 + id, stream: 1 });
            client.expect_lost(id);
            client.expect_next(100 + id);
        }
        // The control thread goes on as well.
        assert_eq!(daemon.streams().unwrap().len(), 0);
        daemon.stop().unwrap();
    }

    /// Two subscriptions get their routes at once, and the context panics at the second: it is refused, and both sessions go on.
    #[test]
    fn a_subscription_whose_routes_are_lost_by_a_panic_is_refused_and_its_session_goes_on() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let daemon = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let mut clients = [7, 8].map(|number| Client::connect(daemon.local_addr(), number));
        let (inboxes, catalog) = daemon.inside();
        let format = Format::parse_schema("n i64").unwrap();
        let key = catalog.run(move |catalog| catalog.declare("N", &format)).unwrap().unwrap() as usize;
        for _ in 0..2 {
            // As if routes were being planned, so that both are planned next.
            inboxes[0].run(move |context| context.streams.get_mut(key).unwrap().note_planned(true)).unwrap();
            for (before, client) in clients.iter_mut().enumerate() {
                client.send(Client::subscribe(1));
                client.send(Request::CountSubscriptions { id: 100, stream: 1 });
                while inboxes[0].run(|context| context.subscriptions.len()).unwrap() == before {
                    std::thread::yield_now();
                }
            }
            let replan = move |context: &mut Context| {
                context.graph.panic_in_routes(2);
                context.streams.get_mut(key).unwrap().note_planned(false);
                context.replan(key);
            };
            inboxes[0].run(replan).unwrap();
            let [first, second] = &mut clients;
            let stands = first.reply();
            assert!(matches!(stands, Reply::Subscribed { id: 1, .. }), "{stands:?}");
            first.expect_next(100);
            second.expect_lost(1);
            second.expect_next(100);
            // The planner's answer that other requests wait for has come as well.
            inboxes[0].wait_for_routes("N".to_owned()).unwrap();
            for (client, reply) in [(first, "Done"), (second, "Refused")] {
                client.send(Request::Unsubscribe { id: 2, subscription: 1 });
                let ended = client.reply();
                assert!(format!("{ended:?}").starts_with(reply), "{ended:?}");
            }
        }
        daemon.stop().unwrap();
    }

    fn lose(_pending: Pending) {
        panic!("as the test wants");
    }
}
