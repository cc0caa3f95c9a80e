//! Random changes under traffic with all that may be lost on the way: handlers that panic at some records, formats that come
//! later and that not all handlers can read, queues that drop what they have no room for, sampling, and removal while something
//! waits. Every record of what a node reads has left it, or is counted by why it has not.

use super::*;
use std::sync::Mutex;

/// A format that streams have from some time on.
const WIDER: u64 = 8;
/// Handlers that are delicate panic at records whose number this divides.
const BAD: u64 = 499;

/// The records that a handler saw, over all of its instances.
#[derive(Default)]
struct Seen {
    /// The first record of the first batch that came to it.
    first: Option<u64>,
    /// The records that it let through, in order.
    passed: Vec<u64>,
}

struct Delicate {
    seen: Arc<Mutex<Seen>>,
    is_delicate: bool,
    emits: bool,
    counters: HandlerCounters,
}

impl Handler for Delicate {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let number = |index: usize| u64::from_le_bytes(batch.record(index).try_into().unwrap());
        let mut passed: Vec<u64> = selection.iter().map(number).collect();
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        seen.first.get_or_insert(number(0));
        if self.is_delicate && passed.iter().any(|number| number.is_multiple_of(BAD)) {
            // Without what a panic prints.
            std::panic::resume_unwind(Box::new("as the test wants"));
        }
        self.counters.records_in += selection.len() as u64;
        if self.emits {
            selection.iter().for_each(|index| out.push(batch.record(index)));
        }
        seen.passed.append(&mut passed);
        if self.emits { Verdict::Emit(selection.len()) } else { Verdict::Forward }
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}

/// A handler that is there.
struct Account {
    id: NodeId,
    source: u32,
    makes: u32,
    /// The stream that it reads.
    from: u32,
    /// The formats that it was made for, and whether it fits them.
    formats: Vec<(u64, bool)>,
    seen: Arc<Mutex<Seen>>,
    faults: u64,
    /// The number of the first record that may come to it.
    since: u64,
}

impl Account {
    fn instance(&self, (format, fits): (u64, bool), rng: &mut Rng) -> Instance {
        if !fits {
            return Instance { stream: None, format, handler: None, output: 0 };
        }
        let (seen, counters) = (Arc::clone(&self.seen), HandlerCounters::default());
        let handler = Delicate { seen, is_delicate: rng.u8(0..3) == 0, emits: rng.bool(), counters };
        Instance { stream: None, format, handler: Some(Box::new(handler)), output: format }
    }

    fn instances(&self, rng: &mut Rng) -> Vec<Instance> {
        self.formats.iter().map(|format| self.instance(*format, rng)).collect()
    }

    /// Makes it for the formats of its stream that it was not made for yet.
    fn fit(&mut self, books: &Books, overlay: &mut Overlay, rng: &mut Rng) {
        for format in books.formats[self.source as usize].clone() {
            if self.formats.iter().all(|(known, _)| *known != format) {
                // As the first batch that comes to it is looked for, one that is new fits all formats.
                let fits = self.seen().first.is_none() || rng.u8(0..3) > 0;
                self.formats.push((format, fits));
                overlay.add_instance(self.id, self.instance((format, fits), rng)).unwrap();
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The world, and the formats that its streams have by now.
struct Books {
    world: World,
    formats: Vec<Vec<u64>>,
}

impl Books {
    fn step(&mut self) {
        if self.world.rng.u32(0..3) == 0 {
            let stream = self.world.rng.u32(0..STREAMS);
            let formats = &self.formats[stream as usize];
            let format = formats[self.world.rng.usize(0..formats.len())];
            self.world.offer_as(stream, format);
        }
        let at = self.world.rng.usize(0..self.world.graphs.len());
        self.world.turn(at);
    }
}

impl Waiting for Books {
    fn begin(&mut self) {}

    fn wait(&mut self) -> bool {
        self.step();
        true
    }
}

/// Puts a handler in behind a stream or another handler, and a delivery behind it.
fn deploy(books: &mut Books, overlay: &mut Overlay, there: &mut Vec<Account>, rng: &mut Rng, makes: u32) {
    let behind = there.iter().filter(|_| rng.bool()).last();
    let (from, source, since) = match behind {
        Some(before) => (before.makes, before.source, before.seen().passed.last().map_or(0, |last| last + 1)),
        None => {
            let stream = rng.u32(0..STREAMS);
            (stream, stream, books.world.next[stream as usize])
        }
    };
    let account = Account {
        id: overlay.next_id(&[]),
        source,
        makes,
        from,
        formats: books.formats[source as usize].iter().map(|format| (*format, true)).collect(),
        seen: Arc::default(),
        faults: 0,
        since,
    };
    let max_sampling = if rng.u8(0..4) == 0 { rng.u32(2..5) } else { 1 };
    let policy = SchedulingPolicy {
        weight: rng.u32(1..4),
        max_sampling,
        drops: rng.bool(),
        restarts: rng.bool(),
        ..SchedulingPolicy::default()
    };
    let context = rng.u8(0..books.world.graphs.len() as u8);
    let node = added(account.id, account.instances(rng), (&[from], makes), policy);
    books.world.subscribe(makes);
    overlay.change(add(node, context).into(), books).unwrap();
    there.push(account);
}

/// Takes a handler out that nobody reads, whatever waits for it.
fn remove(books: &mut Books, overlay: &mut Overlay, there: &mut Vec<Account>, at: usize) {
    let (id, makes) = (there[at].id, there[at].makes);
    if there.iter().any(|account| account.from == makes) {
        return;
    }
    there.swap_remove(at);
    let gauges = Arc::clone(&overlay.node(id).unwrap().gauges);
    let before = lost(&gauges, "removed");
    let edits = vec![Edit::Remove { id }, Edit::Deliver { stream: makes, at: FIRST, is_delivered: false }];
    let changed = overlay.change(edits, books).unwrap();
    assert_eq!(lost(&gauges, "removed"), before + changed.dropped);
}

/// New instances for handlers that panicked; whether there were any.
fn restart_failed(overlay: &mut Overlay, there: &mut [Account], rng: &mut Rng) -> bool {
    let mut any = false;
    for account in there {
        let faults = overlay.node(account.id).unwrap().gauges.faults.get();
        if faults > account.faults {
            account.faults = faults;
            overlay.restart(account.id, account.instances(rng)).unwrap();
            any = true;
        }
    }
    any
}

fn lost(gauges: &gauges::NodeGauges, why: &str) -> u64 {
    gauges.losses().iter().find(|(name, _)| name == why).map_or(0, |(_, records)| *records)
}

/// Holds what a node counted against what it was sent and what came of it.
fn check(account: &Account, books: &Books, overlay: &Overlay, there: &[Account], seed: u64) {
    let gauges = Arc::clone(&overlay.node(account.id).unwrap().gauges);
    let seen = account.seen();
    assert!(seen.passed.is_sorted_by(|one, next| one < next), "seed {seed}: records came twice or out of order");
    let (records_in, records_out) = (gauges.records_in.get(), gauges.records_out.get());
    let inside: u64 = ["unreadable", "failed", "sampled"].iter().map(|why| lost(&gauges, why)).sum();
    let losses = gauges.losses();
    assert_eq!(records_in, records_out + inside, "seed {seed}: {losses:?}");
    assert_eq!(records_out, seen.passed.len() as u64, "seed {seed}: {losses:?}");
    let before = there.iter().find(|other| other.makes == account.from);
    let sent_since = |number: u64| match before {
        None => books.world.next[account.from as usize] - number,
        Some(before) => before.seen().passed.iter().filter(|other| **other >= number).count() as u64,
    };
    let (came, queue_full) = (records_in + lost(&gauges, "queue_full"), lost(&gauges, "queue_full"));
    // The first that found room may not be the first that was sent to it.
    let (least, most) = (seen.first.map_or(0, sent_since), sent_since(account.since));
    let most = if queue_full > 0 { most } else { least };
    assert!((least..=most).contains(&came), "seed {seed}: {came} of {least} to {most}: {losses:?}");
    let delivered = books.world.sessions.delivered.get(&account.makes).map_or(0, |(_, count)| *count);
    assert_eq!(delivered, records_out, "seed {seed}");
}

/// The ends of what is published come to all sessions, once each, however many nodes are in between.
fn end(books: &mut Books, there: &[Account], seed: u64) {
    books.world.sessions.ended.clear();
    (0..STREAMS).for_each(|stream| books.world.graphs[0].0.arrive_end(stream, 0, true));
    books.world.settle();
    let mut makes: Vec<u32> = there.iter().map(|account| account.makes).collect();
    makes.sort_unstable();
    books.world.sessions.ended.sort_unstable();
    assert_eq!(books.world.sessions.ended, makes, "seed {seed}");
}

fn random_losses(seed: u64, changes: usize) -> BTreeMap<String, u64> {
    let contexts = 1 + seed as usize % 5;
    let (world, mut overlay) = World::new(contexts, seed, [2, 4, 64][seed as usize % 3]);
    let mut books = Books { world, formats: vec![vec![FORMAT]; STREAMS as usize] };
    // Every other time the sessions behind the handlers have room and buffers for a few records only.
    books.world.sessions.tight = (seed % 2 == 1).then(|| Rng::with_seed(seed));
    let (mut there, mut rng, mut made): (Vec<Account>, _, _) = (Vec::new(), Rng::with_seed(!seed), STREAMS);
    for _ in 0..changes {
        (0..rng.u32(0..30)).for_each(|_| books.step());
        // Some of what is there has waited long.
        books.world.now_ns += rng.u64(0..1_000_000);
        let context = ContextIndex(rng.u8(0..contexts as u8));
        let at = rng.usize(0..there.len().max(1));
        match rng.u32(0..12) {
            0..3 if there.len() < 10 => {
                made += 1;
                deploy(&mut books, &mut overlay, &mut there, &mut rng, made);
            }
            3..6 if !there.is_empty() => {
                let edit =
                    Edit::Change { id: there[at].id, instances: None, policy: None, reads: None, at: Some(context) };
                overlay.change(vec![edit], &mut books).map(drop).unwrap();
            }
            6 if !there.is_empty() => {
                let instances = there[at].instances(&mut rng);
                let instances = Some((instances, true));
                let edit = Edit::Change { id: there[at].id, instances, policy: None, reads: None, at: None };
                overlay.change(vec![edit], &mut books).map(drop).unwrap();
            }
            7 if !there.is_empty() => remove(&mut books, &mut overlay, &mut there, at),
            8 => {
                let stream = rng.usize(0..STREAMS as usize);
                if books.formats[stream].len() == 1 && rng.bool() {
                    books.formats[stream].push(WIDER);
                }
            }
            9 if !there.is_empty() => {
                there[at].fit(&books, &mut overlay, &mut rng);
            }
            _ => drop(restart_failed(&mut overlay, &mut there, &mut rng)),
        }
    }
    there.iter_mut().for_each(|account| account.fit(&books, &mut overlay, &mut rng));
    books.world.settle();
    while restart_failed(&mut overlay, &mut there, &mut rng) {
        books.world.settle();
    }
    books.world.settle();
    let mut losses: BTreeMap<String, u64> = BTreeMap::new();
    for account in &there {
        check(account, &books, &overlay, &there, seed);
        let of_node = overlay.node(account.id).unwrap().gauges.losses();
        of_node.into_iter().for_each(|(why, records)| *losses.entry(why).or_default() += records);
    }
    end(&mut books, &there, seed);
    // A buffer left behind by nobody is given back: no buffer is held once all are gone.
    while !there.is_empty() {
        for at in (0..there.len()).rev() {
            if at < there.len() {
                remove(&mut books, &mut overlay, &mut there, at);
            }
        }
    }
    books.world.settle();
    let in_use = |pool: &Pool| pool.stats().classes.iter().map(crossdock_mailbox::ClassStats::in_use).sum::<usize>();
    assert_eq!(in_use(&books.world.pool), 0, "seed {seed}");
    losses
}

#[test]
fn every_record_is_delivered_or_counted_by_why_it_is_not() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 16 } else { 3 };
    let seeds = seed.map_or(0..all, |seed: u64| seed..seed + 1);
    let mut losses: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        random_losses(seed, 100).into_iter().for_each(|(why, records)| *losses.entry(why).or_default() += records);
    }
    // That all of it happens at all.
    if seed.is_none() {
        let reasons: Vec<&str> = losses.keys().map(String::as_str).collect();
        assert_eq!(reasons, ["failed", "queue_full", "sampled", "unreadable"], "{losses:?}");
    }
}
