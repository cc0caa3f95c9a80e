//! The handler manager's records: the deployed handlers, their versions, and their entry for each format that they
//! read.

use crate::config::ContextKind;
use crate::graph::ContextIndex;
use crate::graph::NodeId;
use crate::graph::gauges::NodeGauges;
use crate::managers::measure::{CostModel, Facts, Job};
use crate::managers::row_error_events::RowErrorEvents;
use crate::managers::rule_costs::RuleCosts;
use crate::managers::sampling_events::SamplingEvents;
use crate::managers::spec::{HandlerSpec, OnRowError};
use crate::managers::state_spec::{StateSpec, refused_reader};
use crate::managers::tables::GivenTables;
use crate::names::meant;
use crate::streams::StreamFacts;
use crossdock_control::admission::{Class, Need};
use crossdock_control::load::{Cost, Flow, Load};
use crossdock_control::work::{AtWork, Worked};
use crossdock_engine::{Handler, HandlerForm, HandlerProgram, HandlerSource, Natives, Parameters, QueryPart, Tables};
use crossdock_format::Format;
use crossdock_query::PlanOperator;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A stream as handlers see it: published, or made by one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownStream {
    /// Its number, which batches carry.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its formats, newest last, each with some of its records.
    pub(crate) formats: Vec<(Format, Arc<[u8]>)>,
    /// The most records a second that it brings, as far as that is known.
    pub(crate) peak_msgs_per_s: u64,
    /// The same of what is published or made at an I/O context, by the context's name, where that is known.
    pub(crate) peaks: BTreeMap<String, u64>,
    pub(crate) records_per_batch: f64,
    pub(crate) bytes_per_record: f64,
    pub(crate) made_by: Option<String>,
    pub(crate) publishers: u32,
    /// The I/O context where most of it is published.
    pub(crate) busiest: Option<ContextIndex>,
}

impl From<StreamFacts> for KnownStream {
    fn from(facts: StreamFacts) -> KnownStream {
        let records = facts.records_in.max(1) as f64;
        let busiest = facts.busiest();
        KnownStream {
            busiest,
            number: facts.number,
            name: facts.name,
            formats: facts.formats,
            peak_msgs_per_s: facts.peak_msgs_per_s,
            peaks: BTreeMap::new(),
            records_per_batch: (records / facts.batches_in.max(1) as f64).max(1.0),
            bytes_per_record: facts.bytes_in as f64 / records,
            made_by: facts.made_by,
            publishers: facts.publishers,
        }
    }
}

impl KnownStream {
    /// The most records a second that it brings to a handler: to a replica what its own context does, if that is known.
    fn peak_for(&self, spec: &HandlerSpec) -> u64 {
        let place = spec.place.as_ref().filter(|_| spec.replicas);
        place.and_then(|place| self.peaks.get(place)).copied().unwrap_or(self.peak_msgs_per_s)
    }
}

/// The format of each stream of a query with state that decided which rows it makes: the newest, when it was compiled.
pub(crate) type Decided = Arc<[(String, Format)]>;

/// The formats that decide the rows of a query with state: none yet, where a stream has no format.
pub(crate) fn decided<'a>(streams: impl Iterator<Item = &'a KnownStream>) -> Option<Decided> {
    let newest = |stream: &KnownStream| Some((stream.name.clone(), stream.formats.last()?.0.clone()));
    streams.map(newest).collect::<Option<Vec<_>>>().map(Decided::from)
}

/// The names of those streams that have no format yet.
pub(crate) fn awaited<'a>(streams: impl Iterator<Item = &'a KnownStream>) -> Vec<String> {
    streams.filter(|stream| stream.formats.is_empty()).map(|stream| stream.name.clone()).collect()
}

/// A handler's entry for one format of one of its streams.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) stream: String,
    /// For a query with state, which does something else with the records of each of its streams: the formats that decided its rows.
    /// The entry is for the records of its stream only then.
    pub(crate) decided: Option<Decided>,
    pub(crate) input: Format,
    /// The format that it makes; none where its program does not fit the format.
    pub(crate) output: Option<Format>,
    pub(crate) form: Option<HandlerForm>,
    /// Why it does not fit.
    pub(crate) why: Option<String>,
    /// Its estimate.
    pub(crate) cost: Cost,
    pub(crate) parameters: Option<Parameters>,
    pub(crate) state: Option<String>,
    /// Records that it makes of the sample that it was measured on.
    pub(crate) made: Vec<u8>,
}

impl Entry {
    /// Whether it is for this format of a stream.
    pub(crate) fn is_for(&self, stream: &str, format: &Format) -> bool {
        self.input == *format && (self.decided.is_none() || self.stream == stream)
    }

    /// The stream whose records its instance takes, by number, and their format; a handler reads these streams.
    pub(crate) fn place(&self, reads: &[(String, u32)]) -> (Option<u32>, u64) {
        let number = reads.iter().find(|(name, _)| *name == self.stream).map(|(_, number)| *number);
        (number.filter(|_| self.decided.is_some()), self.input.id().0)
    }

    /// One for a format that its program does not fit.
    pub(crate) fn unfit(stream: &KnownStream, format: &Format, why: String) -> Entry {
        Entry {
            stream: stream.name.clone(),
            decided: None,
            input: format.clone(),
            output: None,
            form: None,
            why: Some(why),
            cost: Cost::default(),
            parameters: None,
            state: None,
            made: Vec::new(),
        }
    }
}

/// A handler compiled for one format.
pub(crate) struct CompiledEntry {
    pub(crate) entry: Entry,
    pub(crate) is_metered: bool,
}

/// A handler compiled for all formats that its streams have now.
pub(crate) struct Compiled {
    pub(crate) entries: Vec<Entry>,
    /// Of the entries, in their order; none where the program does not fit. They are there once the plan is made.
    pub(crate) handlers: Vec<Option<Box<dyn Handler>>>,
    pub(crate) is_metered: bool,
    /// The streams that have no format yet.
    pub(crate) awaits: Vec<String>,
}

impl Compiled {
    /// The formats that it makes, each once, in the order of the inputs.
    pub(crate) fn outputs(&self) -> Vec<Format> {
        outputs(&self.entries)
    }
}

/// The formats that entries make, each once.
pub(crate) fn outputs(entries: &[Entry]) -> Vec<Format> {
    let mut outputs: Vec<Format> = Vec::new();
    for output in entries.iter().filter_map(|entry| entry.output.as_ref()) {
        if !outputs.contains(output) {
            outputs.push(output.clone());
        }
    }
    outputs
}

/// The load of entries with these costs. The most expensive format of a stream is counted with the stream's whole rate,
/// since the rate of each format is not known.
pub(crate) fn need_of<'a>(
    entries: impl Iterator<Item = (&'a Entry, &'a Cost)>,
    spec: &HandlerSpec,
    streams: &BTreeMap<String, KnownStream>,
    is_metered: bool,
) -> Need {
    let dearest = dearest(entries);
    let shares = dearest.len().max(1) as u64;
    let mut need: Option<Need> = None;
    for (name, (_, cost)) in dearest {
        let seen = streams.get(name).map_or(0, |stream| stream.peak_for(spec));
        let rate = spec.peak_msgs_per_s.map_or(seen, |declared| declared / shares);
        let of_stream = Need::of(cost, rate);
        need = Some(need.map_or(of_stream, |sum| sum.and(of_stream)));
    }
    let mut need = need.unwrap_or(Need {
        load: Default::default(),
        reserve: Default::default(),
        rate_msgs_per_s: 0,
        step_ns: 0,
        class: Class::Communication,
        is_metered,
        is_provisional: true,
    });
    need.is_metered = is_metered;
    need.reserve = spec.reserve();
    need
}

/// The entry with the highest cost, and that, for each stream that entries read.
pub(crate) fn dearest<'a>(
    entries: impl Iterator<Item = (&'a Entry, &'a Cost)>,
) -> BTreeMap<&'a str, (&'a Entry, &'a Cost)> {
    let mut dearest: BTreeMap<&str, (&Entry, &Cost)> = BTreeMap::new();
    for (entry, cost) in entries.filter(|(entry, _)| entry.output.is_some()) {
        let known = dearest.entry(entry.stream.as_str()).or_insert((entry, cost));
        if cost.ns_per_message > known.1.ns_per_message {
            *known = (entry, cost);
        }
    }
    dearest
}

/// The output of entries with these costs at the rates that their load is computed for.
pub(crate) fn leaving(entries: &[Entry], costs: &[Cost], need: &Need) -> Flow {
    let made = entries.iter().zip(costs).filter(|(entry, _)| entry.output.is_some());
    let flows = made.map(|(_, cost)| cost.leaving(need.rate_msgs_per_s));
    flows.max_by_key(|flow| flow.bytes_per_s).unwrap_or_default()
}

/// The estimates of entries, each with its part of the messages: what is known of that are the rates of streams.
pub(crate) fn estimates(entries: &[Entry], streams: &BTreeMap<String, KnownStream>) -> Vec<(Cost, f64)> {
    let fits = |entry: &&Entry| entry.output.is_some();
    let part = |entry: &Entry| {
        let of_stream = entries.iter().filter(fits).filter(|other| other.stream == entry.stream).count();
        let rate = streams.get(&entry.stream).map_or(0, |stream| stream.peak_msgs_per_s);
        if fits(&entry) { rate as f64 / of_stream.max(1) as f64 } else { 0.0 }
    };
    entries.iter().map(|entry| (entry.cost, part(entry))).collect()
}

/// The highest of the entries' costs for a record, in ns.
pub(crate) fn dearest_ns(entries: &[Entry], costs: &[Cost]) -> f64 {
    let fitting = entries.iter().zip(costs).filter(|(entry, _)| entry.output.is_some());
    fitting.map(|(_, cost)| cost.ns_of_message().max(cost.tail_ns_per_message)).fold(0.0, f64::max)
}

/// The costs of entries before they have worked: their estimates with a margin.
pub(crate) fn with_margin(entries: &[Entry]) -> Vec<Cost> {
    entries.iter().map(|entry| entry.cost.with_margin()).collect()
}

/// The program of a specification's handler.
pub(crate) fn program(spec: &HandlerSpec) -> Result<HandlerProgram, String> {
    let source = match (&spec.sql, &spec.native) {
        (None, None) if spec.state.is_some() => match (&spec.state, &spec.input_streams[..]) {
            (Some(state), [stream]) => HandlerSource::State(state.of(stream)),
            _ => return Err("a state is of one stream".to_owned()),
        },
        (Some(sql), None) => HandlerSource::Sql(sql.clone()),
        (None, Some(native)) => HandlerSource::Native(native.clone()),
        _ => return Err("give either `sql` or `native`".to_owned()),
    };
    let null_for_errors = spec.on_row_error == OnRowError::Null;
    let (parameters, subscription_views) = (spec.parameters.clone(), spec.subscription_views.clone());
    Ok(HandlerProgram { source, parameters, null_for_errors, subscription_views, part: spec.part.clone() })
}

/// The streams that a specification's handler reads: those that are known.
pub(crate) fn reads<'a>(
    spec: &HandlerSpec,
    natives: &Natives,
    known: impl Iterator<Item = &'a str>,
) -> Result<Vec<String>, String> {
    let program = program(spec)?;
    program.check(natives).map_err(|error| error.to_string())?;
    let known: Vec<&str> = known.collect();
    let mut tables = natives.tables().known().filter(|_| spec.subscription_views.is_none());
    if let Some(table) = tables.find(|table| spec.input_streams.iter().any(|name| table.is_called(name))) {
        return Err(format!("`{}` is a reference table, and no stream: leave it out of `input_streams`", table.name));
    }
    let spelt = |name: &String| match &spec.subscription_views {
        // The access rules have decided on exactly these names: another spelling may be a stream that its subscriber may not read.
        Some(_) => Ok(name.clone()),
        None => meant(name, known.iter().copied()).map(str::to_owned),
    };
    let mut reads = spec.input_streams.iter().map(spelt).collect::<Result<Vec<String>, String>>()?;
    if program.is_stateful() && !reads.is_empty() {
        let named = program
            .reads_among(reads.iter().map(String::as_str), natives.tables())
            .map_err(|error| error.to_string())?;
        if let Some(other) = named.iter().find(|name| !reads.contains(name)) {
            return Err(format!("its query names stream `{other}`, which `input_streams` does not: leave that out"));
        }
        reads.retain(|name| named.contains(name));
    }
    if reads.is_empty() {
        reads = program.reads_among(known.iter().copied(), natives.tables()).map_err(|error| error.to_string())?;
        if reads.is_empty() {
            return Err("a native handler needs its input streams: name them in `input_streams`".to_owned());
        }
    }
    if let Some(why) = reads.iter().find_map(|name| refused_reader(name)) {
        return Err(why);
    }
    let mut seen = std::collections::BTreeSet::new();
    match reads.iter().find(|name| !seen.insert(name.as_str())) {
        Some(twice) => Err(format!("it reads stream `{twice}` twice: name it once")),
        None => Ok(reads),
    }
}

/// The means to compile and measure handlers.
#[derive(Debug)]
pub(crate) struct HandlerCompiler {
    pub(crate) natives: Natives,
    pub(crate) costs: CostModel,
}

impl HandlerCompiler {
    /// A handler compiled for all formats of its streams, unless some of that [is missing](CostModel::is_missing). Its handlers
    /// are still to be [taken](HandlerCompiler::take_handlers). Of a query with state the newest formats decide the rows, or those that
    /// are `kept`.
    ///
    /// # Errors
    /// It does not fit the newest format of one of them; it panicked, or did not return, when it was measured.
    pub(crate) fn compile(
        &mut self,
        spec: &HandlerSpec,
        streams: &[&KnownStream],
        kept: Option<Decided>,
    ) -> Result<Compiled, String> {
        let program = program(spec)?;
        let mut compiled = Compiled {
            entries: Vec::new(),
            handlers: Vec::new(),
            is_metered: true,
            awaits: awaited(streams.iter().copied()),
        };
        let newest = || decided(streams.iter().copied());
        let decided = if program.is_stateful() { kept.or_else(newest) } else { None };
        if program.is_stateful() && decided.is_none() {
            // It waits for the first format of each.
            return Ok(compiled);
        }
        for stream in streams {
            for (at, (format, sample)) in stream.formats.iter().enumerate() {
                // Of a format that two of its streams have there is one entry.
                if compiled.entries.iter().any(|entry| entry.is_for(&stream.name, format)) {
                    continue;
                }
                let CompiledEntry { entry, is_metered } =
                    match self.compile_entry((&program, spec, decided.as_ref()), stream, (format, sample)) {
                        Ok(compiled) => compiled,
                        // All that is missing is found out at once.
                        Err(_) if self.costs.is_missing() => continue,
                        Err(why) => return Err(why),
                    };
                if let (Some(why), true) = (&entry.why, at + 1 == stream.formats.len()) {
                    let (stream, format) = (&stream.name, format.id());
                    return Err(format!("it does not fit format {format}, the newest of stream `{stream}`: {why}"));
                }
                compiled.is_metered &= is_metered;
                compiled.entries.push(entry);
            }
        }
        Ok(compiled)
    }

    /// Takes the handlers of what was compiled.
    pub(crate) fn take_handlers(&mut self, spec: &HandlerSpec, compiled: &mut Compiled) {
        compiled.handlers = compiled.entries.iter().map(|entry| self.take_handler(spec, entry)).collect();
    }

    /// Takes the handler that was compiled for an entry; none where the program does not fit.
    pub(crate) fn take_handler(&mut self, spec: &HandlerSpec, entry: &Entry) -> Option<Box<dyn Handler>> {
        entry.output.as_ref()?;
        self.costs.take_handler(&spec.name, &job(&program(spec).ok()?, spec, &self.natives, entry))
    }

    /// Whether the handler that was compiled for an entry takes over state of a kind.
    pub(crate) fn takes_state(&self, spec: &HandlerSpec, entry: &Entry, kind: &str) -> bool {
        let takes = |program| self.costs.takes_state(&spec.name, &job(&program, spec, &self.natives, entry), kind);
        program(spec).is_ok_and(takes)
    }

    /// Handlers for entries that are there, unless some [are missing](CostModel::is_missing).
    ///
    /// # Errors
    /// The program did not return when it was compiled.
    pub(crate) fn compile_again(
        &mut self,
        spec: &HandlerSpec,
        entries: &[Entry],
    ) -> Result<Vec<Option<Box<dyn Handler>>>, String> {
        let (program, mut made) = (program(spec)?, Vec::new());
        for entry in entries {
            let job = job(&program, spec, &self.natives, entry);
            match entry.output.as_ref().map(|_| self.costs.made(&spec.name, job)).transpose() {
                Ok(fits) => made.push(matches!(fits, Some(Ok(_)))),
                Err(_) if self.costs.is_missing() => {}
                Err(why) => return Err(why),
            }
        }
        if self.costs.is_missing() {
            return Ok(Vec::new());
        }
        let take = |(entry, is_made): (&Entry, bool)| is_made.then(|| self.take_handler(spec, entry)).flatten();
        Ok(entries.iter().zip(made).map(take).collect())
    }

    /// The costs of a handler's entries with the new values of its parameters, unless some [are
    /// missing](CostModel::is_missing).
    ///
    /// # Errors
    /// The handler panicked, or did not return, when it was measured.
    pub(crate) fn measure_again(
        &mut self,
        spec: &HandlerSpec,
        entries: &[Entry],
        streams: &BTreeMap<String, KnownStream>,
    ) -> Result<Vec<Cost>, String> {
        let program = program(spec)?;
        let mut costs = Vec::new();
        for entry in entries {
            let stream = streams.get(&entry.stream);
            let sample = stream.and_then(|stream| stream.formats.iter().find(|(format, _)| *format == entry.input));
            // A stream may have no sample of a former format.
            let sample = sample.map_or(&[][..], |(_, sample)| sample.as_ref());
            let job = Job { sample, ..job(&program, spec, &self.natives, entry) };
            match self.costs.measure(job) {
                Ok(outcome) => costs.push(outcome.cost),
                // All that is to be measured is found out at once.
                Err(_) if self.costs.is_missing() => {}
                Err(why) => return Err(why),
            }
        }
        Ok(costs)
    }

    /// The entry for one format.
    ///
    /// # Errors
    /// The handler panicked, or did not return, when it was measured; or it [is missing](CostModel::is_missing).
    pub(crate) fn compile_entry(
        &mut self,
        (program, spec, decided): (&HandlerProgram, &HandlerSpec, Option<&Decided>),
        stream: &KnownStream,
        (format, sample): (&Format, &[u8]),
    ) -> Result<CompiledEntry, String> {
        let mut entry = Entry { decided: decided.cloned(), ..Entry::unfit(stream, format, String::new()) };
        let job = job(program, spec, &self.natives, &entry);
        let job = Job { sample, records_per_batch: stream.records_per_batch, ..job };
        let (facts, outcome) = match self.costs.compile(&spec.name, job)? {
            Ok(found) => found,
            Err(why) => {
                entry.why = Some(why);
                return Ok(CompiledEntry { entry, is_metered: true });
            }
        };
        let Facts { output, form, is_metered, parameters, state } = facts;
        if let Some(state) = state.as_ref().filter(|_| spec.replicas) {
            let why = format!(
                "it keeps state `{state}`, and each replica would have a part of it: deploy it without replicas"
            );
            entry.why = Some(why);
            return Ok(CompiledEntry { entry, is_metered });
        }
        (entry.cost, entry.made) = (outcome.cost, outcome.made);
        (entry.why, entry.output, entry.form) = (None, Some(output), Some(form));
        (entry.parameters, entry.state) = (Some(parameters), state);
        Ok(CompiledEntry { entry, is_metered })
    }
}

/// The program of an entry's handler, without a sample to measure it on.
fn job<'a>(program: &'a HandlerProgram, spec: &HandlerSpec, natives: &'a Natives, entry: &'a Entry) -> Job<'a> {
    Job {
        program,
        stuck_after_ms: spec.stuck_after_ms,
        natives,
        decided: entry.decided.as_ref(),
        stream: &entry.stream,
        format: &entry.input,
        sample: &[],
        records_per_batch: entry.cost.messages_per_batch,
    }
}

/// The state of a deployed handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It works on incoming records.
    Running,
    /// It waits for a stream's first format.
    Waiting(String),
    /// It was stopped.
    Failed(String),
}

impl Status {
    /// One that reads these streams waits for the first format of some, or of any.
    pub(crate) fn waiting(reads: &[String], awaits: &[String]) -> Status {
        let streams = if awaits.is_empty() { reads } else { awaits };
        Status::Waiting(format!("for stream `{}`", streams.join("`, `")))
    }
}

/// A deployed handler.
#[derive(Debug)]
pub(crate) struct Deployed {
    pub(crate) spec: HandlerSpec,
    /// Counted from 1.
    pub(crate) version: u32,
    pub(crate) node: NodeId,
    /// Its node's, wherever that is.
    pub(crate) gauges: Arc<NodeGauges>,
    /// The number of the stream that it makes.
    pub(crate) makes: u32,
    /// The streams that it reads: names and numbers.
    pub(crate) reads: Vec<(String, u32)>,
    pub(crate) entries: Vec<Entry>,
    /// The plan of a query with state, for people.
    pub(crate) plan: Option<String>,
    /// The most bytes that its state may take; 0 where it is no query's and no stream's.
    pub(crate) max_state_bytes: u64,
    /// Its operators.
    pub(crate) operators: Arc<[PlanOperator]>,
    /// The reference tables that it looks rows up in.
    pub(crate) tables: Vec<String>,
    /// The rows of these that it was given last, since it was made.
    pub(crate) given_tables: Option<GivenTables>,
    /// The costs of the entries: their estimates with a margin, and then what they take at work.
    pub(crate) costs: Vec<Cost>,
    pub(crate) is_metered: bool,
    /// Its needs, by these costs.
    pub(crate) need: Need,
    /// The estimate of its load at the rates that its streams have now.
    pub(crate) predicted: Load,
    /// Its load at work, and its counters when that was last computed.
    pub(crate) work: AtWork,
    pub(crate) worked: Worked,
    /// The time that it may take on probation, in ns a second.
    pub(crate) probation_ns_per_s: u64,
    /// Whether it takes far more than it was admitted with.
    pub(crate) is_far_over: bool,
    /// The time that it may take because it went over its budget, in ns a second, if it did.
    pub(crate) limit_ns_per_s: Option<u64>,
    pub(crate) status: Status,
    /// Times that it was replaced, re-parameterised or moved.
    pub(crate) changes: u64,
    /// Faults that were seen, and when the latest were, in s since the start.
    pub(crate) faults_seen: u64,
    pub(crate) overruns_seen: u64,
    pub(crate) timed_seen: u64,
    pub(crate) fault_times_s: Vec<u64>,
    /// Whether its context sheds some of its records at times.
    pub(crate) sampling_events: SamplingEvents,
    pub(crate) row_error_events: RowErrorEvents,
    /// Whether its overload rule is applied now.
    pub(crate) is_degraded: bool,
    /// The costs of its entries with and without the rule, once they were measured.
    pub(crate) rule_costs: Option<RuleCosts>,
}

impl Deployed {
    /// The names of the streams that it reads.
    pub(crate) fn read_names(&self) -> Vec<String> {
        self.reads.iter().map(|(stream, _)| stream.clone()).collect()
    }

    /// Whether it keeps state, or will once it is compiled.
    pub(crate) fn keeps_state(&self) -> bool {
        let is_stateful = || program(&self.spec).is_ok_and(|program| program.is_stateful());
        self.entries.iter().any(|entry| entry.state.is_some()) || is_stateful()
    }

    /// Its plan is that of its entries.
    pub(crate) fn note_plan(&mut self, tables: &Tables) {
        let decided = self.entries.iter().find_map(|entry| entry.decided.as_ref());
        let planned = decided.and_then(|decided| program(&self.spec).ok()?.plan_stateful(decided, tables).ok());
        let of_plan = planned.iter().flat_map(|(_, plan)| plan.tables());
        self.tables = of_plan.map(str::to_owned).collect();
        self.operators = planned.as_ref().map(|(_, plan)| plan.operators()).unwrap_or_default().into();
        let of_state = self.spec.state.as_ref().map(StateSpec::bytes);
        let of_query = planned.as_ref().map(|(_, plan)| plan.max_state_bytes as u64);
        self.max_state_bytes = of_state.or(of_query).unwrap_or(0);
        self.plan = planned.map(|(_, plan)| plan.to_string());
        if matches!(self.spec.part, Some(QueryPart::Reduction { .. })) {
            let input = self.entries.last().map(|entry| &entry.input);
            let reduction = input.and_then(|input| program(&self.spec).ok()?.plan_reduction(tables, input).ok());
            self.operators = reduction.map(|reduction| reduction.operators()).unwrap_or_default().into();
        }
    }

    /// The first version of a handler.
    pub(crate) fn new(
        spec: HandlerSpec,
        (node, gauges): (NodeId, Arc<NodeGauges>),
        makes: u32,
        reads: Vec<(String, u32)>,
        (compiled, need): (Compiled, Need),
        tables: &Tables,
    ) -> Deployed {
        let streams: Vec<String> = reads.iter().map(|(name, _)| name.clone()).collect();
        let status = match compiled.entries.is_empty() {
            true => Status::waiting(&streams, &compiled.awaits),
            false => Status::Running,
        };
        let mut deployed = Deployed {
            version: 1,
            plan: None,
            max_state_bytes: 0,
            operators: Arc::default(),
            tables: Vec::new(),
            given_tables: None,
            node,
            gauges,
            makes,
            costs: with_margin(&compiled.entries),
            entries: compiled.entries,
            is_metered: compiled.is_metered,
            need,
            predicted: need.load,
            work: AtWork::default(),
            worked: Worked::default(),
            probation_ns_per_s: u64::MAX,
            is_far_over: false,
            limit_ns_per_s: None,
            status,
            changes: 0,
            faults_seen: 0,
            overruns_seen: 0,
            timed_seen: 0,
            fault_times_s: Vec::new(),
            sampling_events: SamplingEvents::default(),
            row_error_events: RowErrorEvents::default(),
            is_degraded: false,
            rule_costs: None,
            spec,
            reads,
        };
        deployed.note_plan(tables);
        deployed
    }
}

/// `c-core` or `g-core` as planning knows it.
pub(crate) fn kind(kind: ContextKind) -> crossdock_control::load::CoreKind {
    match kind {
        ContextKind::CCore => crossdock_control::load::CoreKind::CCore,
        ContextKind::GCore => crossdock_control::load::CoreKind::GCore,
    }
}
