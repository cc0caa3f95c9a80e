//! Queries with state, which may read several streams and reference tables: a caller has to be allowed to read each, and sees of each
//! what its rule shows.

use super::{Access, Action, Caller};
use crate::catalog::Snapshot;
use crate::handle::ExplainError;
use crate::info::AccessCheckInfo;
use crate::managers::estimated::PlannedQuery;
use crate::managers::request::SharedQuery;
use crate::tables::described;
use crossdock_format::Format;
use crossdock_query::{PlanOperator, StatefulProgram, StatefulQuery, reduction};
use std::collections::BTreeMap;

/// The streams that a query reads, and the reference tables that it looks rows up in: the rules treat them alike.
fn read_by(query: &StatefulQuery) -> Vec<String> {
    query.streams().into_iter().chain(query.tables()).map(str::to_owned).collect()
}

/// The reductions that may run apart from a query, in front of its streams.
fn cuts(query: &StatefulQuery, program: &StatefulProgram, formats: &[(&str, &Format)]) -> String {
    let cut = |(stream, format): &(&str, &Format)| {
        let has_view = query.view(stream).is_some();
        let readers = query.readers(program, stream, format, &BTreeMap::new()).ok().filter(|_| !has_view)?;
        let reduced = reduction(&readers)?;
        let step = |of: &PlanOperator| format!("{} {}", of.kind.word(), of.text);
        let steps: Vec<String> = reduced.operators().iter().rev().map(step).collect();
        let bytes = |of: &Format| of.fixed_bytes();
        let narrower = format!("{} of {} fixed bytes", bytes(&reduced.output), bytes(format));
        Some(format!("cut      may run apart: {}; {narrower}\n", steps.join(", ")))
    };
    formats.iter().filter_map(cut).collect()
}

impl Access {
    /// Finds the streams that a caller's query with state means, as [`Access::find_stream`] does, and has it see of each what the caller may.
    ///
    /// # Errors
    /// The caller may not read one of them, or it is not clear which is meant.
    pub(crate) fn found_for(
        &self,
        caller: &Caller,
        query: StatefulQuery,
        snapshot: &Snapshot,
    ) -> Result<StatefulQuery, ExplainError> {
        let mut query = query.with_tables(self.tables_known_to(caller, snapshot))?;
        let has_formats = |stream: &&str| snapshot.find(stream).is_some_and(|entry| !entry.formats().is_empty());
        let named: Vec<String> = query.streams().into_iter().filter(has_formats).map(str::to_owned).collect();
        let known: Vec<&str> = self.known_to(caller, snapshot).chain(named.iter().map(String::as_str)).collect();
        query.find_streams(known.iter().copied())?;
        for stream in read_by(&query) {
            let is_derived = snapshot.find(&stream).is_some_and(|entry| entry.made_by().is_some());
            let granted = self.admit(caller, Action::Subscribe { stream: &stream, is_derived })?;
            if let Some(view) = granted.and_then(|granted| granted.view) {
                query = query.through(&stream, view.clone());
            }
        }
        Ok(query)
    }

    /// The plan of a query with state for the newest formats of its streams, whose place and cost the managers know; a caller's query has
    /// the views that the rules leave it.
    ///
    /// # Errors
    /// The caller may not subscribe to it; a stream has no format yet, or the query does not fit.
    pub(crate) fn explain_stateful(
        &self,
        caller: Option<&Caller>,
        mut query: StatefulQuery,
        snapshot: &Snapshot,
    ) -> Result<PlannedQuery, ExplainError> {
        match caller {
            Some(caller) => query = self.found_for(caller, query, snapshot)?,
            None => {
                query = query.with_tables(snapshot.tables().known())?;
                snapshot.find_streams(&mut query)?;
            }
        }
        let streams: Vec<String> = query.streams().into_iter().map(str::to_owned).collect();
        let Some(formats) = snapshot.newest_formats(&streams) else {
            let known: Vec<&str> = match caller {
                Some(caller) => self.known_to(caller, snapshot).collect(),
                None => snapshot.known_names().collect(),
            };
            let has_none = |stream: &&String| snapshot.find(stream).is_none_or(|entry| entry.formats().is_empty());
            let stream = streams.iter().find(has_none).map_or("", String::as_str);
            return Err(query.unknown_stream(stream, &known).into());
        };
        let program = query.plan(&formats, &BTreeMap::new())?;
        let ids: Vec<String> = formats.iter().map(|(_, format)| format.id().to_string()).collect();
        Ok(PlannedQuery {
            formats: ids.join(", "),
            plan: program.to_string()
                + &described(snapshot.tables(), &program.tables())
                + &cuts(&query, &program, &formats),
            output: program.output().describe(),
            query: SharedQuery::of(&query, &streams, false),
        })
    }

    /// Whether a caller may subscribe to a query with state: to each of its streams.
    pub(super) fn answer_stateful(
        &self,
        caller: &Caller,
        (query, info): (StatefulQuery, AccessCheckInfo),
        snapshot: &Snapshot,
    ) -> Result<AccessCheckInfo, String> {
        let query = query.with_tables(self.tables_known_to(caller, snapshot));
        let mut query = query.map_err(|error| error.to_string())?;
        let known: Vec<&str> = self.known_to(caller, snapshot).collect();
        query.find_streams(known.iter().copied()).map_err(|error| error.to_string())?;
        let streams: Vec<String> = query.streams().into_iter().map(str::to_owned).collect();
        let (mut views, all) = (Vec::new(), read_by(&query));
        for stream in &all {
            let is_derived = snapshot.find(stream).is_some_and(|entry| entry.made_by().is_some());
            match self.decide(caller, Action::Subscribe { stream, is_derived }) {
                Ok(granted) => {
                    views.extend(granted.and_then(|granted| granted.view).map(|view| (stream, view.clone())));
                }
                Err(denial) => return Ok(AccessCheckInfo { refusal: Some(denial.0), ..info }),
            }
        }
        let texts: Vec<&str> = views.iter().map(|(_, view)| view.sql()).collect();
        let view = (!texts.is_empty()).then(|| texts.join("; "));
        let query = views.iter().fold(query, |query, (stream, view)| query.through(stream, view.clone()));
        let plan = snapshot.newest_formats(&streams).map(|formats| query.plan(&formats, &BTreeMap::new())).transpose();
        Ok(AccessCheckInfo {
            allowed: plan.is_ok(),
            view,
            query: plan.as_ref().ok().and_then(Option::as_ref).map(ToString::to_string),
            refusal: plan.err().map(|error| error.to_string()),
            ..info
        })
    }
}
