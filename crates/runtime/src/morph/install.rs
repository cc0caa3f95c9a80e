//! Has the routes to a stream's subscriptions planned, and takes them in between two batches.

use crate::announcing::Plans;
use crate::config::MorphConfig;
use crate::context::Context;
use crate::egress::Sessions;
use crate::graph::Graph;
use crate::graph::node::Take;
use crate::morph::routes::{Accepting, Finder, RoutePlan, RouteRequest, Routed};
use crate::morph::{Accept, Morph, Route};
use crate::pending::Pending;
use crate::planner::Panicked;
use crate::refusal::refuse;
use crate::streams::Streams;
use crate::subscriptions::{Planned, Subscription, Subscriptions};
use crossdock_format::Format;
use crossdock_transport::control::{RefusalCode, Unreadable};
use crossdock_transport::{ControlMessage, Notice, Reply};
use std::sync::Arc;

impl Streams {
    /// The basis for planning a stream's routes, if they are not planned for the current conversions and formats.
    pub(crate) fn route_request(
        &self,
        stream_key: usize,
        subscriptions: &Subscriptions,
        (morph, config): (&Morph, &MorphConfig),
    ) -> Option<RouteRequest> {
        let stream = self.get(stream_key).filter(|stream| stream.needs_routes())?;
        let accepting = |key: &usize| {
            let subscription = subscriptions.get(*key)?;
            Some(accepting(*key, subscription, subscription.accept()?))
        };
        let morphing = stream.morphing();
        Some(RouteRequest {
            snapshot: Arc::clone(self.snapshot()),
            stream: stream.name().to_owned(),
            finder: Finder {
                conversions: Arc::clone(stream.entry().conversions()),
                versions: stream.entry().formats().to_vec(),
                by_name: config.by_name,
                plans: Arc::clone(&morphing.by_name),
            },
            between: Arc::clone(&morph.between),
            subscriptions: stream.subscriptions().iter().filter_map(accepting).collect(),
            chains: morphing.chains.clone(),
            chains_made: morphing.chains_made,
            changes: morphing.changes,
        })
    }

    /// Whether a stream needs routes, or one of its subscriptions does, although none are being planned.
    fn has_lost_routes(&self, stream_key: usize, subscriptions: &Subscriptions) -> bool {
        let Some(stream) = self.get(stream_key).filter(|stream| !stream.needs_no_routes()) else {
            return false;
        };
        let waits = |key: &usize| subscriptions.accept(*key).is_some_and(|accept| accept.unrouted.is_some());
        stream.needs_routes() || stream.subscriptions().iter().any(waits)
    }
}

impl Sessions<'_> {
    /// A subscription has its routes, and stands if its query is planned for a format that it accepts. The request that has
    /// waited for that, if one has; it is answered now, or with a format.
    fn confirm_routed(&mut self, key: usize, streams: &Streams, graph: &Graph) -> Option<Pending> {
        let pending = self.subscriptions.accept(key)?.unrouted.clone()?;
        let subscription = self.subscriptions.present(key)?;
        let (peer, number) = (subscription.peer(), subscription.number());
        if !subscription.awaits_format() {
            self.confirm((peer, pending.id(), number), streams, graph);
        }
        pending.note_answered();
        self.subscriptions.accept_mut(key)?.unrouted.take()
    }
}

impl Context {
    /// The subscriptions of a stream that accept certain formats only have changed, so their routes are planned anew.
    pub(crate) fn replan(&mut self, stream_key: usize) {
        if let Some(stream) = self.streams.get_mut(stream_key) {
            stream.morphing_mut().changes += 1;
            self.take_formats(stream_key, Plans::default());
        }
    }

    /// Takes in routes, unless the conversions have changed since they were planned. Each record that can be read from
    /// here on, leaves.
    pub(crate) fn install_routes(&mut self, stream_key: usize, plan: RoutePlan) {
        let RoutePlan { conversions, formats, changes, subscriptions, chains, chains_made, mut stock } = plan;
        // It may have gone while they were planned.
        let Some(stream) = self.streams.get_mut(stream_key) else { return };
        stream.morphing_mut().chains_made = chains_made;
        if !Arc::ptr_eq(&conversions, stream.entry().conversions()) {
            return;
        }
        stream.morphing_mut().add_chains(&chains);
        let mut confirmed = Vec::new();
        self.graph.begin_routes();
        for Routed { key, id, new, chosen, narrowed, routes } in subscriptions {
            let is_there = |context: &Context| context.subscriptions.get(key).is_some_and(|there| there.id() == id);
            for (format, planned) in new {
                if is_there(self) {
                    confirmed.extend(self.take_accepted_format(key, format, planned));
                }
            }
            // It may have ended while they were planned, or just now.
            let Some(subscription) = self.subscriptions.get_mut(key).filter(|there| there.id() == id) else { continue };
            let is_same = narrowed.is_none();
            narrowed.into_iter().for_each(|narrowed| subscription.set_narrowed(narrowed));
            let accept = subscription.accept_mut();
            debug_assert!(accept.is_some(), "routes are planned to subscriptions that say what they accept");
            let Some(accept) = accept else { continue };
            accept.targets.extend(chosen);
            if is_same && accept.unrouted.is_none() && accept.routes == routes {
                continue;
            }
            let unreadable = accept.unreadable;
            self.subscriptions.update_node(key, &mut self.graph);
            let takes = routes.iter().map(|(format, route)| (*format, take(*route, unreadable))).collect();
            self.graph.route(key, takes, &mut stock);
            if let Some(accept) = self.subscriptions.accept_mut(key) {
                // Not before: a panic there leaves it to the next plan.
                accept.routes = routes;
            }
            self.note_readable(key);
            let (mut sessions, streams, graph) = self.sessions();
            confirmed.extend(sessions.confirm_routed(key, streams, graph));
        }
        if let Some(stream) = self.streams.get_mut(stream_key) {
            let morphing = stream.morphing_mut();
            (morphing.conversions, morphing.formats, morphing.routed) = (conversions, formats, changes);
            // The old ones go with this turn: nodes have handlers of their own.
            (morphing.chains, morphing.is_retried) = (chains, false);
        }
        let (peers, here) = ((&mut self.net, &mut self.host), (&self.inbox, self.place));
        self.streams.note_wanted(stream_key, &self.subscriptions, peers, here);
        self.graph.check_publishers(stream_key as u32);
        // With what they have sent meanwhile.
        confirmed.into_iter().for_each(|pending| self.go_on_unanswered(&pending));
    }

    /// After a panic, which may have taken routes that were about to be installed, or left some of them to be: they are planned once
    /// more, and given up if there is a panic again before all of them are installed. Others that wait for formats go on. It is done
    /// for the streams from one key on.
    pub(crate) fn resume_planning(&mut self, from: usize) {
        let idle = self.streams.keyed().filter(|(key, stream)| *key >= from && !stream.is_planned());
        for stream_key in idle.map(|(key, _)| key).collect::<Vec<usize>>() {
            self.resuming = Some(stream_key);
            #[cfg(test)]
            self.graph.panic_in_resuming_if_wanted();
            self.resume_routes(stream_key);
        }
        self.resuming = None;
    }

    fn resume_routes(&mut self, stream_key: usize) {
        if !self.streams.has_lost_routes(stream_key, &self.subscriptions) {
            return self.take_formats(stream_key, Plans::default());
        }
        let Some(stream) = self.streams.present_mut(stream_key) else { return };
        if std::mem::replace(&mut stream.morphing_mut().is_retried, true) {
            self.give_up_routes(stream_key, Panicked);
            self.take_formats(stream_key, Plans::default());
        } else {
            self.replan(stream_key);
        }
    }

    /// The planning or the installation of a stream's routes has panicked, which is a flaw in it: they stay unchanged, and
    /// subscriptions without any are refused.
    pub(crate) fn give_up_routes(&mut self, stream_key: usize, panicked: Panicked) {
        // It may have gone while they were planned.
        let Some(stream) = self.streams.get_mut(stream_key) else { return };
        stream.adopt_routes();
        for key in stream.subscriptions().to_vec() {
            let Some(subscription) = self.subscriptions.present_mut(key) else { continue };
            // It takes all formats, or has routes.
            let Some(pending) = subscription.accept_mut().and_then(|accept| accept.unrouted.take()) else {
                continue;
            };
            self.remove_subscription(key);
            self.answer(&pending, Err(refuse(RefusalCode::Query, panicked.to_string())));
        }
    }

    /// A subscription's query was planned for a format that it accepts and that has come to be known. The request that has
    /// waited for its routes, if it is refused.
    fn take_accepted_format(&mut self, key: usize, format: Format, planned: Planned) -> Option<Pending> {
        let subscription = self.subscriptions.present_mut(key)?;
        let (peer, number) = (subscription.peer(), subscription.number());
        let (planned, awaiting) = subscription.take_planned(planned);
        let is_unrouted = subscription.accept().is_some_and(|accept| accept.unrouted.is_some());
        self.subscriptions.update_node(key, &mut self.graph);
        let message: ControlMessage = match (planned, awaiting) {
            (Ok(output), awaiting) => {
                let accept = self.subscriptions.accept_mut(key)?;
                accept.targets.extend((!accept.is_open).then_some(format));
                match awaiting {
                    // It is answered when it has its routes.
                    _ if is_unrouted => return None,
                    Some(id) => {
                        let (mut sessions, streams, graph) = self.sessions();
                        sessions.confirm((peer, id, number), streams, graph);
                        return None;
                    }
                    None => Notice::Format { subscription: number, format: output.describe() }.into(),
                }
            }
            (Err(error), Some(id)) => {
                let unrouted = self.subscriptions.accept_mut(key).and_then(|accept| accept.unrouted.take());
                self.remove_subscription(key);
                let refusal = refuse(RefusalCode::Query, error.to_string());
                self.send_control(peer, &Reply::Refused { id, refusal }.into());
                unrouted.iter().for_each(Pending::note_answered);
                return unrouted;
            }
            (Err(error), None) => Notice::Unreadable { subscription: number, message: error.to_string() }.into(),
        };
        self.send_control(peer, &message);
        None
    }
}

fn accepting(key: usize, subscription: &Subscription, accept: &Accept) -> Accepting {
    let target = |format: &Format| (format.clone(), subscription.reads(format));
    Accepting {
        key,
        id: subscription.id(),
        select: Arc::clone(subscription.select()),
        names: Arc::clone(&accept.names),
        targets: accept.targets.iter().map(target).collect(),
        entries: subscription.formats().collect(),
        open_to: accept.is_open.then(|| subscription.fitting().collect()),
        narrowed: subscription.narrowed().collect(),
        routes: accept.routes.clone(),
    }
}

/// How a session takes a format that has this route to it.
fn take(route: Route, unreadable: Unreadable) -> Take {
    match route {
        Route::Direct => Take::Direct,
        Route::Convert(chain) => Take::Convert(chain),
        Route::Unreachable if unreadable == Unreadable::Drop => Take::Refuse,
        Route::Unreachable => Take::Hold,
    }
}
