//! Questions of the rest of the daemon to the access rules: whether the control API may do something, what would be decided, and
//! whether the rules fit the daemon.

use super::{Access, Action, Caller, Denial, Identity, Rules};
use crate::catalog::Snapshot;
use crate::handle::{ContextHandle, ExplainError};
use crate::info::{AccessCheckInfo, AccessRuleInfo};
use crate::managers::request::ChangeRequest;
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crossdock_format::Format;
use crossdock_query::{Program, Query, QueryError, Select, SlowPolicy, View};

/// A question about the rules, which nobody has asked for yet.
#[derive(Clone, Debug)]
pub enum Question {
    /// Whether this query may be subscribed to.
    Subscribe(String),
    /// Whether this stream may be published.
    Publish(String),
    /// Whether this mailbox may be used.
    Mailbox(String),
    /// Whether this node hands packets on that take these nodes, itself among them.
    Route(Vec<String>),
}

/// The questions of the rest of the daemon.
impl ContextHandle {
    /// The access rules.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.shared.access
    }

    /// All rules, in the order of the configuration.
    #[must_use]
    pub fn access_rules(&self) -> Vec<AccessRuleInfo> {
        let rules = self.access().rules().map(Rules::all).unwrap_or_default();
        rules.iter().map(AccessRuleInfo::of).collect()
    }

    /// Checks that the rules fit the streams and the keys that there are: each view's stream is known, and has its columns; each
    /// key is authorised, and has one rule.
    ///
    /// # Errors
    /// [`Stopped`]; within, the first rule that does not fit, and why.
    pub fn check_access_rules(&self) -> Result<Result<(), String>, Stopped> {
        // The streams of kept handlers are there only then.
        self.shared.manager.wait_restored()?;
        let snapshot = self.shared.catalog.snapshot()?;
        Ok(self.access().rules().map_or(Ok(()), |rules| {
            self.access().check_keys(rules)?;
            rules.all().iter().try_for_each(|rule| {
                let misfit = |error: QueryError| format!("the rule of {}, `subscribe`: {error}", rule.identity);
                rule.views().try_for_each(|view| check_view(view, &snapshot).map_err(misfit))
            })
        }))
    }

    /// Checks a request of the control API that changes conversions of a stream.
    ///
    /// # Errors
    /// [`Stopped`]; within, that it is refused.
    pub fn admit_conversion(&self, caller: &Caller, stream: &str) -> Result<Result<(), Denial>, Stopped> {
        let meant = self.shared.catalog.snapshot()?.meant(stream).unwrap_or_else(|_| stream.to_owned());
        Ok(self.access().admit(caller, Action::Convert(&meant)).map(drop))
    }

    /// Checks a request of the control API that changes handlers.
    ///
    /// # Errors
    /// [`Stopped`]; within, that it is refused.
    pub fn admit_change(&self, caller: &Caller, change: &ChangeRequest) -> Result<Result<(), Denial>, Stopped> {
        let snapshot = self.shared.catalog.snapshot()?;
        let deployed = match change {
            ChangeRequest::SetParameters { handler, .. } if self.access().rules().is_some() => {
                self.manager().specs()?.into_iter().find(|spec| spec.name == *handler)
            }
            _ => None,
        };
        Ok(self.access().admit_change(caller, (change, deployed.as_ref()), &snapshot))
    }

    /// Decides on an action that nobody has taken: it leaves no trace.
    ///
    /// # Errors
    /// [`Stopped`]; within, that the question has no answer: an invalid query, or an unknown name of a key.
    pub fn check_access(
        &self,
        identity: &Identity,
        question: &Question,
    ) -> Result<Result<AccessCheckInfo, String>, Stopped> {
        let snapshot = self.shared.catalog.snapshot()?;
        let access = self.access();
        Ok(access.caller_of(identity).and_then(|caller| access.answer(&caller, question, &snapshot)))
    }
}

/// Checks that the parts of a query's clauses that read records fit a format.
fn check_clauses(select: &Select, format: &Format) -> Result<(), QueryError> {
    let (policy, rate) = (select.on_slow(), select.max_rate());
    let by = rate.as_ref().and_then(|rate| rate.by.as_ref()).map(|by| &by.select);
    let mut parts = policy.as_ref().and_then(SlowPolicy::reads).into_iter().chain(by);
    parts.try_for_each(|part| part.plan(format).map(drop))
}

/// Checks that a view's stream is known, and has the columns of the view in its newest format.
fn check_view(view: &View, snapshot: &Snapshot) -> Result<(), QueryError> {
    let of_stream = snapshot.find(view.stream()).and_then(|entry| entry.formats().last());
    let of_table = || snapshot.tables().get(view.stream()).map(|shared| &shared.table().format);
    match of_stream.or_else(of_table) {
        Some(format) => view.plan(format).map(drop),
        None => {
            let known: Vec<&str> = snapshot.known_names().collect();
            Err(view.unknown_stream(&known))
        }
    }
}

impl Access {
    /// A query as a caller would have it, to be explained; `accepts`: it names formats that it accepts.
    ///
    /// # Errors
    /// The caller may not subscribe to it, or its stream is not clear.
    pub(crate) fn explained(
        &self,
        caller: &Caller,
        mut select: Select,
        (snapshot, accepts): (&Snapshot, bool),
    ) -> Result<Select, ExplainError> {
        self.find_stream(caller, &mut select, snapshot)?;
        let is_derived = snapshot.find(select.stream()).is_some_and(|entry| entry.made_by().is_some());
        let select = self.view(caller, select, is_derived)?;
        if accepts && select.view().is_some() {
            let message = format!(
                "the access rule for stream `{}` shows some of its rows and fields, and such records are not converted: leave out \
                 the accepted formats",
                select.stream()
            );
            return Err(Denial(message).into());
        }
        Ok(select)
    }

    /// Checks a change of handlers. One that deploys a handler, or sets parameters of a deployed one, has to be allowed to read its
    /// inputs whole, and to publish its output.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn admit_change(
        &self,
        caller: &Caller,
        (change, deployed): (&ChangeRequest, Option<&HandlerSpec>),
        snapshot: &Snapshot,
    ) -> Result<(), Denial> {
        let handler = match change {
            ChangeRequest::Deploy(spec) | ChangeRequest::Swap(spec) => {
                self.admit(caller, Action::Handler(&spec.name))?;
                return self.admit_spec(caller, spec, snapshot);
            }
            ChangeRequest::SetParameters { handler, .. } => {
                self.admit(caller, Action::Handler(handler))?;
                // One that is not there is refused by the managers.
                return deployed.map_or(Ok(()), |spec| self.admit_spec(caller, spec, snapshot));
            }
            ChangeRequest::Move { handler, .. } | ChangeRequest::Remove { handler } => handler,
            ChangeRequest::All(_) | ChangeRequest::Parts(_) => return self.admit(caller, Action::Change).map(drop),
        };
        self.admit(caller, Action::Handler(handler)).map(drop)
    }

    fn admit_spec(&self, caller: &Caller, spec: &HandlerSpec, snapshot: &Snapshot) -> Result<(), Denial> {
        if self.decide(caller, Action::Change).is_ok() {
            return Ok(());
        }
        let mut inputs = spec.input_streams.clone();
        // One that cannot be read is refused by the managers, with its place.
        let found = match spec.sql.as_deref().map(crossdock_query::parse_query) {
            Some(Ok(Query::Select(mut select))) => {
                snapshot.find_stream(&mut select).map(|()| vec![select.stream().to_owned()])
            }
            Some(Ok(Query::Stateful(query))) => query.with_tables(snapshot.tables().known()).and_then(|mut query| {
                snapshot.find_streams(&mut query)?;
                Ok(query.streams().into_iter().chain(query.tables()).map(str::to_owned).collect::<Vec<String>>())
            }),
            Some(Err(_)) | None => Ok(Vec::new()),
        };
        match found {
            Ok(streams) => inputs.extend(streams),
            // It could be any of several streams: only those that may change all may have it refused with their names.
            Err(_) => return self.admit(caller, Action::Change).map(drop),
        }
        for input in inputs {
            let stream = snapshot.meant(&input).unwrap_or(input);
            self.admit(caller, Action::Input(&stream))?;
        }
        self.admit(caller, Action::Publish(spec.derived())).map(drop)
    }

    /// Checks that each rule of a key names an authorised one, and that no two rules are for the same key.
    fn check_keys(&self, rules: &Rules) -> Result<(), String> {
        rules.all().iter().map(|rule| &rule.identity).try_for_each(|identity| {
            let Identity::Key(text) = identity else { return Ok(()) };
            // By its name, if it is no key.
            let Ok(key) = text.parse() else { return self.caller_of(identity).map(drop) };
            let Some(name) = self.keys().name_of(&key).cloned() else {
                return Err(format!("the rule of {identity}: `crossdock keys` lists no such key as authorised"));
            };
            match rules.all().iter().any(|rule| rule.identity == Identity::Key((&*name).into())) {
                true => Err(format!("two rules are for the same key: that of key:{name} and that of {identity}")),
                false => Ok(()),
            }
        })
    }

    fn answer(&self, caller: &Caller, question: &Question, snapshot: &Snapshot) -> Result<AccessCheckInfo, String> {
        let rule = self.rules().and_then(|rules| rules.of(caller)).map(|rule| rule.identity.to_string());
        let info = AccessCheckInfo { caller: caller.to_string(), rule, ..AccessCheckInfo::default() };
        let plain = |action| match self.decide(caller, action) {
            Ok(_) => AccessCheckInfo { allowed: true, ..info.clone() },
            Err(denial) => AccessCheckInfo { refusal: Some(denial.0), ..info.clone() },
        };
        let sql = match question {
            Question::Publish(stream) => return Ok(plain(Action::Publish(stream))),
            Question::Mailbox(mailbox) => return Ok(plain(Action::Mailbox(mailbox))),
            Question::Route(nodes) => return self.answer_route(caller, nodes),
            Question::Subscribe(sql) => sql,
        };
        let mut select = match crossdock_query::parse_query(sql).map_err(|error| error.to_string())? {
            Query::Select(select) => select,
            Query::Stateful(query) => return self.answer_stateful(caller, (query, info), snapshot),
        };
        self.find_stream(caller, &mut select, snapshot).map_err(|error| error.to_string())?;
        let entry = snapshot.find(select.stream());
        let is_derived = entry.is_some_and(|entry| entry.made_by().is_some());
        let granted = match self.decide(caller, Action::Subscribe { stream: select.stream(), is_derived }) {
            Ok(granted) => granted,
            Err(denial) => return Ok(AccessCheckInfo { refusal: Some(denial.0), ..info }),
        };
        let view = granted.and_then(|granted| granted.view);
        let select = match view.cloned() {
            Some(view) => select.through(view),
            None => select,
        };
        // As for a subscription, the newest format has to fit; records of others may be unreadable.
        let newest = entry.and_then(|entry| entry.formats().last());
        let plan = |format| check_clauses(&select, format).and_then(|()| select.plan(format));
        let program = newest.map(plan).transpose();
        Ok(AccessCheckInfo {
            allowed: program.is_ok(),
            view: view.map(|view| view.sql().to_owned()),
            query: program.as_ref().ok().and_then(Option::as_ref).map(Program::to_sql),
            refusal: program.err().map(|error| error.to_string()),
            ..info
        })
    }
}
