//! The access rules at work: a request is checked against them where it is admitted, never a message. A refusal is counted, and is
//! an event.
//!
//! `sessions` checks the requests of sessions, `handle` those of the control API, `stateful` queries that read several streams;
//! `routes` answers questions about source routes.

mod handle;
pub(crate) mod refusals;
mod routes;
mod sessions;
mod stateful;

use crate::catalog::Snapshot;
use crate::config::ContextConfig;
use crate::managers::events::{About, Events};
use crate::managers::state_spec::refused_reader;
use crate::principal::{Bound, Principal};
use crate::refusal::refuse;
use crossdock_query::{QueryError, ReferenceTable, Select};
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::secure::{Authorized, AuthorizedKeys, PublicKey};
use refusals::Refusals;
use routes::Neighbourhood;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crossdock_control::access::{
    Action, Administration, Caller, Denial, Granted, Identity, Pattern, Quotas, Readable, Rule, Rules,
};
pub use handle::Question;

/// Refusals that are reported as events, in one [`WINDOW`]; those beyond are counted. So a caller that tries again and again leaves
/// the other events in their list.
const MOST_EVENTS: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// The rules in force, and the record of what they refused. All parts of a daemon share one.
#[derive(Debug)]
pub struct Access {
    /// None: all that are let in may do everything.
    rules: Option<Arc<Rules>>,
    /// The names of keys, which may change while the daemon runs.
    keys: Mutex<Arc<AuthorizedKeys>>,
    neighbourhood: Neighbourhood,
    refusals: Arc<Refusals>,
    events: Events,
    reported: Mutex<Reported>,
}

/// The events of the latest window.
#[derive(Debug)]
struct Reported {
    since: Instant,
    events: u32,
    /// Refusals without an event since the last one that had one.
    left_out: u64,
}

impl Access {
    pub(crate) fn new(config: &ContextConfig, (refusals, events): (Arc<Refusals>, Events)) -> Access {
        let (rules, neighbourhood) = (config.access.clone(), Neighbourhood::new(config));
        let reported = Mutex::new(Reported { since: crossdock_device::now(), events: 0, left_out: 0 });
        let keys = Mutex::new(Arc::clone(&config.security.authorized));
        Access { rules, keys, neighbourhood, refusals, events, reported }
    }

    /// The rules; none where all that are let in may do everything.
    #[must_use]
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_deref()
    }

    fn keys(&self) -> MutexGuard<'_, Arc<AuthorizedKeys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other keys may connect from now on, or they have other names.
    pub(crate) fn authorize(&self, keys: Arc<AuthorizedKeys>) {
        *self.keys() = keys;
    }

    /// The caller with this origin.
    pub(crate) fn caller(&self, origin: Principal) -> Caller {
        match origin {
            Principal::Key(key) => {
                Caller::Key { key: key.to_string(), name: self.keys().name_of(&key).cloned().unwrap_or_default() }
            }
            Principal::User(uid) => Caller::User(uid),
            Principal::Address(_) => Caller::Unknown,
        }
    }

    /// The caller that would have an identity.
    ///
    /// # Errors
    /// No authorised key has that name.
    pub fn caller_of(&self, identity: &Identity) -> Result<Caller, String> {
        Ok(match identity {
            Identity::Everybody => Caller::Unknown,
            Identity::User(uid) => Caller::User(*uid),
            Identity::Token(name) => Caller::Token((&**name).into()),
            Identity::Key(text) => match text.parse::<PublicKey>() {
                Ok(key) => self.caller(Principal::Key(key)),
                Err(_) => {
                    let keys = Arc::clone(&self.keys());
                    let named =
                        AuthorizedKeys::clone(&keys).into_iter().find(|Authorized { name, .. }| **name == **text);
                    let Authorized { key, name } = named.ok_or_else(|| {
                        format!("no authorised key has the name `{text}`: `crossdock keys` lists them")
                    })?;
                    Caller::Key { key: key.to_string(), name }
                }
            },
        })
    }

    /// Decides on an action, without a trace. `None`: there are no rules, and it is allowed.
    ///
    /// # Errors
    /// It is refused.
    pub fn decide(&self, caller: &Caller, action: Action<'_>) -> Result<Option<Granted<'_>>, Denial> {
        if let Action::Subscribe { stream, .. } | Action::Input(stream) = action
            && let Some(why) = refused_reader(stream)
        {
            return Err(Denial(why));
        }
        self.rules().map(|rules| rules.decide(caller, action)).transpose()
    }

    /// The same for a request: a refusal is counted, and is an event.
    ///
    /// # Errors
    /// It is refused.
    pub fn admit(&self, caller: &Caller, action: Action<'_>) -> Result<Option<Granted<'_>>, Denial> {
        self.decide(caller, action).inspect_err(|denial| self.note(action, denial))
    }

    #[cold]
    fn note(&self, action: Action<'_>, denial: &Denial) {
        self.refused(action.reason(), &denial.0);
    }

    /// Counts a request over HTTP whose token is none of the daemon's, from this address; it is an event too.
    #[cold]
    pub fn note_unknown_token(&self, address: &str) {
        self.refused(
            Action::UNKNOWN_TOKEN,
            &format!("a request from {address} had a token that is none of the daemon's"),
        );
    }

    /// Counts a TLS handshake with the control API that failed.
    pub fn count_failed_handshake(&self) {
        self.refusals.count_failed_handshake();
    }

    /// Counts routed packets that were not handed on; an event too, if that is given. Where they were refused by the rules or for
    /// another reason, is counted at their context.
    #[cold]
    pub(crate) fn refuse_route(&self, event: Option<&str>) {
        match event {
            Some(text) => self.refused(Action::ROUTE, text),
            None => self.refusals.count(Action::ROUTE),
        }
    }

    fn refused(&self, reason: usize, text: &str) {
        self.refusals.count(reason);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if crossdock_device::elapsed(reported.since) >= WINDOW {
            (reported.since, reported.events) = (crossdock_device::now(), 0);
        }
        if reported.events >= MOST_EVENTS {
            reported.left_out += 1;
            return;
        }
        reported.events += 1;
        let left_out = std::mem::take(&mut reported.left_out);
        drop(reported);
        let more =
            if left_out > 0 { format!(" ({left_out} refusals before it are not listed)") } else { String::new() };
        self.events.note("access_refused", About::default(), format!("{text}{more}"));
    }

    /// The known streams that a caller may read.
    pub(crate) fn known_to<'a>(&'a self, caller: &Caller, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a str> {
        let rules = self.rules();
        let rule = rules.and_then(|rules| rules.of(caller));
        let may_read = move |stream: &&str| {
            let is_derived = snapshot.find(stream).is_some_and(|entry| entry.made_by().is_some());
            rules.is_none() || rule.is_some_and(|rule| rule.may_read(stream, is_derived))
        };
        snapshot.known_names().filter(may_read)
    }

    /// The reference tables that a caller may look rows up in: those that the rules would let it read if they were streams.
    pub(crate) fn tables_known_to<'a>(
        &'a self,
        caller: &Caller,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = &'a ReferenceTable> {
        let rules = self.rules();
        let rule = rules.and_then(|rules| rules.of(caller));
        let may_read = move |table: &&ReferenceTable| {
            rules.is_none() || rule.is_some_and(|rule| rule.may_read(&table.name, false))
        };
        snapshot.tables().known().filter(may_read)
    }

    /// Finds the stream that a caller's query means. Where its name is that of no stream, only streams that the caller may read are
    /// compared with it, so that no answer has the name of another.
    ///
    /// # Errors
    /// Several streams differ from the name in case alone.
    pub(crate) fn find_stream(
        &self,
        caller: &Caller,
        select: &mut Select,
        snapshot: &Snapshot,
    ) -> Result<(), QueryError> {
        match snapshot.find(select.stream()) {
            Some(entry) if !entry.formats().is_empty() => Ok(()),
            _ => {
                select.check_no_table(self.tables_known_to(caller, snapshot))?;
                select.find_stream(self.known_to(caller, snapshot))
            }
        }
    }

    /// Gives a query the view of its stream that a caller has.
    ///
    /// # Errors
    /// The caller may not read the stream.
    pub(crate) fn view(&self, caller: &Caller, select: Select, is_derived: bool) -> Result<Select, Denial> {
        let granted = self.admit(caller, Action::Subscribe { stream: select.stream(), is_derived })?;
        Ok(match granted.and_then(|granted| granted.view).cloned() {
            Some(view) => select.through(view),
            None => select,
        })
    }

    /// The quotas in the rule of an origin.
    pub(crate) fn quotas(&self, origin: Principal) -> Quotas {
        let rule = self.rules().and_then(|rules| rules.of(&self.caller(origin)));
        rule.map(|rule| rule.quotas).unwrap_or_default()
    }

    /// A bound on what one origin may have: the quota of its rule, or else the daemon's.
    pub(crate) fn bound(&self, origin: Principal, of: impl Fn(&Quotas) -> Option<u32>, daemons: Bound) -> Bound {
        of(&self.quotas(origin)).map_or(daemons, |quota| daemons.with_quota(quota))
    }
}

/// A denial as sessions are answered.
pub(crate) fn denied(denial: Denial) -> Refusal {
    refuse(RefusalCode::State, denial.0)
}
