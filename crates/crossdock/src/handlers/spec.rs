//! The changes that a command line asks of a handler, on top of what it was before.

use crossdock_runtime::HandlerSpec;

use super::parameters;
use crate::cli::HandlerArguments;
use crate::failure::{Failure, Outcome};

/// The handler as it is now, but for what is given.
pub(super) fn of(now: HandlerSpec, given: &HandlerArguments) -> Outcome<HandlerSpec> {
    let mut spec = now;
    if let Some(sql) = &given.sql {
        // The streams and parameters of the former program alone are no longer wanted.
        spec.input_streams.clear();
        spec.native = None;
        spec.parameters.retain(|name, _| is_named(sql, name));
        spec.overload_parameters.retain(|name, _| is_named(sql, name));
        spec.sql = Some(sql.clone());
    }
    if let Some(native) = &given.native {
        if spec.native.as_ref() != Some(native) {
            spec.parameters.clear();
            spec.overload_parameters.clear();
        }
        spec.sql = None;
        spec.native = Some(native.clone());
    }
    if !given.input_streams.is_empty() {
        spec.input_streams.clone_from(&given.input_streams);
    }
    spec.parameters.extend(parameters(&given.parameters)?);
    spec.output_stream = given.output_stream.clone().or(spec.output_stream);
    match (given.replicas, &given.place) {
        (Some(true), Some(place)) => {
            let why = format!("--replicas runs a handler at every I/O context, and --place at `{place}` only");
            return Err(Failure::usage(why).hint("keep one of the two"));
        }
        // Each takes the place of the other.
        (Some(true), None) => (spec.replicas, spec.place) = (true, None),
        (_, Some(place)) => (spec.replicas, spec.place) = (false, Some(place.clone())),
        (Some(false), None) => spec.replicas = false,
        (None, None) => {}
    }
    spec.peak_msgs_per_s = given.peak.or(spec.peak_msgs_per_s);
    let reserve = given.reserve.unwrap_or_default();
    spec.reserve_ns_per_s = reserve.ns_per_s.or(spec.reserve_ns_per_s);
    spec.reserve_buffers = reserve.buffers.or(spec.reserve_buffers);
    spec.reserve_bytes_per_s = reserve.bytes_per_s.or(spec.reserve_bytes_per_s);
    spec.reserve_path_msgs_per_s = given.reserve_path_rate.or(spec.reserve_path_msgs_per_s);
    spec.weight = given.weight.or(spec.weight);
    spec.when_full = given.when_full.unwrap_or(spec.when_full);
    spec.overload_parameters.extend(parameters(&given.overload_parameters)?);
    spec.max_sampling = given.max_sampling.or(spec.max_sampling);
    spec.budget_ns = given.budget.or(spec.budget_ns);
    spec.stuck_after_ms = given.stuck_after.or(spec.stuck_after_ms);
    spec.over_budget = given.over_budget.unwrap_or(spec.over_budget);
    spec.on_fault = given.on_fault.unwrap_or(spec.on_fault);
    spec.on_row_error = given.on_row_error.unwrap_or(spec.on_row_error);
    Ok(spec)
}

/// Whether a query has `$name` in it.
fn is_named(sql: &str, name: &str) -> bool {
    sql.split('$').skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end] == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, HandlerCommand};
    use clap::Parser;
    use crossdock_runtime::{OnFault, OverBudget, WhenFull};

    fn given(words: &[&str]) -> HandlerArguments {
        match Cli::try_parse_from(["crossdock", "handler"].iter().chain(words)).map(|cli| cli.command) {
            Ok(Command::Handler(handler)) => match handler.command {
                HandlerCommand::Deploy(given) | HandlerCommand::Swap(given) => given,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn deployed(words: &[&str]) -> HandlerSpec {
        of(HandlerSpec { name: "late".into(), ..HandlerSpec::default() }, &given(words)).unwrap_or_default()
    }

    const ALL: [&str; 31] = [
        "deploy",
        "late",
        "SELECT * FROM A WHERE d > $m AND e < $n",
        "--output-stream",
        "A.late",
        "--param",
        "m=15",
        "--param",
        "$n=2",
        "--place",
        "g-core-0",
        "--peak",
        "100k",
        "--reserve",
        "50ms/s, 64 buffers, 12MB/s",
        "--reserve-path-rate",
        "2M",
        "--overload-param",
        "m=60",
        "--weight",
        "3",
        "--when-full",
        "drop",
        "--max-sampling",
        "8",
        "--budget=5us",
        "--stuck-after=1m",
        "--over-budget=stop",
        "--on-fault=stop",
        "--input-stream",
        "A",
    ];

    #[test]
    fn all_that_is_given_is_wanted() {
        let spec = deployed(&ALL);
        assert_eq!(spec.sql.as_deref(), Some(ALL[2]));
        assert_eq!((spec.output_stream.as_deref(), spec.place.as_deref()), (Some("A.late"), Some("g-core-0")));
        assert_eq!((&*spec.parameters["m"], &*spec.parameters["n"]), ("15", "2"));
        assert_eq!(spec.input_streams, ["A"]);
        assert_eq!((spec.peak_msgs_per_s, spec.reserve_ns_per_s), (Some(100_000), Some(50_000_000)));
        assert_eq!((spec.reserve_buffers, spec.reserve_bytes_per_s), (Some(64), Some(12_000_000)));
        assert_eq!((spec.reserve_path_msgs_per_s, &*spec.overload_parameters["m"]), (Some(2_000_000), "60"));
        assert_eq!((spec.weight, spec.max_sampling, spec.budget_ns), (Some(3), Some(8), Some(5000)));
        assert_eq!(spec.stuck_after_ms, Some(60_000));
        assert_eq!(
            (spec.when_full, spec.over_budget, spec.on_fault),
            (WhenFull::Drop, OverBudget::Stop, OnFault::Stop)
        );
    }

    #[test]
    fn a_swap_keeps_what_it_does_not_say() {
        let before = deployed(&ALL);
        let same = of(before.clone(), &given(&["swap", "late"])).unwrap_or_default();
        assert_eq!(same, before);
        // Its stream and the parameter that it no longer names go with the former query.
        let next = of(before.clone(), &given(&["swap", "late", "SELECT * FROM A WHERE d > $m", "--weight", "1"]));
        let next = next.unwrap_or_default();
        assert_eq!((next.weight, next.place.as_deref(), next.input_streams.len()), (Some(1), Some("g-core-0"), 0));
        assert_eq!(next.parameters.keys().collect::<Vec<_>>(), ["m"]);
        assert_eq!(next.overload_parameters.keys().collect::<Vec<_>>(), ["m"]);
        let native = given(&["swap", "late", "--native", "count", "--input-stream", "B"]);
        let native = of(before, &native).unwrap_or_default();
        assert_eq!((native.sql, native.native.as_deref()), (None, Some("count")));
        assert_eq!(native.input_streams, ["B"]);
        assert!(native.parameters.is_empty() && native.overload_parameters.is_empty());
    }

    #[test]
    fn replicas_and_a_place_take_the_place_of_each_other() {
        let place = |spec: &HandlerSpec| (spec.replicas, spec.place.clone());
        let next = |before: &HandlerSpec, words: &[&str]| of(before.clone(), &given(words)).unwrap_or_default();
        let replicated = deployed(&["deploy", "late", "SELECT * FROM A", "--replicas"]);
        assert_eq!(place(&replicated), (true, None));
        assert_eq!(place(&next(&replicated, &["swap", "late", "--weight", "2"])), (true, None));
        assert_eq!(place(&next(&replicated, &["swap", "late", "--replicas=false"])), (false, None));
        let placed = next(&replicated, &["swap", "late", "--place", "c-core-0"]);
        assert_eq!(place(&placed), (false, Some("c-core-0".to_owned())));
        assert_eq!(place(&next(&placed, &["swap", "late", "SELECT * FROM A", "--replicas"])), (true, None));
        let both = of(placed, &given(&["swap", "late", "--replicas", "--place", "c-core-0"]));
        assert!(both.is_err_and(|why| why.text().contains("keep one of the two")));
    }

    #[test]
    fn a_parameter_is_named_by_all_of_its_name() {
        assert!(is_named("a > $min", "min") && is_named("$min+1", "min"));
        assert!(!is_named("a > $minutes", "min") && !is_named("min", "min"));
    }
}
