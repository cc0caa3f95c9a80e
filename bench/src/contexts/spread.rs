//! Publishers and subscribers spread over the I/O contexts of a daemon, against the same clients at a daemon with one.

use super::Options;
use crate::broker::{number, roles};
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::flights;
use crate::process::{Process, connect_placed, end_with_parent};
use crate::report::Table;
use crossdock_nectarine::{Publisher, Subscriber, Transport};
use serde_json::Value;
use std::time::Instant;

/// Sessions that a client opens at most until one is at the context that the case wants. With four contexts, 60 sessions in a row
/// miss it once in 30 million times.
const TRIES: u32 = 60;

/// How clients are spread. They come in pairs of a publisher and a subscriber, each pair with a stream of its own.
#[derive(Clone, Copy)]
struct Spread {
    contexts: usize,
    pairs: usize,
    /// By how many contexts a subscriber is beside its publisher.
    apart: usize,
}

impl Spread {
    /// The same clients at a daemon with one I/O context.
    fn at_one(self) -> Spread {
        Spread { contexts: 1, ..self }
    }

    fn daemon(self) -> Result<Daemon, Error> {
        // The home context is always there. Neither daemon has a g-core.
        match self.contexts {
            0 | 1 => Daemon::start("[platform]\ncontext = []\n"),
            n => Daemon::start(&"[[platform.context]]\nkind = \"c-core\"\nio = true\n".repeat(n - 1)),
        }
    }
}

/// A publisher and the subscriber of its stream.
struct Pair {
    publisher: Process,
    subscriber: Process,
}

/// The process that publishes flights, once its session is where the benchmark wants it.
pub(super) fn publish(addr: &str, stream: &str, count: u64) -> Result<(), Error> {
    end_with_parent()?;
    let format = flights::format()?;
    let records = flights::records(&format, 336_776)?;
    let builder = || Publisher::builder(addr).transport(Transport::Udp).stream(stream).format(&format);
    let publisher = connect_placed(|| Ok(builder().connect()?))?;
    roles::publish_unpaced(publisher, &records, count)
}

/// The process that counts the records of a stream, once its session is where the benchmark wants it.
pub(super) fn subscribe(addr: &str, stream: &str) -> Result<(), Error> {
    end_with_parent()?;
    let sql = format!("SELECT * FROM {stream}");
    let builder = || Subscriber::builder(addr).transport(Transport::Udp).sql(&sql);
    roles::count_records(connect_placed(|| Ok(builder().connect()?))?)
}

/// A context's name, and the bytes that it received and sent so far.
type Traffic = (String, u64);

/// The traffic of all contexts.
fn traffic(daemon: &Daemon) -> Result<Vec<Traffic>, Error> {
    let of = |context: &Value| {
        let (name, bytes) = (context["name"].as_str()?, context["network_bytes"].as_u64()?);
        Some((name.to_owned(), bytes))
    };
    Ok(daemon.list("contexts")?.iter().filter_map(of).collect())
}

/// Bytes that passed at each context between two times.
fn passed<'a>(before: &[Traffic], after: &'a [Traffic]) -> impl Iterator<Item = (u64, &'a str)> {
    before.iter().zip(after).map(|((_, before), (name, after))| (after.saturating_sub(*before), name.as_str()))
}

/// The context of a handshake that took place between two times: by far the most bytes passed there.
fn busiest(before: &[Traffic], after: &[Traffic]) -> Option<String> {
    let mut all: Vec<(u64, &str)> = passed(before, after).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let second = all.get(1).map_or(0, |(bytes, _)| *bytes);
    all.first().filter(|(bytes, _)| *bytes > 2 * second).map(|(_, name)| (*name).to_owned())
}

/// Checks that the sessions were where they were wanted: in every case as many bytes pass at each context.
fn check_even(before: &[Traffic], after: &[Traffic]) -> Result<(), Error> {
    let all: Vec<(u64, &str)> = passed(before, after).collect();
    let even = all.iter().map(|(bytes, _)| bytes).sum::<u64>() / all.len().max(1) as u64;
    match all.iter().find(|(bytes, _)| bytes.abs_diff(even) > even / 4) {
        Some((bytes, name)) => {
            Err(format!("{bytes} bytes passed at {name}, not about {even} as at each context").into())
        }
        None => Ok(()),
    }
}

/// The context of the latest subscription of a stream.
fn subscribed_at(daemon: &Daemon, stream: &str) -> Result<Option<String>, Error> {
    let subscriptions = daemon.list("subscriptions")?;
    let latest = subscriptions.iter().filter(|one| one["stream"] == stream).max_by_key(|one| one["id"].as_u64());
    Ok(latest.and_then(|one| one["context"].as_str()).map(str::to_owned))
}

/// Has a client connect until its session is at a context, by what `at` says of the latest session.
fn place(
    client: &mut Process,
    wanted: &str,
    mut at: impl FnMut() -> Result<Option<String>, Error>,
) -> Result<(), Error> {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        client.next_report()?;
        let there = at()?;
        if there.as_deref() == Some(wanted) {
            return Ok(());
        }
        seen.push(there.unwrap_or_else(|| "unknown".to_owned()));
        client.again()?;
    }
    Err(format!("none of {TRIES} sessions was at {wanted}; they were at {}", seen.join(", ")).into())
}

/// Starts all clients, each at its context. The subscribers are ready then, and the publishers wait.
fn pairs(spread: Spread, daemon: &Daemon, count: u64) -> Result<Vec<Pair>, Error> {
    let names: Vec<String> = traffic(daemon)?.into_iter().map(|(name, _)| name).collect();
    if names.len() != spread.contexts {
        return Err(format!("the daemon should have {} contexts, it has {}", spread.contexts, names.join(", ")).into());
    }
    let mut pairs = Vec::new();
    for pair in 0..spread.pairs {
        let stream = format!("S{pair}");
        let wanted = |apart: usize| &names[(pair + apart) % names.len()];
        let mut before = traffic(daemon)?;
        let args = ["contexts", "publish", &daemon.addr, &stream, &count.to_string()];
        let mut publisher = Process::role(&args.map(str::to_owned))?;
        // No list names a publisher's context. Nothing else passes now, so the bytes of its handshake show it.
        place(&mut publisher, wanted(0), || {
            let after = traffic(daemon)?;
            let there = busiest(&before, &after);
            before = after;
            Ok(there)
        })?;
        let mut subscriber = Process::role(&["contexts", "subscribe", &daemon.addr, &stream].map(str::to_owned))?;
        place(&mut subscriber, wanted(spread.apart), || subscribed_at(daemon, &stream))?;
        subscriber.go()?;
        pairs.push(Pair { publisher, subscriber });
    }
    Ok(pairs)
}

/// The rates of a daemon, in records: a CPU-second of its own, and a second.
struct Rates {
    per_daemon_cpu_s: f64,
    per_s: f64,
}

/// Has all publishers send millions of records each, and checks that all arrive.
fn measure(spread: Spread, millions: u64) -> Result<Rates, Error> {
    let count = millions * 1_000_000;
    let daemon = spread.daemon()?;
    let mut pairs = pairs(spread, &daemon, count)?;
    let before = traffic(&daemon)?;
    let (daemon_ns, start) = (daemon.cpu_ns()?, Instant::now());
    pairs.iter_mut().try_for_each(|pair| pair.publisher.go())?;
    let done: Result<Vec<Value>, Error> = pairs.iter_mut().map(|pair| pair.subscriber.next_report()).collect();
    let elapsed = start.elapsed().as_secs_f64();
    let daemon_s = (daemon.cpu_ns()? - daemon_ns) as f64 / 1e9;
    let done = done?;
    check_even(&before, &traffic(&daemon)?)?;
    for (pair, done) in pairs.into_iter().zip(done) {
        let received = number(&done, "records")?;
        if received != count {
            return Err(format!("{count} records should have arrived, {received} did").into());
        }
        let Pair { mut publisher, subscriber } = pair;
        publisher.next_report()?;
        publisher.end()?;
        subscriber.end()?;
    }
    let all = (count * spread.pairs as u64) as f64;
    Ok(Rates { per_daemon_cpu_s: all / daemon_s, per_s: all / elapsed })
}

fn compare(case: &'static str, spread: Spread, options: &Options, table: &mut Table) -> Result<(), Error> {
    let in_case = |daemon: &'static str| move |error: Error| format!("{case}, {daemon}: {error}");
    let one = measure(spread.at_one(), options.millions).map_err(in_case("one_io"))?;
    let many = measure(spread, options.millions).map_err(in_case("many"))?;
    table.push(case, "msgs_per_daemon_cpu_s", many.per_daemon_cpu_s, Some(one.per_daemon_cpu_s));
    table.push(case, "msgs_per_s", many.per_s, Some(one.per_s));
    Ok(())
}

pub(super) fn two_io(options: &Options, table: &mut Table) -> Result<(), Error> {
    compare("two_io", Spread { contexts: 2, pairs: 2, apart: 0 }, options, table)
}

pub(super) fn crossing(options: &Options, table: &mut Table) -> Result<(), Error> {
    compare("crossing", Spread { contexts: 2, pairs: 1, apart: 1 }, options, table)
}

pub(super) fn four_io(options: &Options, table: &mut Table) -> Result<(), Error> {
    compare("four_io", Spread { contexts: 4, pairs: 4, apart: 0 }, options, table)
}

#[cfg(test)]
mod tests {
    use super::{Traffic, busiest, check_even};

    fn named(bytes: &[u64]) -> Vec<Traffic> {
        bytes.iter().enumerate().map(|(at, &bytes)| (format!("c-core-{at}"), bytes)).collect()
    }

    #[test]
    fn the_context_of_a_handshake_is_the_one_where_by_far_the_most_passed() {
        for (before, after, wanted) in [
            (&[10][..], &[900][..], Some("c-core-0")),
            (&[10, 2000], &[10, 2900], Some("c-core-1")),
            (&[10, 2000], &[910, 2100], Some("c-core-0")),
            (&[10, 2000], &[910, 2500], None),
            (&[10, 2000], &[10, 2000], None),
            (&[], &[], None),
        ] {
            let there = busiest(&named(before), &named(after));
            assert_eq!(there.as_deref(), wanted, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_session_elsewhere_is_seen_by_its_bytes() {
        assert!(check_even(&named(&[5]), &named(&[1000])).is_ok());
        assert!(check_even(&named(&[0, 500]), &named(&[1000, 1700])).is_ok());
        assert!(check_even(&named(&[0, 0]), &named(&[2000, 0])).is_err());
        assert!(check_even(&named(&[0; 4]), &named(&[1000, 1000, 1000, 0])).is_err());
    }
}
